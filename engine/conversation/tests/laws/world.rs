//! A random world around one conversation: a user who speaks, providers that answer, fail and dawdle, a playout that plays.
//! Everything comes from one source, a seed or a fuzzer's bytes, so a broken law is found again by it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use conversation::conversation::Conversation;
use conversation::event::Stage;
use conversation::input::{
    Command, CommandId, Epoch, Input, LlmEvent, PieceId, PlayoutEvent, StepId, StretchId, ToolCallId,
    TtsEvent,
};
use conversation::output::Output;
use conversation::spec::{Greeting, Phrasing, Spec, ToolSpec, Vad};
use conversation::time::{Position, Time};

/// Where choices come from: bytes as long as there are any, then SplitMix64, which is small and the same on every machine.
#[derive(Clone)]
pub(crate) struct Random {
    bytes: VecDeque<u8>,
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { bytes: VecDeque::new(), state: seed }
    }

    /// Choices are read off `bytes`, one or two for each.
    #[allow(dead_code)] // Not every test that has this file wants it.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self { bytes: bytes.iter().copied().collect(), state: bytes.len() as u64 }
    }

    /// A source of choices that has nothing to do with this one.
    pub(crate) fn other(&self) -> Self {
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

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    /// µs on a grid of 10 ms, so that instants often coincide.
    fn grid(&mut self, low: u64, high: u64) -> u64 {
        (low + self.below((high - low) / 10_000 + 1) * 10_000).min(high)
    }

    fn span(&mut self, low: f64, high: f64) -> Duration {
        Duration::from_micros(self.grid((low * 1e6) as u64, (high * 1e6) as u64))
    }
}

const WORDS: &[&str] =
    &["tell", "me", "about", "the", "price", "of", "stop", "okay", "yes", "no", "please", "story", "wait"];
const REPLIES: &[&str] = &[
    "Sure. Here is a long story for you, it goes on and on. The end.",
    "Yes.",
    "The price is twelve dollars and fifty cents, which is 3.5 percent less than last year.",
    "I am afraid I do not know that. Ask me something else!",
];

/// A random, valid specification.
pub(crate) fn spec(r: &mut Random) -> Spec {
    let min = r.span(0.0, 1.0);
    let message = |r: &mut Random, text: &str| r.chance(50).then(|| text.to_owned());
    Spec {
        min_endpointing_delay: min,
        max_endpointing_delay: min + r.span(0.0, 3.0),
        turn_threshold: 0.5,
        turn_model: r.chance(40),
        transcript_timeout: r.chance(70).then(|| r.span(0.2, 2.0)),
        min_interruption_duration: r.span(0.0, 0.8),
        min_interruption_words: r.pick(&[0, 0, 0, 1, 2, 3]),
        false_interruption_timeout: r.chance(80).then(|| r.span(0.2, 2.0)),
        allow_interruptions: r.chance(85),
        backchannels: r.chance(50),
        preemptive_generation: r.chance(60),
        preemptive_tts: r.chance(30),
        echo_warmup: if r.chance(30) { r.span(0.0, 3.0) } else { Duration::ZERO },
        idle_timeout: r.chance(40).then(|| r.span(1.0, 10.0)),
        idle_end_after: r.chance(60).then(|| r.below(4) as u32),
        max_tool_steps: r.below(4) as u32,
        stop_words: Vec::new(),
        min_consecutive_speech_delay: if r.chance(30) { r.span(0.0, 1.0) } else { Duration::ZERO },
        max_call_duration: r.chance(30).then(|| r.span(5.0, 60.0)),
        call_warning_before: r.span(0.0, 10.0),
        greeting: r.chance(40).then(|| Greeting { say: "Hello there.".into(), wait: r.span(0.0, 1.0) }),
        idle_messages: if r.chance(50) {
            vec!["Are you there?".into(), "Still with me?".into()]
        } else {
            Vec::new()
        },
        warning_message: message(r, "We must end soon."),
        exit_message: message(r, "Goodbye now."),
        error_message: message(r, "I'm sorry, something went wrong."),
        phrasing: r.pick(&[Phrasing::Stream, Phrasing::Stream, Phrasing::Flushed]),
        fallback_llm: r.chance(30),
        fallback_tts: r.chance(30),
        vad: Vad { start: Duration::from_millis(50), silence: Duration::from_millis(250) },
        user_id: "user".into(),
        tools: vec![
            ToolSpec { name: "plain".into(), ..ToolSpec::default() },
            ToolSpec {
                name: "chatty".into(),
                on_start: Some("One moment.".into()),
                on_delay: Some("Still looking.".into()),
                delay: r.span(0.2, 2.0),
                on_success: Some("Here it is.".into()),
                on_error: Some("That failed.".into()),
            },
        ],
    }
}

struct Piece {
    epoch: Epoch,
    length: u64,
    ready: bool,
    ended: bool,
    may_sound: bool,
}

/// What was put in and what came out, in order, with its time.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    In(Time, Input),
    Out(Time, Output),
    /// All outputs were drained: now, and the next deadline.
    Drained(Time, Option<Time>),
}

pub(crate) struct World {
    pub(crate) conversation: Conversation,
    pub(crate) random: Random,
    pub(crate) steps: Vec<Step>,
    pub(crate) now: u64,
    pub(crate) ended: bool,
    due: BTreeMap<(u64, u64), Input>,
    count: u64,
    pieces: BTreeMap<PieceId, Piece>,
    playing: VecDeque<PieceId>,
    sounding: Option<PieceId>,
    /// When the sounding piece was (re)started, and its position then, µs.
    since: (u64, u64),
    held: bool,
    cancelled_steps: BTreeSet<StepId>,
    at_once: VecDeque<Input>,
    busy: bool,
    stretches: u32,
    commands: u32,
}

impl World {
    pub(crate) fn new(mut random: Random) -> Self {
        let spec = spec(&mut random);
        let mut world = Self {
            conversation: Conversation::new(spec),
            random,
            steps: Vec::new(),
            now: 0,
            ended: false,
            due: BTreeMap::new(),
            count: 0,
            pieces: BTreeMap::new(),
            playing: VecDeque::new(),
            sounding: None,
            since: (0, 0),
            held: false,
            cancelled_steps: BTreeSet::new(),
            at_once: VecDeque::new(),
            busy: false,
            stretches: 0,
            commands: 0,
        };
        world.later(0, Input::Begin);
        world
    }

    fn later(&mut self, at: u64, input: Input) {
        self.count += 1;
        self.due.insert((at.max(self.now), self.count), input);
    }

    /// A random user: some utterances, some noise, some commands, some nonsense, over about `seconds`.
    pub(crate) fn script(&mut self, seconds: u64) {
        let mut at = self.random.grid(100_000, 2_000_000);
        while at < seconds * 1_000_000 {
            let length = self.random.grid(50_000, 2_500_000);
            let end = at + length;
            self.later(at + 50_000.min(length), Input::SpeechStarted { onset: Time::from_micros(at) });
            for until in (at + 50_000..=end).step_by(64_000) {
                self.later(until + 32_000, Input::SpeechHeard { until: Time::from_micros(until) });
            }
            self.later(end + 250_000, Input::SpeechStopped { end: Time::from_micros(end) });
            if self.random.chance(75) {
                let n = 1 + self.random.below(5);
                let words: Vec<&str> = (0..n).map(|_| self.random.pick(WORDS)).collect();
                let delay = self.random.grid(0, 1_500_000);
                if self.random.chance(60) {
                    let text = words[..words.len().min(2)].join(" ");
                    let at = at + self.random.grid(0, length + delay);
                    self.later(at, Input::Transcript { text, is_final: false, outstanding: String::new() });
                }
                self.later(
                    end + delay,
                    Input::Transcript { text: words.join(" "), is_final: true, outstanding: String::new() },
                );
            }
            at = end + self.random.grid(300_000, 4_000_000);
        }
        for _ in 0..self.random.below(4) {
            let at = self.random.grid(0, seconds * 1_000_000);
            let command = match self.random.below(12) {
                0..=2 => Command::Interrupt,
                3..=5 => Command::Say {
                    text: "Listen to this please.".into(),
                    interrupt: self.random.chance(50),
                    allow_interruptions: self.random.chance(60),
                    add_to_context: self.random.chance(50),
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
            self.commands += 1;
            let id = CommandId(self.commands);
            self.later(at, Input::Command { id, command });
        }
        for _ in 0..self.random.below(3) {
            let at = self.random.grid(0, seconds * 1_000_000);
            let nonsense = match self.random.below(8) {
                0 => Input::Llm {
                    step: StepId { epoch: Epoch(77), step: 3 },
                    event: LlmEvent::Text("ghost".into()),
                },
                1 => Input::Tts { piece: PieceId(9999), event: TtsEvent::Ready },
                2 => Input::Playout { piece: PieceId(9999), event: PlayoutEvent::Started },
                3 => Input::Tool { call: ToolCallId(9999), result: Ok("ghost".into()) },
                4 => Input::TurnProbability { stretch: StretchId(99), p: f32::NAN },
                5 => Input::Transcript { text: " ".into(), is_final: true, outstanding: String::new() },
                6 => Input::SpeechStopped { end: Time::from_seconds(1e6) },
                _ => Input::Failed { stage: Stage::Stt, reason: "broken".into() },
            };
            self.later(at, nonsense);
        }
        // From a source of its own: the other calls stay what they were.
        let mut guard = self.random.other();
        for _ in 0..guard.below(8).saturating_sub(5) {
            let at = guard.grid(0, seconds * 1_000_000);
            self.later(at, Input::Guardrail { say: "I cannot talk about that.".into() });
        }
    }

    fn position(&self) -> u64 {
        if self.held { self.since.1 } else { self.since.1 + (self.now - self.since.0) }
    }

    fn finish_at(&self) -> Option<u64> {
        let piece = self.pieces.get(&self.sounding?)?;
        (!self.held && piece.ended).then(|| self.since.0 + piece.length.saturating_sub(self.since.1))
    }

    /// One step of the world. False when nothing is left to happen before `until` µs.
    pub(crate) fn step(&mut self, until: u64) -> bool {
        if self.ended {
            return false;
        }
        let timeout = self.conversation.poll_timeout().map(|(t, _)| t.as_micros());
        let input = self.due.keys().next().map(|k| k.0);
        let finish = self.finish_at();
        let Some(at) = [timeout, input, finish].into_iter().flatten().min().filter(|t| *t <= until) else {
            return false;
        };
        self.now = self.now.max(at);
        if finish == Some(at) {
            let piece = self.sounding.take().unwrap();
            let length = self.pieces[&piece].length;
            self.pieces.remove(&piece);
            self.put(Input::Playout { piece, event: PlayoutEvent::Finished(micros(length)) });
            self.start_next();
        } else if input == Some(at) {
            let (_, input) = self.due.pop_first().unwrap();
            if self.stale(&input) {
                return true;
            }
            match &input {
                Input::Tts { piece, event } => {
                    if let Some(p) = self.pieces.get_mut(piece) {
                        match event {
                            TtsEvent::Ready => p.ready = true,
                            TtsEvent::End { .. } => p.ended = true,
                            TtsEvent::Failed(_) => {
                                self.pieces.remove(piece);
                            }
                            TtsEvent::Words(_) => {}
                        }
                    }
                }
                Input::Playout { piece, event: PlayoutEvent::Progress(_) }
                    if self.sounding != Some(*piece) || self.held =>
                {
                    return true;
                }
                Input::SpeechStopped { .. } => self.stretches += 1,
                _ => {}
            }
            let input = match input {
                Input::Playout { piece, event: PlayoutEvent::Progress(_) } => {
                    let limit = self.pieces[&piece].length;
                    Input::Playout {
                        piece,
                        event: PlayoutEvent::Progress(micros(self.position().min(limit))),
                    }
                }
                other => other,
            };
            self.put(input);
            self.start_next();
        } else {
            self.put(Input::Tick);
        }
        true
    }

    /// Most news of what was cancelled never arrive; a few do, and must not matter.
    fn stale(&mut self, input: &Input) -> bool {
        match input {
            Input::Llm { step, .. } => self.cancelled_steps.contains(step) && self.random.chance(90),
            Input::Tts { piece, .. } => !self.pieces.contains_key(piece) && self.random.chance(90),
            _ => false,
        }
    }

    /// One input and everything that follows from it at this instant: always drained before the next input.
    fn put(&mut self, input: Input) {
        self.at_once.push_back(input);
        if self.busy {
            return;
        }
        self.busy = true;
        let now = Time::from_micros(self.now);
        while let Some(input) = self.at_once.pop_front() {
            self.steps.push(Step::In(now, input.clone()));
            self.conversation.handle(input, now);
            let first = self.steps.len();
            while let Some(output) = self.conversation.poll() {
                self.steps.push(Step::Out(now, output));
            }
            let next = self.conversation.poll_timeout().map(|(at, _)| at);
            self.steps.push(Step::Drained(now, next));
            for i in first..self.steps.len() {
                let Step::Out(_, output) = self.steps[i].clone() else { continue };
                self.answer(output);
            }
        }
        self.busy = false;
    }

    fn start_next(&mut self) {
        while self.sounding.is_none() && !self.held {
            let Some(&next) = self.playing.front() else { return };
            match self.pieces.get(&next) {
                None => {
                    self.playing.pop_front();
                }
                Some(piece) if piece.ready && piece.may_sound => {
                    self.playing.pop_front();
                    self.sounding = Some(next);
                    self.since = (self.now, 0);
                    self.put(Input::Playout { piece: next, event: PlayoutEvent::Started });
                    for i in 1..50 {
                        self.later(
                            self.now + i * 100_000,
                            Input::Playout { piece: next, event: PlayoutEvent::Progress(Position::ZERO) },
                        );
                    }
                }
                Some(_) => return,
            }
        }
    }

    fn answer(&mut self, output: Output) {
        match output {
            Output::AskLlm(request) => {
                let step = request.step;
                let mut at = self.now + self.random.grid(0, 800_000);
                if self.random.chance(8) {
                    self.later(at, Input::Llm { step, event: LlmEvent::Failed("scripted".into()) });
                    return;
                }
                if self.random.chance(4) {
                    return; // never answers: the conversation's own time-out must serve
                }
                self.later(at, Input::Llm { step, event: LlmEvent::Began });
                let text = self.random.pick(REPLIES);
                let silent = request.tools && self.random.chance(15);
                for word in text.split_inclusive(' ') {
                    if silent {
                        break;
                    }
                    at += self.random.below(4) * 10_000;
                    self.later(at, Input::Llm { step, event: LlmEvent::Text(word.into()) });
                    if self.random.chance(2) {
                        self.later(at, Input::Llm { step, event: LlmEvent::Failed("cut".into()) });
                        return;
                    }
                }
                if request.tools && (silent || self.random.chance(25)) {
                    for i in 0..1 + self.random.below(2) {
                        let name = self.random.pick(&["plain", "chatty", "chatty", "nobody"]).to_owned();
                        let event = LlmEvent::Call {
                            id: format!("call_{i}"),
                            name,
                            arguments: serde_json::json!({"a": i}),
                        };
                        self.later(at, Input::Llm { step, event });
                    }
                } else if self.random.chance(4) {
                    self.later(at, Input::Llm { step, event: LlmEvent::Guardrail });
                }
                self.later(
                    at,
                    Input::Llm { step, event: LlmEvent::End { prompt_tokens: 9, completion_tokens: 9 } },
                );
            }
            Output::CancelLlm(step) => {
                self.cancelled_steps.insert(step);
            }
            Output::Synthesize(request) => {
                let piece = request.piece;
                let length = 100_000 + request.text.len() as u64 * 50_000;
                self.pieces.insert(
                    piece,
                    Piece { epoch: request.epoch, length, ready: false, ended: false, may_sound: false },
                );
                let at = self.now + self.random.grid(0, 400_000);
                if self.random.chance(4) {
                    self.later(at, Input::Tts { piece, event: TtsEvent::Failed("scripted".into()) });
                    return;
                }
                if self.random.chance(2) {
                    return;
                }
                self.later(at, Input::Tts { piece, event: TtsEvent::Ready });
                if self.random.chance(40) {
                    let words: Vec<&str> = request.text.split_whitespace().collect();
                    let each = length / words.len().max(1) as u64;
                    let words = words
                        .iter()
                        .enumerate()
                        .map(|(i, w)| ((*w).to_owned(), micros(each * (i as u64 + 1))))
                        .collect();
                    self.later(at, Input::Tts { piece, event: TtsEvent::Words(words) });
                }
                let last = at + self.random.grid(0, 50_000);
                self.later(last, Input::Tts { piece, event: TtsEvent::End { duration: micros(length) } });
            }
            Output::Play(piece) => {
                if let Some(p) = self.pieces.get_mut(&piece) {
                    p.may_sound = true;
                }
                self.playing.push_back(piece);
                self.later(self.now, Input::Tick);
            }
            Output::Hold => {
                if !self.held {
                    self.since = (self.now, self.position());
                    self.held = true;
                }
                if let Some(piece) = self.sounding {
                    let at = micros(self.since.1.min(self.pieces[&piece].length));
                    self.put(Input::Playout { piece, event: PlayoutEvent::Progress(at) });
                }
            }
            Output::Resume => {
                self.held = false;
                self.since.0 = self.now;
                self.later(self.now, Input::Tick);
            }
            Output::Cancel(epoch) => {
                if let Some(piece) = self.sounding
                    && self.pieces.get(&piece).is_some_and(|p| p.epoch == epoch)
                {
                    self.sounding = None;
                    self.held = false;
                }
                self.pieces.retain(|_, p| p.epoch != epoch);
                if self.sounding.is_none() {
                    self.held = false;
                }
            }
            Output::Drop(piece) => {
                if self.sounding != Some(piece) {
                    self.pieces.remove(&piece);
                }
            }
            Output::RunTool { call, .. } => {
                let at = self.now + self.random.grid(0, 6_000_000);
                let result = if self.random.chance(80) { Ok("Sunny".into()) } else { Err("down".into()) };
                self.later(at, Input::Tool { call, result });
            }
            Output::AskTurn(stretch) => {
                if self.random.chance(80) {
                    let p = self.random.below(100) as f32 / 100.0;
                    let at = self.now + self.random.grid(0, 200_000);
                    self.later(at, Input::TurnProbability { stretch, p });
                }
            }
            Output::End(_) => self.ended = true,
            Output::Tell(_) | Output::Explain(_) | Output::Duck | Output::Unduck | Output::Answer { .. } => {}
        }
    }
}

fn micros(us: u64) -> Position {
    Position::from_samples(us * 48 / 1000)
}
