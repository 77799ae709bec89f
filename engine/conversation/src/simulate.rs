//! Runs a scenario: the real conversation with scripted providers, in simulated time.
//!
//! The only machine here is a clock: what happens next is either a deadline of the conversation or something scripted. Of one instant,
//! deadlines come first, then what providers and playout do, then the user's voice, then actions.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use crate::call::ConversationId;
use crate::conversation::Conversation;
use crate::input::{Command, CommandId, Epoch, Input, PieceId, PlayoutEvent, StepId, StretchId};
use crate::lines::Lines;
use crate::output::Output;
use crate::scenario::{Act, Said, Scenario, parse};
use crate::settings::Message;
use crate::spec::{Phrasing, Spec, ToolSpec, Vad};
use crate::time::{Position, Time};
use crate::trace;

pub use crate::scenario::{BadScenario, LARGEST};

/// More inputs than any conversation of a file's size has: a scenario that is not done then never will be.
const MOST_STEPS: u32 = 20_000_000;

/// Plays a scenario file and returns what happened, one JSON object a line; with `explain`, why it did.
///
/// # Errors
/// The file is no scenario.
pub fn simulate(json: &[u8], explain: bool) -> Result<String, BadScenario> {
    let scenario = parse(json)?;
    let mut simulation = Simulation::new(&scenario, explain)?;
    simulation.run()?;
    Ok(simulation.finish())
}

/// Plays a scenario file as if it were a traced call: what is printed, and the trace.
///
/// # Errors
/// The file is no scenario.
pub fn traced(json: &[u8]) -> Result<(String, String), BadScenario> {
    let scenario = parse(json)?;
    let mut simulation = Simulation::new(&scenario, false)?;
    simulation.trace = Some(trace::header(ConversationId(0), 0, simulation.conversation.spec()));
    simulation.run()?;
    let trace = simulation.trace.take().unwrap_or_default();
    Ok((simulation.finish(), trace))
}

/// Something that will happen.
pub(crate) enum Happening {
    /// All at one instant.
    Inputs(Vec<Input>),
    /// What the STT of a user's item has so far.
    Interim(usize),
    /// What it has in the end.
    Final(usize),
    /// The sounding piece ends, unless it was held since.
    Finished(u64),
}

/// The piece that sounds.
struct Playing {
    piece: PieceId,
    played: Duration,
    since: Time,
}

/// A piece that was asked for.
pub(crate) struct Voiced {
    pub(crate) epoch: Epoch,
    pub(crate) length: Duration,
}

pub(crate) struct Simulation<'a> {
    pub(crate) script: &'a Scenario,
    conversation: Conversation,
    pub(crate) now: Time,
    order: u64,
    agenda: BinaryHeap<Reverse<(Time, u8, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    at_once: VecDeque<Input>,
    /// Which answer each step is, by its index; `None` = the script has none.
    pub(crate) steps: BTreeMap<StepId, Option<usize>>,
    pub(crate) last_step: BTreeMap<Epoch, Option<usize>>,
    pub(crate) pieces: BTreeMap<PieceId, Voiced>,
    pub(crate) tool_names: BTreeMap<crate::input::ToolCallId, String>,
    playing: Option<Playing>,
    queue: VecDeque<PieceId>,
    paused: bool,
    generation: u64,
    /// Which items have an interim out, and no final.
    interims: Vec<bool>,
    lines: Lines,
    /// As a live call would have written it, if it is wanted.
    trace: Option<String>,
    ended: bool,
}

fn at(time: Duration) -> Time {
    Time::ZERO + time
}

pub(crate) fn position(time: Duration) -> Position {
    Position::from_samples(time.as_micros() as u64 * 48 / 1000)
}

impl<'a> Simulation<'a> {
    fn new(script: &'a Scenario, explain: bool) -> Result<Self, BadScenario> {
        let spec = script
            .settings
            .spec()
            .map_err(|bad| BadScenario::new(format!("settings.{}", bad.field), bad.reason))?;
        let words = |message: &Option<Message>| {
            message.as_ref().map(|m| m.say.trim().to_owned()).filter(|say| !say.is_empty())
        };
        let tools = script.tools.iter().map(|(name, tool)| ToolSpec {
            name: name.clone(),
            on_start: words(&tool.on_start),
            on_delay: words(&tool.on_delay),
            delay: tool.delay,
            on_success: words(&tool.on_success),
            on_error: words(&tool.on_error),
        });
        let spec = Spec {
            phrasing: Phrasing::Flushed,
            vad: Vad { start: script.vad.0, silence: script.vad.1 },
            user_id: "user".into(),
            tools: tools.collect(),
            ..spec
        };
        let hold_after = spec.min_interruption_duration;
        let mut conversation = Conversation::new(spec);
        conversation.explain(explain);
        let mut simulation = Self {
            script,
            conversation,
            now: Time::ZERO,
            order: 0,
            agenda: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            at_once: VecDeque::new(),
            steps: BTreeMap::new(),
            last_step: BTreeMap::new(),
            pieces: BTreeMap::new(),
            tool_names: BTreeMap::new(),
            playing: None,
            queue: VecDeque::new(),
            paused: false,
            generation: 0,
            interims: vec![false; script.user.len()],
            lines: Lines::default(),
            trace: None,
            ended: false,
        };
        simulation.schedule_user(hold_after);
        simulation.schedule_actions();
        Ok(simulation)
    }

    pub(crate) fn schedule(&mut self, at: Time, rank: u8, happening: Happening) {
        self.agenda.push(Reverse((at, rank, self.order)));
        self.happenings.insert(self.order, happening);
        self.order += 1;
    }

    fn schedule_user(&mut self, hold_after: Duration) {
        let script = self.script;
        let (start, silence) = script.vad;
        // What the detector takes for one speech: its beginning, its end, and what the turn model says of it.
        let mut stretches: Vec<(Duration, Duration, Option<f64>)> = Vec::new();
        for item in &script.user {
            match stretches.last_mut().filter(|last| item.from < last.1 + silence) {
                Some(last) => {
                    if item.to >= last.1 {
                        (last.1, last.2) = (item.to, item.end_of_turn);
                    }
                }
                None => stretches.push((item.from, item.to, item.end_of_turn)),
            }
        }
        stretches.retain(|(from, to, _)| *to - *from >= start);
        for (index, (from, to, p)) in stretches.into_iter().enumerate() {
            let onset = at(from);
            self.schedule(at(from + start), 1, Happening::Inputs(vec![Input::SpeechStarted { onset }]));
            for until in [from + hold_after, to] {
                if until <= to {
                    let heard = Input::SpeechHeard { until: at(until) };
                    self.schedule(at(until.max(from + start)), 1, Happening::Inputs(vec![heard]));
                }
            }
            let stretch = StretchId(index as u32);
            let model = p.map(|p| Input::TurnProbability { stretch, p: p as f32 });
            let stopped = model.into_iter().chain([Input::SpeechStopped { end: at(to) }]);
            self.schedule(at(to + silence), 1, Happening::Inputs(stopped.collect()));
        }
        for (index, item) in script.user.iter().enumerate().filter(|(_, item)| item.text.is_some()) {
            self.schedule(at(item.to + item.stt_delay / 2), 1, Happening::Interim(index));
            self.schedule(at(item.to + item.stt_delay), 1, Happening::Final(index));
        }
    }

    fn schedule_actions(&mut self) {
        let script = self.script;
        for (index, action) in script.actions.iter().enumerate() {
            let command = match &action.act {
                Act::Interrupt => Command::Interrupt,
                Act::Respond(text) => Command::Respond { text: text.clone() },
                Act::Say { text, interrupt, allow_interruptions, .. } => Command::Say {
                    text: text.clone(),
                    interrupt: *interrupt,
                    allow_interruptions: allow_interruptions.unwrap_or(script.settings.allow_interruptions),
                    add_to_context: true,
                },
                Act::Context(text) => Command::Context { text: text.clone(), overwrite: false },
                Act::End => Command::End,
                Act::Leave => Command::Leave,
            };
            let id = CommandId(index as u32);
            self.schedule(at(action.at), 2, Happening::Inputs(vec![Input::Command { id, command }]));
        }
    }

    fn run(&mut self) -> Result<(), BadScenario> {
        let until = at(self.script.until);
        self.give(Input::Begin);
        for _ in 0..MOST_STEPS {
            let deadline = self.conversation.poll_timeout().map(|(at, _)| at);
            let next = self.agenda.peek().map(|Reverse((at, _, _))| *at);
            let Some(time) = deadline.into_iter().chain(next).min().filter(|time| *time <= until) else {
                return Ok(());
            };
            self.now = self.now.max(time);
            if deadline.is_some_and(|deadline| deadline <= self.now) {
                self.give(Input::Tick);
            } else if let Some(Reverse((_, _, order))) = self.agenda.pop()
                && let Some(happening) = self.happenings.remove(&order)
            {
                self.happen(happening);
            }
            if self.ended {
                return Ok(());
            }
        }
        Err(BadScenario::new("until", "is too late: more than 20 000 000 things happen before it"))
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Inputs(inputs) => inputs.into_iter().for_each(|input| self.give(input)),
            Happening::Interim(index) => {
                self.interims[index] = true;
                let text = self.interim();
                self.give(Input::Transcript { text, is_final: false, outstanding: String::new() });
            }
            Happening::Final(index) => {
                self.interims[index] = false;
                let text = self.script.user[index].text.clone().unwrap_or_default();
                let outstanding = self.interim();
                self.give(Input::Transcript { text, is_final: true, outstanding });
            }
            Happening::Finished(generation) => {
                if generation == self.generation
                    && let Some(playing) = self.playing.take()
                {
                    let length = self.pieces.get(&playing.piece).map_or(Duration::ZERO, |piece| piece.length);
                    let event = PlayoutEvent::Finished(position(length));
                    self.give(Input::Playout { piece: playing.piece, event });
                    self.start_next();
                    self.answer();
                }
            }
        }
    }

    /// What the STT has heard and not said for good.
    fn interim(&self) -> String {
        let first_two = |item: &Said| {
            item.text.iter().flat_map(|text| text.split_whitespace().take(2)).collect::<Vec<_>>().join(" ")
        };
        let out = self.script.user.iter().zip(&self.interims).filter(|(_, out)| **out);
        out.map(|(item, _)| first_two(item)).collect::<Vec<_>>().join(" ")
    }

    /// Tells the conversation, does what it asks for, and answers what can be answered at once.
    fn give(&mut self, input: Input) {
        self.handle(input);
        self.answer();
    }

    fn answer(&mut self) {
        while let Some(input) = self.at_once.pop_front() {
            self.handle(input);
        }
    }

    fn handle(&mut self, input: Input) {
        let kept = self.trace.is_some().then(|| input.clone());
        self.conversation.handle(input, self.now);
        let out: Vec<Output> = core::iter::from_fn(|| self.conversation.poll()).collect();
        if let (Some(trace), Some(input)) = (&mut self.trace, kept) {
            trace.push_str(&trace::step(self.now, &input, &out));
        }
        self.act(out);
    }

    fn act(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Tell(fact) => self.lines.tell(fact),
                Output::Explain(explanation) => self.lines.explain(&explanation),
                Output::AskLlm(request) => self.ask_llm(&request),
                Output::Synthesize(request) => self.synthesize(&request),
                Output::RunTool { call, name, .. } => {
                    if let Some((_, tool)) = self.script.tools.iter().find(|(known, _)| *known == name) {
                        let result = Input::Tool { call, result: tool.result.clone() };
                        self.schedule(self.now + tool.takes, 0, Happening::Inputs(vec![result]));
                    }
                    self.tool_names.insert(call, name);
                }
                Output::Play(piece) => {
                    self.queue.push_back(piece);
                    self.start_next();
                }
                Output::Hold => self.pause(),
                Output::Resume => {
                    self.paused = false;
                    if let Some(playing) = self.playing.as_mut() {
                        playing.since = self.now;
                        self.schedule_finish();
                    }
                    self.start_next();
                }
                Output::Cancel(epoch) => {
                    let pieces = &self.pieces;
                    let stale = |id: &PieceId| pieces.get(id).is_some_and(|piece| piece.epoch == epoch);
                    self.queue.retain(|id| !stale(id));
                    if self.playing.as_ref().is_some_and(|playing| stale(&playing.piece)) {
                        self.playing = None;
                        self.generation += 1;
                    }
                }
                Output::Drop(piece) => {
                    self.queue.retain(|id| *id != piece);
                    if self.playing.as_ref().is_some_and(|playing| playing.piece == piece) {
                        self.playing = None;
                        self.generation += 1;
                    }
                }
                Output::End(_) => self.ended = true,
                Output::CancelLlm(_)
                | Output::Duck
                | Output::Unduck
                | Output::AskTurn(_)
                | Output::Answer { .. } => {}
            }
        }
    }

    fn pause(&mut self) {
        self.paused = true;
        self.generation += 1;
        if let Some(playing) = self.playing.as_mut() {
            playing.played += self.now.since(playing.since);
            playing.since = self.now;
            let event = PlayoutEvent::Progress(position(playing.played));
            self.at_once.push_back(Input::Playout { piece: playing.piece, event });
        }
    }

    /// Starts the next permitted piece, if nothing sounds.
    fn start_next(&mut self) {
        if self.paused || self.playing.is_some() {
            return;
        }
        let Some(piece) = self.queue.pop_front() else { return };
        self.playing = Some(Playing { piece, played: Duration::ZERO, since: self.now });
        self.at_once.push_back(Input::Playout { piece, event: PlayoutEvent::Started });
        self.schedule_finish();
    }

    fn schedule_finish(&mut self) {
        self.generation += 1;
        let Some(playing) = &self.playing else { return };
        let length = self.pieces.get(&playing.piece).map_or(Duration::ZERO, |piece| piece.length);
        let end = playing.since + length.saturating_sub(playing.played);
        self.schedule(end, 0, Happening::Finished(self.generation));
    }

    fn finish(mut self) -> String {
        let t = if self.ended { self.now } else { at(self.script.until) };
        self.lines.summary(t, &self.conversation);
        self.lines.take()
    }
}
