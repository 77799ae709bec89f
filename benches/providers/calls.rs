//! The measured process: 50 calls with hosted STT, LLM and TTS, and a thread that plays the engine.
//!
//! Each call repeats a turn of 10 s: silence, 3 s of the user's speech, a question to the language
//! model, if there is one, and two segments of 2 s each of the agent's speech. The calls begin one
//! after the other over 10 s, and each has its own moment within the 20 ms of a chunk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conversation::event::{HistoryItem, Role};
use cpu_time::{ProcessTime, ThreadTime};
use engine::speak::tts::{SynthesisEvent, synthesis_sink};
use engine_api::{LlmChoice, SttChoice, TtsChoice};
use models::llm::{self, Llm};
use models::registry::{Config, Registry};
use models::stt::SttStream;
use models::tts::{self, Tts};
use models::{Handle, Sink};
use serde_json::json;

use crate::measured::{AnswerReader, Measured, SegmentReader, add};
use crate::stamp;

/// Samples of a chunk of the user's audio: 20 ms at 16 kHz.
pub(crate) const CHUNK_SAMPLES: usize = 320;

/// STT with OpenAI's realtime interface.
const REALTIME: &str = "openai gpt-live-transcribe";
const CALL_COUNT: u64 = 50;
/// Duration of a step of a call.
const STEP: Duration = Duration::from_millis(20);
/// Steps of a turn.
const TURN_STEPS: u64 = 500;
/// Steps from the beginning of one call to that of the next one.
const CALL_INTERVAL: u64 = TURN_STEPS / CALL_COUNT;
/// Chunks of the pre-roll, which are sent at once when the user's speech is detected.
const PRE_ROLL_CHUNKS: usize = 25;
/// Steps of a turn at which the user starts and stops to speak.
const USER_SPEECH: std::ops::Range<u64> = 25..175;
/// Step of a turn at which the language model is asked.
const QUESTION: u64 = 180;
/// Steps of a turn at which a segment of 2 s is requested.
const SEGMENTS: [u64; 2] = [200, 220];
/// Steps before the measurement: all calls have begun, and some turns are over.
const WARM_UP_STEPS: u64 = TURN_STEPS + 100;
/// Steps of the measurement: 40 s.
const MEASURED_STEPS: u64 = 4 * TURN_STEPS;

/// The providers of the calls. That of STT may be followed by a blank and a model.
pub(crate) struct Providers<'a> {
    pub(crate) stt: &'a str,
    /// `none` if none is asked.
    pub(crate) llm: &'a str,
    pub(crate) tts: &'a str,
}

/// One call, as the engine has it.
struct Call {
    stt: Box<dyn SttStream>,
    llm: Option<Arc<dyn Llm>>,
    /// The current question. Dropping the handle cancels it.
    question: Option<Handle>,
    tts: Arc<dyn Tts>,
    /// The segments of the current reply. Dropping a handle cancels its segment.
    speeches: Vec<Handle>,
    reply: u64,
    is_speaking: bool,
    resampled: bool,
    /// How the time is written into a chunk of the user's audio.
    write_stamp: fn(&mut [i16]),
    measured: Arc<Measured>,
}

impl Call {
    /// Opens the connections of a call of an agent that names its own servers.
    fn open(
        registry: &Registry,
        url: &str,
        providers: &Providers,
        resampled: bool,
        measured: &Arc<Measured>,
    ) -> Self {
        let (url, token) = (Some(url.to_owned()), Some("key".to_owned()));
        let (stt, stt_model) = providers.stt.split_once(' ').unwrap_or((providers.stt, ""));
        let stt = SttChoice {
            provider: stt.to_owned(),
            model: stt_model.to_owned(),
            url: url.clone(),
            token: token.clone(),
            ..SttChoice::default()
        };
        let llm = (providers.llm != "none").then(|| {
            let llm = LlmChoice {
                provider: providers.llm.to_owned(),
                // Another server has no default.
                model: "a-model".to_owned(),
                url: url.clone(),
                token: token.clone(),
                ..LlmChoice::default()
            };
            let (llm, warning) = registry.llm(&llm, "agent", false);
            assert_eq!(warning, None, "the provider is known");
            llm.warm_up();
            llm
        });
        let tts = providers.tts.to_owned();
        let tts = TtsChoice { provider: tts, url, token, ..TtsChoice::default() };
        let (stt, tts) = (registry.stt(&stt), registry.tts(&tts));
        assert_eq!((stt.1, tts.1), (None, None), "the providers are known");
        let events = Arc::clone(measured);
        let sink = Sink::new(move |event| events.on_stt_event(event));
        let mut stream = stt.0.and_then(|stt| stt.open(sink)).expect("a stream");
        stream.start_call();
        let tts = tts
            .0
            .expect("a TTS")
            .open_call(&tts::Request::default())
            .expect("a hosted TTS connects for each call");
        Self {
            stt: stream,
            llm,
            question: None,
            tts,
            speeches: Vec::new(),
            reply: 0,
            is_speaking: false,
            resampled,
            // Resampled before it is sent.
            write_stamp: if providers.stt == REALTIME { stamp::write_levels } else { stamp::write },
            measured: Arc::clone(measured),
        }
    }

    /// Does what is due at a step of the turn.
    fn step(&mut self, step: u64) {
        if step == USER_SPEECH.start {
            add(&self.measured.utterances, 1);
            self.is_speaking = true;
            self.stt.start_speech();
            (0..PRE_ROLL_CHUNKS).for_each(|_| self.push_chunk());
        }
        if self.is_speaking {
            self.push_chunk();
        }
        if step + 1 == USER_SPEECH.end {
            self.is_speaking = false;
            self.stt.end_speech();
        }
        if step == QUESTION {
            self.ask();
        }
        if SEGMENTS.contains(&step) {
            if step == SEGMENTS[0] {
                self.reply += 1;
                self.speeches.clear();
            }
            self.speak();
        }
    }

    fn push_chunk(&mut self) {
        let mut chunk = [1_000; CHUNK_SAMPLES];
        (self.write_stamp)(&mut chunk);
        self.stt.push_audio(&chunk);
    }

    fn ask(&mut self) {
        let Some(llm) = &self.llm else { return };
        add(&self.measured.questions, 1);
        let (measured, reader) = (Arc::clone(&self.measured), AnswerReader::default());
        let sink = Sink::new(move |event| measured.on_llm_event(&event, &reader));
        let question = HistoryItem {
            role: Role::User,
            speaker: None,
            name: None,
            arguments: None,
            text: format!("{:015} is the time.", stamp::now()),
            interrupted: false,
            utterance: None,
            started_at: None,
            ended_at: None,
            in_context: true,
        };
        let request = llm::Request {
            prompt: "You answer questions about a museum.".to_owned(),
            history: vec![Arc::new(question)],
            snippets: Vec::new(),
            tools: Vec::new(),
            model: String::new(),
        };
        self.question = Some(llm.ask(request, sink));
    }

    fn speak(&mut self) {
        add(&self.measured.segments, 1);
        let (measured, reader) = (Arc::clone(&self.measured), SegmentReader::default());
        let sink = if self.resampled {
            let samples = Arc::clone(&self.measured);
            let sink = synthesis_sink(false, false, move |event| {
                if let SynthesisEvent::Samples(pcm) = event {
                    add(&samples.resampled, pcm.len());
                }
            });
            Sink::new(move |event| {
                measured.on_tts_event(&event, &reader);
                sink.send(event);
            })
        } else {
            Sink::new(move |event| measured.on_tts_event(&event, &reader))
        };
        let request = tts::Request {
            // 29 characters and the blank after them, at 15 characters a second.
            text: format!("{:015} and we go on.", stamp::now()),
            reply: self.reply,
            ..tts::Request::default()
        };
        self.speeches.push(self.tts.speak(request, sink).expect("a call that is open"));
    }
}

/// CPU time and clock at a moment.
struct Moment {
    process: Duration,
    /// The thread that plays the engine.
    engine: Duration,
    /// Its calls of the adapters.
    adapters: Duration,
    clock: u64,
}

/// Runs the calls at the servers of `url`, and prints the figures. With `resampled`, the speech is
/// resampled as in the engine.
pub(crate) fn run(cpu: usize, url: &str, providers: &Providers, resampled: bool) {
    crate::pin_to(cpu);
    // As the server's.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let client = egress::Client::new(egress::Policy { allow_private: true }).expect("a client");
    let registry = Registry::new(Config::default(), client, runtime.handle().clone());
    let measured = Arc::new(Measured::default());
    let mut calls: Vec<Call> = Vec::new();
    let mut adapters = Duration::ZERO;
    let moment = |adapters| Moment {
        process: ProcessTime::now().as_duration(),
        engine: ThreadTime::now().as_duration(),
        adapters,
        clock: stamp::now(),
    };
    let (begin, mut first) = (Instant::now(), None);
    for step in 0..WARM_UP_STEPS + MEASURED_STEPS {
        if step == WARM_UP_STEPS {
            first = Some(moment(adapters));
        }
        if step % CALL_INTERVAL == 0 && (calls.len() as u64) < CALL_COUNT {
            calls.push(Call::open(&registry, url, providers, resampled, &measured));
        }
        for (n, call) in (0_u32..).zip(&mut calls) {
            let due = begin + STEP * step as u32 + STEP * n / CALL_COUNT as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let step_of_call = step - CALL_INTERVAL * u64::from(n);
            let start = ThreadTime::now();
            call.step(step_of_call % TURN_STEPS);
            adapters += start.elapsed();
        }
    }
    let (first, last) = (first.expect("a moment"), moment(adapters));
    print_figures(&measured, &first, &last);
    drop(calls);
    runtime.shutdown_timeout(Duration::from_secs(2));
}

fn print_figures(measured: &Measured, first: &Moment, last: &Moment) {
    let seconds = (last.clock - first.clock) as f64 / 1e9;
    let per_call_second = |time: Duration| time.as_secs_f64() * 1e3 / (CALL_COUNT as f64 * seconds);
    let engine = last.engine - first.engine;
    let adapters = last.adapters - first.adapters;
    let tasks = (last.process - first.process).saturating_sub(engine);
    let figures = json!({
        "calls": CALL_COUNT,
        "seconds": seconds,
        "from": first.clock,
        "to": last.clock,
        "cpu_ms_per_call_second": {
            "tasks": per_call_second(tasks),
            "media": per_call_second(adapters),
            "sum": per_call_second(tasks + adapters),
        },
        "ms": measured.latencies(first.clock, last.clock),
        "counts": measured.counts(),
    });
    println!("{figures}");
}
