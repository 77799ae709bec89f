//! A media thread in virtual time, with the real VAD and scripted models. Its calls never end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use benches::instructions::under_valgrind;
use benches::{cpu, recording};
use conversation::event::EventEnvelope;
use conversation::id::ConversationId;
use conversation::settings::Settings;
use engine::clock;
use engine::clock::TICK_INTERVAL;
use engine::context::{EngineContext, PresenceGuard, Slot};
use engine::hear::vad::{BatchedVad, NetworkState, Vad, WINDOW};
use engine::media_thread::{Inbox, MediaThread};
use engine::messages::{
    CallId, CallModels, CallSetup, LoopbackCall, Message, StageEvent, ThreadResources,
};
use engine::transport::loopback::{self, LoopbackClient, LoopbackOutput};
use engine::transport::webrtc::Certificate;
use engine_api::{CallConfig, EventSink};
use models::{Error, Handle, Sink, llm, stt, tts};

/// Interval of the user's turns, in frames of 20 ms: 7.6 s.
pub(crate) const TURN_FRAMES: usize = 380;
/// The calls start staggered over this many ticks, so that their frames, and their windows of 32
/// ms, do not all fall on the same tick.
pub(crate) const STAGGER_TICKS: usize = 16;
/// Samples of a user's audio frame: 20 ms at 16 kHz.
const FRAME_SAMPLES_16K: usize = 320;
/// Samples of a .1 s chunk of the agent's audio, at 48 kHz.
const CHUNK_SAMPLES: usize = 4_800;
/// Seconds of speech per character, as in the load generator's workload; the replies take half of
/// the time of a turn.
const SECONDS_PER_CHARACTER: f64 = 0.06;
const ANSWER: &str = "Yes, it opens at nine today. You may bring a friend with you.";
/// Every fourth reply is so long that the user's next turn interrupts it.
const LONG_ANSWER: &str = "Sure, I can help with that. Let me walk you through each of the steps \
    in order, so that nothing gets lost on the way.";

/// A task that is due at an instant of virtual time.
type ScheduledTask = Box<dyn FnOnce() + Send>;

/// The models' clock and their scheduled tasks.
#[derive(Clone)]
struct Scheduler(Arc<Mutex<SchedulerState>>);

struct SchedulerState {
    now: Instant,
    /// Number of tasks so far: tasks that are due at the same instant run in the order of
    /// scheduling.
    task_count: u64,
    tasks: BTreeMap<(Instant, u64), ScheduledTask>,
}

impl Scheduler {
    fn starting_at(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(SchedulerState { now, task_count: 0, tasks: BTreeMap::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, SchedulerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn schedule_after(&self, delay: Duration, task: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        let key = (state.now + delay, state.task_count);
        state.task_count += 1;
        state.tasks.insert(key, Box::new(task));
    }

    fn next_due(&self) -> Option<Instant> {
        self.lock().tasks.first_key_value().map(|((at, _), _)| *at)
    }

    fn advance(&self, now: Instant) {
        loop {
            let task = {
                let mut state = self.lock();
                state.now = now;
                match state.tasks.first_entry() {
                    Some(entry) if entry.key().0 <= now => entry.remove(),
                    _ => return,
                }
            };
            task();
        }
    }
}

/// STT, LLM and TTS of every call, as fast as those of the load generator's workload.
struct ScriptedModels {
    scheduler: Scheduler,
    /// .1 s of a tone at 48 kHz.
    tone: Vec<i16>,
    llm_requests: Mutex<u64>,
}

struct ScriptedSttStream(Scheduler, Sink<stt::Event>);

impl stt::SttStream for ScriptedSttStream {
    fn start_speech(&mut self) {
        let sink = self.1.clone();
        self.0.schedule_after(Duration::from_millis(150), move || {
            sink.send(stt::Event::Interim("Could you".into()))
        });
    }

    fn push_audio(&mut self, _: &[i16]) {}

    fn end_speech(&mut self) {
        let sink = self.1.clone();
        let last = "Could you tell me about the plan for today.";
        self.0.schedule_after(Duration::from_millis(1), move || {
            sink.send(stt::Event::Final(last.into()))
        });
    }
}

impl llm::Llm for ScriptedModels {
    fn ask(&self, _: llm::Request, sink: Sink<llm::Event>) -> Handle {
        let number = {
            let mut request_count =
                self.llm_requests.lock().unwrap_or_else(PoisonError::into_inner);
            *request_count += 1;
            *request_count
        };
        let mut at = Duration::from_millis(200);
        let answer = if number.is_multiple_of(4) { LONG_ANSWER } else { ANSWER };
        for word in answer.split_inclusive(' ') {
            let sink = sink.clone();
            self.scheduler.schedule_after(at, move || sink.send(llm::Event::Text(word.to_owned())));
            at += Duration::from_millis(20);
        }
        self.scheduler.schedule_after(at, move || {
            sink.send(llm::Event::End {
                prompt_tokens: 200,
                cached_tokens: 0,
                completion_tokens: 20,
            })
        });
        Handle::noop()
    }
}

impl tts::Tts for ScriptedModels {
    fn speak(&self, request: tts::Request, sink: Sink<tts::Event>) -> Result<Handle, Error> {
        let samples =
            (request.text.chars().count() as f64 * SECONDS_PER_CHARACTER * 48_000.0) as usize;
        let mut at = Duration::from_millis(100);
        for from in (0..samples).step_by(CHUNK_SAMPLES) {
            let (pcm, sink) =
                (self.tone[..CHUNK_SAMPLES.min(samples - from)].to_vec(), sink.clone());
            self.scheduler.schedule_after(at, move || {
                sink.send(tts::Event::Audio { pcm, sample_rate: 48_000 })
            });
            at += Duration::from_millis(20);
        }
        self.scheduler.schedule_after(at, move || sink.send(tts::Event::End));
        Ok(Handle::noop())
    }
}

/// Discards all events.
struct NullEventSink;

impl EventSink for NullEventSink {
    fn record(&self, _: ConversationId, _: EventEnvelope) {}

    fn call_panicked(&self, _: ConversationId) {}
}

/// Reports every window with sound as speech. It replaces the network when instructions are
/// counted, because the network would take half an hour.
struct EnergyVad;

impl Vad for EnergyVad {
    fn infer(
        &mut self,
        _: &mut [&mut NetworkState],
        windows: &[&[f32; WINDOW]],
        probabilities: &mut [f32],
    ) {
        for (probability, window) in probabilities.iter_mut().zip(windows) {
            *probability = if window.iter().any(|sample| sample.abs() > 0.02) { 0.9 } else { 0.05 };
        }
    }
}

/// A user who speaks the utterances of the recording in order, one per turn, and receives audio.
struct SimulatedUser {
    client: LoopbackClient,
    /// Number of the next frame, counted from the start of the first utterance's turn.
    next_frame: usize,
    start_tick: usize,
}

/// Number of frames in which agents spoke, and of all frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpeechShare {
    speech_frames: u64,
    total_frames: u64,
}

impl SpeechShare {
    /// Share of the time in which an agent spoke; `None` before 5000 frames.
    pub(crate) fn share(self) -> Option<f64> {
        (self.total_frames >= 5_000).then(|| self.speech_frames as f64 / self.total_frames as f64)
    }
}

/// A media thread and its calls.
pub(crate) struct Harness {
    media_thread: MediaThread,
    inbox: Inbox,
    scheduler: Scheduler,
    models: Arc<ScriptedModels>,
    runtime: tokio::runtime::Runtime,
    recording: Vec<Vec<i16>>,
    users: Vec<SimulatedUser>,
    now: Instant,
    /// Number of ticks so far.
    ticks: usize,
    /// Speech of the agents in these ticks.
    pub(crate) speech_share: SpeechShare,
}

impl Harness {
    /// A thread with this number of calls, each at a different position of its turn. All calls have
    /// run for one turn.
    pub(crate) fn with_calls(calls: usize) -> Self {
        let now = clock::now();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let client = egress::Client::new(egress::Policy { allow_private: true }).expect("a client");
        let context = EngineContext {
            runtime: runtime.handle().clone(),
            http_client: client,
            event_sink: Arc::new(NullEventSink),
            trace: None,
            recorder: None,
            timeouts: engine::Timeouts::default(),
            latencies: Arc::default(),
            max_load: 0.0,
            max_questions_per_second: 0.0,
        };
        let (media_thread, inbox, _) = MediaThread::without_network(Arc::new(context), now);
        let certificate = Arc::new(Certificate::generate().expect("a certificate"));
        let vad: Box<dyn Vad> = if under_valgrind() {
            Box::new(EnergyVad)
        } else {
            Box::new(BatchedVad::new(super::hear::vad_network()))
        };
        assert!(
            inbox
                .requests
                .send(Message::Ready(Box::new(ThreadResources { certificate, vad })))
                .is_ok()
        );
        let scheduler = Scheduler::starting_at(now);
        let tone =
            (0..CHUNK_SAMPLES).map(|n| ((n as f64 * 0.0288).sin() * 8_000.0) as i16).collect();
        let models = Arc::new(ScriptedModels {
            scheduler: scheduler.clone(),
            tone,
            llm_requests: Mutex::default(),
        });
        let recording = recording::utterances();
        assert!(
            recording.iter().all(|utterance| utterance.len() < TURN_FRAMES * FRAME_SAMPLES_16K)
        );
        let mut harness = Self {
            media_thread,
            inbox,
            scheduler,
            models,
            runtime,
            recording,
            users: Vec::new(),
            now,
            ticks: 0,
            speech_share: SpeechShare::default(),
        };
        for first in 0..STAGGER_TICKS.min(calls) {
            for number in (first..calls).step_by(STAGGER_TICKS) {
                harness.start_call(number, number * TURN_FRAMES / calls);
            }
            harness.tick();
        }
        for _ in 0..2 * TURN_FRAMES {
            harness.tick();
        }
        assert_eq!(harness.media_thread.call_count(), calls);
        harness.speech_share = SpeechShare::default();
        harness
    }

    /// Starts a call whose user is at this frame of a turn.
    fn start_call(&mut self, number: usize, frame: usize) {
        let key = CallId(number as u64);
        let settings = Settings {
            echo_warmup: 0.0,
            idle_timeout: None,
            max_call_duration: None,
            ..Settings::product_defaults()
        };
        let spec = settings.to_spec().expect("the defaults are valid");
        let call = CallConfig::minimal(ConversationId(number as u128), spec);
        let sink = self.inbox.stage_event_sink(key);
        let stt_stream = ScriptedSttStream(
            self.scheduler.clone(),
            Sink::new(move |event| sink.send(StageEvent::Stt(event))),
        );
        let models = CallModels {
            stt: Box::new(stt_stream),
            turn_model: None,
            llm: Arc::clone(&self.models) as _,
            llm_fallback: None,
            tts: Arc::clone(&self.models) as _,
            tts_fallback: None,
            warnings: Vec::new(),
        };
        let setup = CallSetup {
            id: key,
            config: Arc::new(call),
            models,
            poses: None,
            recording_error: None,
            slot: Slot::for_test(),
        };
        let (server_end, client_end) = loopback::pair();
        let setup = Box::new(setup);
        let message = LoopbackCall {
            setup,
            early_commands: Vec::new(),
            server: server_end,
            presence: PresenceGuard::default(),
        };
        assert!(self.inbox.requests.send(Message::Loopback(Box::new(message))).is_ok());
        let mut user =
            SimulatedUser { client: client_end, next_frame: frame, start_tick: self.ticks };
        // Sent ahead, so that the transport never waits for a frame.
        user.send_frame(&self.recording);
        self.users.push(user);
    }

    /// Runs the next 10 ms: the thread's tick, and every earlier wake-up since the previous one.
    /// Returns the CPU time of the thread's own work; users and models are not included.
    pub(crate) fn tick(&mut self) -> Duration {
        let even = self.ticks % 2;
        for user in self.users.iter_mut().filter(|user| user.start_tick % 2 == even) {
            user.send_frame(&self.recording);
        }
        let (mut taken, end) = (Duration::ZERO, self.now + TICK_INTERVAL);
        loop {
            self.scheduler.advance(self.now);
            taken += self.run_until_idle();
            let next = [self.media_thread.wake_at(), self.scheduler.next_due()]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            self.now = next.max(self.now + Duration::from_micros(1));
        }
        self.now = end;
        self.ticks += 1;
        for output in self.users.iter().flat_map(|user| user.client.drain_outputs()) {
            if let LoopbackOutput::Audio { segment, .. } = output {
                self.speech_share.total_frames += 1;
                self.speech_share.speech_frames += u64::from(segment.is_some());
            }
        }
        taken
    }

    /// Steps the thread until it has nothing left to do at this instant.
    fn run_until_idle(&mut self) -> Duration {
        let mut taken = Duration::ZERO;
        loop {
            taken += cpu::measure(|| self.media_thread.step(self.now));
            // LLM requests run on the net pool.
            self.runtime.block_on(async {
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
            });
            if self.inbox.stage_events.depth() == 0 {
                return taken;
            }
        }
    }
}

impl SimulatedUser {
    fn send_frame(&mut self, recording: &[Vec<i16>]) {
        let utterance = &recording[self.next_frame / TURN_FRAMES % recording.len()];
        let from = self.next_frame % TURN_FRAMES * FRAME_SAMPLES_16K;
        self.next_frame += 1;
        let frame = utterance.get(from..from + FRAME_SAMPLES_16K);
        self.client.send_audio(frame.map_or_else(|| vec![0; FRAME_SAMPLES_16K], <[i16]>::to_vec));
    }
}
