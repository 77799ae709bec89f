//! A random environment for one conversation: a user who speaks, providers that answer, fail or are
//! late, and a playout. All choices come from one source, a seed or a fuzzer's bytes, which
//! reproduces a broken law.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use conversation::conversation::Conversation;
use conversation::event::{Event, Stage};
use conversation::input::{
    Command, CommandId, Epoch, GenerationId, Input, LlmEvent, PlayoutEvent, SegmentId,
    SpeechSegmentId, ToolCallId, TtsEvent, TurnHint,
};
use conversation::output::Output;
use conversation::providers::{ProviderUsage, UsageAmounts};
use conversation::spec::{Greeting, Phrasing, Spec, ToolSpec, VadTiming};
use conversation::time::{Position, Time};

/// The source of choices: the bytes first, then SplitMix64, which is small and the same on every
/// machine.
#[derive(Clone)]
pub(crate) struct Random {
    bytes: VecDeque<u8>,
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { bytes: VecDeque::new(), state: seed }
    }

    /// Takes choices from `bytes`, one or two bytes for each.
    #[allow(dead_code)] // not every test that includes this file uses it
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self { bytes: bytes.iter().copied().collect(), state: bytes.len() as u64 }
    }

    /// An independent source of choices.
    pub(crate) fn fork(&self) -> Self {
        Self::new(self.state ^ 0x5eed)
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        let Some(first) = self.bytes.pop_front() else { return self.next() % n };
        let second = if n > 256 { self.bytes.pop_front().unwrap_or(0) } else { 0 };
        (u64::from(first) | u64::from(second) << 8) % n
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize].clone()
    }

    /// µs in steps of 10 ms, so that times often coincide.
    fn grid_micros(&mut self, low: u64, high: u64) -> u64 {
        (low + self.below((high - low) / 10_000 + 1) * 10_000).min(high)
    }

    fn grid_duration(&mut self, low: f64, high: f64) -> Duration {
        Duration::from_micros(self.grid_micros((low * 1e6) as u64, (high * 1e6) as u64))
    }
}

const USER_WORDS: &[&str] = &[
    "tell", "me", "about", "the", "price", "of", "stop", "okay", "yes", "no", "please", "story",
    "wait",
];
const REPLIES: &[&str] = &[
    "Sure. [glad]Here is a long story for you, it goes on and on. The end.",
    "[warm]Yes.",
    "The price is twelve dollars and fifty cents, which is 3.5 percent less than last year.",
    "I am afraid I do not know that. [curious]Ask[nod] me something else!",
];

/// A random, valid specification.
pub(crate) fn random_spec(random: &mut Random) -> Spec {
    let min = random.grid_duration(0.0, 1.0);
    let message = |random: &mut Random, text: &str| random.chance(50).then(|| text.to_owned());
    Spec {
        min_endpointing_delay: min,
        max_endpointing_delay: min + random.grid_duration(0.0, 3.0),
        turn_threshold: 0.5,
        turn_model: random.chance(40),
        transcript_timeout: random.chance(70).then(|| random.grid_duration(0.2, 2.0)),
        min_interruption_duration: random.grid_duration(0.0, 0.8),
        min_interruption_words: random.pick(&[0, 0, 0, 1, 2, 3]),
        false_interruption_timeout: random.chance(80).then(|| random.grid_duration(0.2, 2.0)),
        allow_interruptions: random.chance(85),
        backchannels: random.chance(50),
        preemptive_generation: random.chance(60),
        preemptive_tts: random.chance(30),
        echo_warmup: if random.chance(30) {
            random.grid_duration(0.0, 3.0)
        } else {
            Duration::ZERO
        },
        idle_timeout: random.chance(40).then(|| random.grid_duration(1.0, 10.0)),
        idle_end_after: random.chance(60).then(|| random.below(4) as u32),
        max_tool_steps: random.below(4) as u32,
        stop_words: Vec::new(),
        min_consecutive_speech_delay: if random.chance(30) {
            random.grid_duration(0.0, 1.0)
        } else {
            Duration::ZERO
        },
        max_call_duration: random.chance(30).then(|| random.grid_duration(5.0, 60.0)),
        call_warning_before: random.grid_duration(0.0, 10.0),
        greeting: random.chance(40).then(|| Greeting {
            text: "[warm]Hello there.".into(),
            delay: random.grid_duration(0.0, 1.0),
        }),
        recording_message: random.chance(30).then(|| Greeting {
            text: "This call is recorded.".into(),
            delay: random.grid_duration(0.0, 1.0),
        }),
        idle_messages: if random.chance(50) {
            vec!["Are you there?".into(), "Still with me?".into()]
        } else {
            Vec::new()
        },
        warning_message: message(random, "We must end soon."),
        exit_message: message(random, "Goodbye[nod] now."),
        error_message: message(random, "I'm sorry, something went wrong."),
        phrasing: random.pick(&[Phrasing::Stream, Phrasing::Stream, Phrasing::Flushed]),
        fallback_llm: random.chance(30),
        fallback_tts: random.chance(30),
        vad: VadTiming {
            min_speech_duration: Duration::from_millis(50),
            min_silence_duration: Duration::from_millis(250),
        },
        participation: None,
        user_id: "user".into(),
        tools: vec![
            ToolSpec { name: "plain".into(), ..ToolSpec::default() },
            ToolSpec {
                name: "chatty".into(),
                on_start: Some("One moment.".into()),
                on_delay: Some("Still looking.".into()),
                delay: random.grid_duration(0.2, 2.0),
                on_success: Some("Here it is.".into()),
                on_error: Some("That failed.".into()),
                ..ToolSpec::default()
            },
        ],
        record_words: random.chance(50),
    }
}

struct Segment {
    epoch: Epoch,
    length_micros: u64,
    ready: bool,
    ended: bool,
    play_allowed: bool,
}

/// Inputs and outputs in order, with their times.
#[derive(Clone, Debug)]
pub(crate) enum LogEntry {
    Input(Time, Input),
    Output(Time, Output),
    /// All outputs were drained: the current time and the next deadline.
    Drained(Time, Option<Time>),
}

pub(crate) struct Harness {
    pub(crate) conversation: Conversation,
    pub(crate) random: Random,
    pub(crate) log: Vec<LogEntry>,
    pub(crate) now: u64,
    pub(crate) ended: bool,
    scheduled: BTreeMap<(u64, u64), Input>,
    next_order: u64,
    segments: BTreeMap<SegmentId, Segment>,
    playout_queue: VecDeque<SegmentId>,
    playing_segment: Option<SegmentId>,
    /// When playout of the current segment (re)started, and the position at that time, in µs.
    playing_since: (u64, u64),
    held: bool,
    cancelled_generations: BTreeSet<GenerationId>,
    immediate_inputs: VecDeque<Input>,
    is_draining: bool,
    speech_segments: u32,
    command_count: u32,
}

impl Harness {
    pub(crate) fn new(mut random: Random) -> Self {
        let spec = random_spec(&mut random);
        let mut harness = Self {
            conversation: Conversation::new(spec),
            random,
            log: Vec::new(),
            now: 0,
            ended: false,
            scheduled: BTreeMap::new(),
            next_order: 0,
            segments: BTreeMap::new(),
            playout_queue: VecDeque::new(),
            playing_segment: None,
            playing_since: (0, 0),
            held: false,
            cancelled_generations: BTreeSet::new(),
            immediate_inputs: VecDeque::new(),
            is_draining: false,
            speech_segments: 0,
            command_count: 0,
        };
        harness.schedule(0, Input::Start);
        harness
    }

    fn schedule(&mut self, at: u64, input: Input) {
        self.next_order += 1;
        self.scheduled.insert((at.max(self.now), self.next_order), input);
    }

    /// A random user over about `seconds`: some utterances, noises, commands and invalid inputs.
    pub(crate) fn schedule_script(&mut self, seconds: u64) {
        let mut at = self.random.grid_micros(100_000, 2_000_000);
        while at < seconds * 1_000_000 {
            let length = self.random.grid_micros(50_000, 2_500_000);
            let end = at + length;
            self.schedule(
                at + 50_000.min(length),
                Input::SpeechStarted { onset: Time::from_micros(at) },
            );
            for until in (at + 50_000..=end).step_by(64_000) {
                self.schedule(
                    until + 32_000,
                    Input::SpeechContinued { until: Time::from_micros(until) },
                );
            }
            self.schedule(end + 250_000, Input::SpeechStopped { end: Time::from_micros(end) });
            if self.random.chance(75) {
                let n = 1 + self.random.below(5);
                let words: Vec<&str> = (0..n).map(|_| self.random.pick(USER_WORDS)).collect();
                let delay = self.random.grid_micros(0, 1_500_000);
                if self.random.chance(60) {
                    let text = words[..words.len().min(2)].join(" ");
                    let at = at + self.random.grid_micros(0, length + delay);
                    self.schedule(
                        at,
                        Input::Transcript {
                            text,
                            is_final: false,
                            trailing_interim: String::new(),
                        },
                    );
                }
                self.schedule(
                    end + delay,
                    Input::Transcript {
                        text: words.join(" "),
                        is_final: true,
                        trailing_interim: String::new(),
                    },
                );
            }
            at = end + self.random.grid_micros(300_000, 4_000_000);
        }
        for _ in 0..self.random.below(4) {
            let at = self.random.grid_micros(0, seconds * 1_000_000);
            let command = match self.random.below(12) {
                0..=2 => Command::Interrupt,
                3..=5 => Command::Say {
                    text: "Listen to this [pause 0.5] please.".into(),
                    interrupt: self.random.chance(50),
                    allow_interruptions: self.random.chance(60),
                    add_to_context: self.random.chance(50),
                    expression: None,
                },
                6..=8 => Command::Respond { text: "what is the time".into() },
                9 => Command::Context {
                    text: "The user is in a hurry.".into(),
                    overwrite: self.random.chance(50),
                },
                10 => Command::VisitorContext {
                    text: "Page three is open.".into(),
                    overwrite: self.random.chance(50),
                },
                _ if self.random.chance(50) => Command::End,
                _ => Command::Leave,
            };
            self.command_count += 1;
            let id = CommandId(self.command_count);
            self.schedule(at, Input::Command { id, command });
        }
        for _ in 0..self.random.below(3) {
            let at = self.random.grid_micros(0, seconds * 1_000_000);
            let nonsense = match self.random.below(8) {
                0 => Input::Llm {
                    generation: GenerationId { epoch: Epoch(77), index: 3 },
                    event: LlmEvent::Text("ghost".into()),
                },
                1 => Input::Tts { segment: SegmentId(9999), event: TtsEvent::FirstAudio },
                2 => Input::Playout { segment: SegmentId(9999), event: PlayoutEvent::Started },
                3 => Input::ToolResult { call: ToolCallId(9999), result: Ok("ghost".into()) },
                4 => Input::TurnProbability {
                    speech_segment: SpeechSegmentId(99),
                    probability: f32::NAN,
                },
                5 => Input::Transcript {
                    text: " ".into(),
                    is_final: true,
                    trailing_interim: String::new(),
                },
                6 => Input::SpeechStopped { end: Time::from_seconds(1e6) },
                _ => Input::StageFailed { stage: Stage::Stt, reason: "broken".into() },
            };
            self.schedule(at, nonsense);
        }
        // A source of its own, so that the other choices do not change.
        let mut guard = self.random.fork();
        for _ in 0..guard.below(8).saturating_sub(5) {
            let at = guard.grid_micros(0, seconds * 1_000_000);
            self.schedule(
                at,
                Input::GuardrailTriggered { response: "I cannot talk about that.".into() },
            );
        }
        let mut provider = guard.fork();
        for _ in 0..provider.below(4) {
            let at = provider.grid_micros(0, seconds * 1_000_000);
            let usage = || ProviderUsage {
                kind: Stage::Llm,
                provider: "vendor".into(),
                amounts: UsageAmounts { requests: 1, ..UsageAmounts::default() },
            };
            let input = match provider.below(6) {
                0 => Input::TurnHint(TurnHint::EagerEnd),
                1 => Input::TurnHint(TurnHint::Resumed),
                2 => Input::TurnHint(TurnHint::End),
                3 => Input::SttProvider("vendor".into()),
                4 => Input::Tts { segment: SegmentId(0), event: TtsEvent::Provider("b".into()) },
                _ => Input::ExternalEvent(Event::ProviderUsage(usage())),
            };
            self.schedule(at, input);
        }
    }

    fn position_micros(&self) -> u64 {
        if self.held {
            self.playing_since.1
        } else {
            self.playing_since.1 + (self.now - self.playing_since.0)
        }
    }

    fn playout_end(&self) -> Option<u64> {
        let segment = self.segments.get(&self.playing_segment?)?;
        (!self.held && segment.ended).then(|| {
            self.playing_since.0 + segment.length_micros.saturating_sub(self.playing_since.1)
        })
    }

    /// One step of the environment. False if nothing happens before `until` µs.
    pub(crate) fn step(&mut self, until: u64) -> bool {
        if self.ended {
            return false;
        }
        let timeout = self.conversation.poll_timeout().map(|(t, _)| t.as_micros());
        let input = self.scheduled.keys().next().map(|k| k.0);
        let finish = self.playout_end();
        let Some(at) = [timeout, input, finish].into_iter().flatten().min().filter(|t| *t <= until)
        else {
            return false;
        };
        self.now = self.now.max(at);
        if finish == Some(at) {
            let segment = self.playing_segment.take().unwrap();
            let length = self.segments[&segment].length_micros;
            self.segments.remove(&segment);
            self.send_input(Input::Playout {
                segment,
                event: PlayoutEvent::Finished(position_from_micros(length)),
            });
            self.start_next_segment();
        } else if input == Some(at) {
            let (_, input) = self.scheduled.pop_first().unwrap();
            if self.is_stale(&input) {
                return true;
            }
            match &input {
                Input::Tts { segment, event } => {
                    if let Some(p) = self.segments.get_mut(segment) {
                        match event {
                            TtsEvent::FirstAudio => p.ready = true,
                            TtsEvent::End { .. } => p.ended = true,
                            TtsEvent::Failed(_) => {
                                self.segments.remove(segment);
                            }
                            TtsEvent::Provider(_) | TtsEvent::WordTimestamps(_) => {}
                        }
                    }
                }
                Input::Playout { segment, event: PlayoutEvent::Progress(_) }
                    if self.playing_segment != Some(*segment) || self.held =>
                {
                    return true;
                }
                Input::SpeechStopped { .. } => self.speech_segments += 1,
                _ => {}
            }
            let input = match input {
                Input::Playout { segment, event: PlayoutEvent::Progress(_) } => {
                    let limit = self.segments[&segment].length_micros;
                    Input::Playout {
                        segment,
                        event: PlayoutEvent::Progress(position_from_micros(
                            self.position_micros().min(limit),
                        )),
                    }
                }
                other => other,
            };
            self.send_input(input);
            self.start_next_segment();
        } else {
            self.send_input(Input::Tick);
        }
        true
    }

    /// Most events of cancelled requests never arrive. A few do, and must have no effect.
    fn is_stale(&mut self, input: &Input) -> bool {
        match input {
            Input::Llm { generation, .. } => {
                self.cancelled_generations.contains(generation) && self.random.chance(90)
            }
            Input::Tts { segment, .. } => {
                !self.segments.contains_key(segment) && self.random.chance(90)
            }
            _ => false,
        }
    }

    /// One input and everything that follows from it at this time. Outputs are drained before the
    /// next input.
    fn send_input(&mut self, input: Input) {
        self.immediate_inputs.push_back(input);
        if self.is_draining {
            return;
        }
        self.is_draining = true;
        let now = Time::from_micros(self.now);
        while let Some(input) = self.immediate_inputs.pop_front() {
            self.log.push(LogEntry::Input(now, input.clone()));
            self.conversation.handle(input, now);
            let first = self.log.len();
            while let Some(output) = self.conversation.poll() {
                self.log.push(LogEntry::Output(now, output));
            }
            let next = self.conversation.poll_timeout().map(|(at, _)| at);
            self.log.push(LogEntry::Drained(now, next));
            for i in first..self.log.len() {
                let LogEntry::Output(_, output) = self.log[i].clone() else { continue };
                self.handle_output(output);
            }
        }
        self.is_draining = false;
    }

    fn start_next_segment(&mut self) {
        while self.playing_segment.is_none() && !self.held {
            let Some(&next) = self.playout_queue.front() else { return };
            match self.segments.get(&next) {
                None => {
                    self.playout_queue.pop_front();
                }
                Some(segment) if segment.ready && segment.play_allowed => {
                    self.playout_queue.pop_front();
                    self.playing_segment = Some(next);
                    self.playing_since = (self.now, 0);
                    self.send_input(Input::Playout { segment: next, event: PlayoutEvent::Started });
                    for i in 1..50 {
                        self.schedule(
                            self.now + i * 100_000,
                            Input::Playout {
                                segment: next,
                                event: PlayoutEvent::Progress(Position::ZERO),
                            },
                        );
                    }
                }
                Some(_) => return,
            }
        }
    }

    fn handle_output(&mut self, output: Output) {
        match output {
            Output::RequestLlm(request) => {
                let generation = request.generation;
                let mut at = self.now + self.random.grid_micros(0, 800_000);
                if self.random.chance(8) {
                    self.schedule(
                        at,
                        Input::Llm { generation, event: LlmEvent::Failed("scripted".into()) },
                    );
                    return;
                }
                if self.random.chance(4) {
                    return; // never answers: the conversation's own timeout must apply
                }
                self.schedule(at, Input::Llm { generation, event: LlmEvent::Started });
                let text = self.random.pick(REPLIES);
                let silent = request.tools_allowed && self.random.chance(15);
                for word in text.split_inclusive(' ') {
                    if silent {
                        break;
                    }
                    at += self.random.below(4) * 10_000;
                    self.schedule(
                        at,
                        Input::Llm { generation, event: LlmEvent::Text(word.into()) },
                    );
                    if self.random.chance(2) {
                        self.schedule(
                            at,
                            Input::Llm { generation, event: LlmEvent::Failed("cut".into()) },
                        );
                        return;
                    }
                }
                if request.tools_allowed && (silent || self.random.chance(25)) {
                    for i in 0..1 + self.random.below(2) {
                        let name =
                            self.random.pick(&["plain", "chatty", "chatty", "nobody"]).to_owned();
                        let event = LlmEvent::ToolCall {
                            id: format!("call_{i}"),
                            name,
                            arguments: serde_json::json!({"a": i}),
                        };
                        self.schedule(at, Input::Llm { generation, event });
                    }
                } else if self.random.chance(4) {
                    self.schedule(at, Input::Llm { generation, event: LlmEvent::Guardrail });
                }
                self.schedule(
                    at,
                    Input::Llm {
                        generation,
                        event: LlmEvent::End { prompt_tokens: 9, completion_tokens: 9 },
                    },
                );
            }
            Output::CancelLlm(generation) => {
                self.cancelled_generations.insert(generation);
            }
            Output::Synthesize(request) => {
                let segment = request.segment;
                let length = 100_000 + request.text.len() as u64 * 50_000;
                self.segments.insert(
                    segment,
                    Segment {
                        epoch: request.epoch,
                        length_micros: length,
                        ready: false,
                        ended: false,
                        play_allowed: false,
                    },
                );
                let at = self.now + self.random.grid_micros(0, 400_000);
                if self.random.chance(4) {
                    self.schedule(
                        at,
                        Input::Tts { segment, event: TtsEvent::Failed("scripted".into()) },
                    );
                    return;
                }
                if self.random.chance(2) {
                    return;
                }
                self.schedule(at, Input::Tts { segment, event: TtsEvent::FirstAudio });
                if self.random.chance(40) {
                    let words: Vec<&str> = request.text.split_whitespace().collect();
                    let each = length / words.len().max(1) as u64;
                    let words = words
                        .iter()
                        .enumerate()
                        .map(|(i, w)| {
                            ((*w).to_owned(), position_from_micros(each * (i as u64 + 1)))
                        })
                        .collect();
                    self.schedule(
                        at,
                        Input::Tts { segment, event: TtsEvent::WordTimestamps(words) },
                    );
                }
                let last = at + self.random.grid_micros(0, 50_000);
                self.schedule(
                    last,
                    Input::Tts {
                        segment,
                        event: TtsEvent::End { duration: position_from_micros(length) },
                    },
                );
            }
            Output::Play(segment) => {
                if let Some(p) = self.segments.get_mut(&segment) {
                    p.play_allowed = true;
                }
                self.playout_queue.push_back(segment);
                self.schedule(self.now, Input::Tick);
            }
            Output::Hold => {
                if !self.held {
                    self.playing_since = (self.now, self.position_micros());
                    self.held = true;
                }
                if let Some(segment) = self.playing_segment {
                    let at = position_from_micros(
                        self.playing_since.1.min(self.segments[&segment].length_micros),
                    );
                    self.send_input(Input::Playout { segment, event: PlayoutEvent::Progress(at) });
                }
            }
            Output::Resume => {
                self.held = false;
                self.playing_since.0 = self.now;
                self.schedule(self.now, Input::Tick);
            }
            Output::Cancel(epoch) => {
                if let Some(segment) = self.playing_segment
                    && self.segments.get(&segment).is_some_and(|p| p.epoch == epoch)
                {
                    self.playing_segment = None;
                    self.held = false;
                }
                self.segments.retain(|_, p| p.epoch != epoch);
                if self.playing_segment.is_none() {
                    self.held = false;
                }
            }
            Output::Discard(segment) => {
                if self.playing_segment != Some(segment) {
                    self.segments.remove(&segment);
                }
            }
            Output::RunTool { call, .. } => {
                let at = self.now + self.random.grid_micros(0, 6_000_000);
                let result =
                    if self.random.chance(80) { Ok("Sunny".into()) } else { Err("down".into()) };
                self.schedule(at, Input::ToolResult { call, result });
            }
            Output::RequestTurnProbability(speech_segment) => {
                if self.random.chance(80) {
                    let p = self.random.below(100) as f32 / 100.0;
                    let at = self.now + self.random.grid_micros(0, 200_000);
                    self.schedule(at, Input::TurnProbability { speech_segment, probability: p });
                }
            }
            Output::End(_) => self.ended = true,
            Output::Emit(_)
            | Output::Explain(_)
            | Output::Duck
            | Output::Unduck
            | Output::CommandResult { .. } => {}
        }
    }
}

fn position_from_micros(us: u64) -> Position {
    Position::from_samples(us * 48 / 1000)
}
