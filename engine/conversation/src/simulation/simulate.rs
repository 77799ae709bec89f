//! Runs a scenario: the real conversation with scripted providers, in simulated time.
//!
//! The only mechanism here is a clock. The next event is either a deadline of the conversation or
//! something scripted. At the same time, deadlines come first, then providers and playout, then the
//! user's speech, then actions.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use crate::contract::id::ConversationId;
use crate::contract::input::{
    Command, CommandId, Epoch, GenerationId, Input, PlayoutEvent, SegmentId, SpeechSegmentId,
};
use crate::contract::output::Output;
use crate::contract::settings::SpokenMessage;
use crate::contract::spec::{Phrasing, Spec, ToolSpec, VadTiming};
use crate::contract::time::{Position, Time};
use crate::machine::conversation::Conversation;
use crate::simulation::report::Report;
use crate::simulation::scenario::{ActionKind, Scenario, ScriptedSpeech, parse_scenario};
use crate::simulation::trace;

pub use crate::simulation::scenario::MAX_SCENARIO_BYTES;
pub use crate::simulation::scenario_fields::ScenarioError;

/// More steps than any conversation needs: a scenario that is not finished by then never ends.
const MAX_SIMULATION_STEPS: u32 = 20_000_000;

/// Runs a scenario file and returns its events, one JSON object per line; with `explain` also the
/// reasons.
///
/// # Errors
/// The file is not a valid scenario.
pub fn simulate(json: &[u8], explain: bool) -> Result<String, ScenarioError> {
    let scenario = parse_scenario(json)?;
    let mut simulation = Simulation::new(&scenario, explain)?;
    simulation.run()?;
    Ok(simulation.into_report())
}

/// Runs a scenario file like a traced call. Returns the printed lines and the trace.
///
/// # Errors
/// The file is not a valid scenario.
pub fn simulate_traced(json: &[u8]) -> Result<(String, String), ScenarioError> {
    let scenario = parse_scenario(json)?;
    let mut simulation = Simulation::new(&scenario, false)?;
    simulation.trace =
        Some(trace::header_line(ConversationId(0), 0, simulation.conversation.spec()));
    simulation.run()?;
    let trace = simulation.trace.take().unwrap_or_default();
    Ok((simulation.into_report(), trace))
}

/// A scheduled event.
pub(crate) enum ScheduledEvent {
    /// Inputs at the same time.
    Inputs(Vec<Input>),
    /// The interim transcript of a user item.
    Interim(usize),
    /// The final transcript of a user item.
    Final(usize),
    /// The playing segment ends, unless playout has changed since this version.
    PlayoutFinished(u64),
}

/// The segment that is playing.
struct PlayingSegment {
    segment: SegmentId,
    played: Duration,
    resumed_at: Time,
}

/// A segment that was sent to the TTS.
pub(crate) struct RequestedSegment {
    pub(crate) epoch: Epoch,
    pub(crate) duration: Duration,
}

pub(crate) struct Simulation<'a> {
    pub(crate) scenario: &'a Scenario,
    conversation: Conversation,
    pub(crate) now: Time,
    next_order: u64,
    event_queue: BinaryHeap<Reverse<(Time, u8, u64)>>,
    scheduled_events: BTreeMap<u64, ScheduledEvent>,
    immediate_inputs: VecDeque<Input>,
    /// Index of the scripted reply for each generation; `None` = the script has none.
    pub(crate) generations: BTreeMap<GenerationId, Option<usize>>,
    pub(crate) last_generation: BTreeMap<Epoch, Option<usize>>,
    pub(crate) segments: BTreeMap<SegmentId, RequestedSegment>,
    pub(crate) tool_names: BTreeMap<crate::contract::input::ToolCallId, String>,
    playing: Option<PlayingSegment>,
    playout_queue: VecDeque<SegmentId>,
    paused: bool,
    playout_version: u64,
    /// Which user items have an interim transcript but no final one.
    interim_pending: Vec<bool>,
    report: Report,
    /// The trace of a live call, if requested.
    trace: Option<String>,
    ended: bool,
}

fn time_at(time: Duration) -> Time {
    Time::ZERO + time
}

pub(crate) fn to_position(time: Duration) -> Position {
    Position::from_samples(time.as_micros() as u64 * 48 / 1000)
}

impl<'a> Simulation<'a> {
    fn new(scenario: &'a Scenario, explain: bool) -> Result<Self, ScenarioError> {
        let spec = scenario
            .settings
            .to_spec()
            .map_err(|bad| ScenarioError::new(format!("settings.{}", bad.field), bad.reason))?;
        let words = |message: &Option<SpokenMessage>| {
            message.as_ref().map(|m| m.text.trim().to_owned()).filter(|say| !say.is_empty())
        };
        let tools = scenario.tools.iter().map(|(name, tool)| ToolSpec {
            name: name.clone(),
            on_start: words(&tool.on_start),
            on_delay: words(&tool.on_delay),
            delay: tool.delay,
            on_success: words(&tool.on_success),
            on_error: words(&tool.on_error),
            ends_call: tool.ends_call,
        });
        let spec = Spec {
            phrasing: Phrasing::Flushed,
            vad: VadTiming {
                min_speech_duration: scenario.vad.0,
                min_silence_duration: scenario.vad.1,
            },
            user_id: "user".into(),
            tools: tools.collect(),
            ..spec
        }
        .with_participation(scenario.meeting.as_ref().map(|meeting| meeting.rules.clone()));
        let hold_after = spec.min_interruption_duration;
        let mut conversation = Conversation::new(spec);
        conversation.set_explain(explain);
        let mut simulation = Self {
            scenario,
            conversation,
            now: Time::ZERO,
            next_order: 0,
            event_queue: BinaryHeap::new(),
            scheduled_events: BTreeMap::new(),
            immediate_inputs: VecDeque::new(),
            generations: BTreeMap::new(),
            last_generation: BTreeMap::new(),
            segments: BTreeMap::new(),
            tool_names: BTreeMap::new(),
            playing: None,
            playout_queue: VecDeque::new(),
            paused: false,
            playout_version: 0,
            interim_pending: vec![false; scenario.user.len()],
            report: Report::default(),
            trace: None,
            ended: false,
        };
        simulation.schedule_user_speech(hold_after);
        simulation.schedule_actions();
        Ok(simulation)
    }

    pub(crate) fn schedule(&mut self, at: Time, priority: u8, event: ScheduledEvent) {
        self.event_queue.push(Reverse((at, priority, self.next_order)));
        self.scheduled_events.insert(self.next_order, event);
        self.next_order += 1;
    }

    fn schedule_user_speech(&mut self, hold_after: Duration) {
        let scenario = self.scenario;
        let (start, silence) = scenario.vad;
        // Merges items into speech segments as the VAD does: onset, end, and the turn model's
        // answer.
        let mut speech_segments: Vec<(Duration, Duration, Option<f64>)> = Vec::new();
        for item in &scenario.user {
            match speech_segments.last_mut().filter(|last| item.from < last.1 + silence) {
                Some(last) => {
                    if item.to >= last.1 {
                        (last.1, last.2) = (item.to, item.end_of_turn);
                    }
                }
                None => speech_segments.push((item.from, item.to, item.end_of_turn)),
            }
        }
        speech_segments.retain(|(from, to, _)| *to - *from >= start);
        for (index, (from, to, p)) in speech_segments.into_iter().enumerate() {
            let onset = time_at(from);
            self.schedule(
                time_at(from + start),
                1,
                ScheduledEvent::Inputs(vec![Input::SpeechStarted { onset }]),
            );
            for until in [from + hold_after, to] {
                if until <= to {
                    let input = Input::SpeechContinued { until: time_at(until) };
                    self.schedule(
                        time_at(until.max(from + start)),
                        1,
                        ScheduledEvent::Inputs(vec![input]),
                    );
                }
            }
            let speech_segment = SpeechSegmentId(index as u32);
            let model = p.map(|p| Input::TurnProbability { speech_segment, probability: p as f32 });
            let stopped = model.into_iter().chain([Input::SpeechStopped { end: time_at(to) }]);
            self.schedule(time_at(to + silence), 1, ScheduledEvent::Inputs(stopped.collect()));
        }
        for (index, item) in
            scenario.user.iter().enumerate().filter(|(_, item)| item.text.is_some())
        {
            self.schedule(time_at(item.to + item.stt_delay / 2), 1, ScheduledEvent::Interim(index));
            self.schedule(time_at(item.to + item.stt_delay), 1, ScheduledEvent::Final(index));
        }
        for item in &scenario.user {
            let Some((name, meeting)) = item.speaker.as_ref().zip(scenario.meeting.as_ref()) else {
                continue;
            };
            let Some(delay) = meeting.speaker_delay else { continue };
            let (from, to) = (time_at(item.from), time_at(item.to));
            let started = Input::SpeakerStarted { name: name.clone(), at: from };
            let stopped = Input::SpeakerStopped { name: name.clone(), at: to };
            for (at, input) in [(from, started), (to, stopped)] {
                self.schedule(at + delay, 1, ScheduledEvent::Inputs(vec![input]));
            }
        }
        for (at, hint) in &scenario.hints {
            let hint = Input::TurnHint(*hint);
            self.schedule(time_at(*at), 1, ScheduledEvent::Inputs(vec![hint]));
        }
    }

    fn schedule_actions(&mut self) {
        let scenario = self.scenario;
        for (index, action) in scenario.actions.iter().enumerate() {
            let command = match &action.kind {
                ActionKind::Interrupt => Command::Interrupt,
                ActionKind::Respond(text) => Command::Respond { text: text.clone() },
                ActionKind::Say { text, interrupt, allow_interruptions, .. } => Command::Say {
                    text: text.clone(),
                    interrupt: *interrupt,
                    allow_interruptions: allow_interruptions
                        .unwrap_or(scenario.settings.allow_interruptions),
                    add_to_context: true,
                    expression: None,
                },
                ActionKind::Context(text) => {
                    Command::Context { text: text.clone(), overwrite: false }
                }
                ActionKind::End => Command::End,
                ActionKind::Leave => Command::Leave,
            };
            let id = CommandId(index as u32);
            self.schedule(
                time_at(action.at),
                2,
                ScheduledEvent::Inputs(vec![Input::Command { id, command }]),
            );
        }
    }

    fn run(&mut self) -> Result<(), ScenarioError> {
        let until = time_at(self.scenario.until);
        self.send_input(Input::Start);
        for _ in 0..MAX_SIMULATION_STEPS {
            let deadline = self.conversation.poll_timeout().map(|(at, _)| at);
            let next = self.event_queue.peek().map(|Reverse((at, _, _))| *at);
            let Some(time) = deadline.into_iter().chain(next).min().filter(|time| *time <= until)
            else {
                return Ok(());
            };
            self.now = self.now.max(time);
            if deadline.is_some_and(|deadline| deadline <= self.now) {
                self.send_input(Input::Tick);
            } else if let Some(Reverse((_, _, order))) = self.event_queue.pop()
                && let Some(happening) = self.scheduled_events.remove(&order)
            {
                self.run_event(happening);
            }
            if self.ended {
                return Ok(());
            }
        }
        Err(ScenarioError::new(
            "until",
            "is too late: the simulation needs more than 20 000 000 steps",
        ))
    }

    fn run_event(&mut self, happening: ScheduledEvent) {
        match happening {
            ScheduledEvent::Inputs(inputs) => {
                inputs.into_iter().for_each(|input| self.send_input(input))
            }
            ScheduledEvent::Interim(index) => {
                self.interim_pending[index] = true;
                let text = self.interim_text();
                self.send_input(Input::Transcript {
                    text,
                    is_final: false,
                    trailing_interim: String::new(),
                });
            }
            ScheduledEvent::Final(index) => {
                self.interim_pending[index] = false;
                let text = self.scenario.user[index].text.clone().unwrap_or_default();
                let outstanding = self.interim_text();
                self.send_input(Input::Transcript {
                    text,
                    is_final: true,
                    trailing_interim: outstanding,
                });
            }
            ScheduledEvent::PlayoutFinished(generation) => {
                if generation == self.playout_version
                    && let Some(playing) = self.playing.take()
                {
                    let length = self
                        .segments
                        .get(&playing.segment)
                        .map_or(Duration::ZERO, |segment| segment.duration);
                    let event = PlayoutEvent::Finished(to_position(length));
                    self.send_input(Input::Playout { segment: playing.segment, event });
                    self.start_next_segment();
                    self.send_immediate_inputs();
                }
            }
        }
    }

    /// The interim text: the first two words of each item whose final transcript is pending.
    fn interim_text(&self) -> String {
        let first_two = |item: &ScriptedSpeech| {
            item.text
                .iter()
                .flat_map(|text| text.split_whitespace().take(2))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let out = self.scenario.user.iter().zip(&self.interim_pending).filter(|(_, out)| **out);
        out.map(|(item, _)| first_two(item)).collect::<Vec<_>>().join(" ")
    }

    /// Passes an input to the conversation, applies its outputs, and sends the immediate answers.
    fn send_input(&mut self, input: Input) {
        self.handle(input);
        self.send_immediate_inputs();
    }

    fn send_immediate_inputs(&mut self) {
        while let Some(input) = self.immediate_inputs.pop_front() {
            self.handle(input);
        }
    }

    fn handle(&mut self, input: Input) {
        let traced_input = self.trace.is_some().then(|| input.clone());
        self.conversation.handle(input, self.now);
        let out: Vec<Output> = core::iter::from_fn(|| self.conversation.poll()).collect();
        if let (Some(trace), Some(input)) = (&mut self.trace, traced_input) {
            trace.push_str(&trace::step_line(self.now, &input, &out));
        }
        self.apply_outputs(out);
    }

    fn apply_outputs(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Emit(envelope) => self.report.push_event(envelope),
                Output::Explain(explanation) => self.report.push_explanation(&explanation),
                Output::RequestLlm(request) => self.request_llm(&request),
                Output::Synthesize(request) => self.synthesize(&request),
                Output::RunTool { call, name, .. } => {
                    if let Some((_, tool)) =
                        self.scenario.tools.iter().find(|(known, _)| *known == name)
                    {
                        let result = Input::ToolResult { call, result: tool.result.clone() };
                        self.schedule(
                            self.now + tool.duration,
                            0,
                            ScheduledEvent::Inputs(vec![result]),
                        );
                    }
                    self.tool_names.insert(call, name);
                }
                Output::Play(segment) => {
                    self.playout_queue.push_back(segment);
                    self.start_next_segment();
                }
                Output::Hold => self.pause_playout(),
                Output::Resume => {
                    self.paused = false;
                    if let Some(playing) = self.playing.as_mut() {
                        playing.resumed_at = self.now;
                        self.schedule_playout_end();
                    }
                    self.start_next_segment();
                }
                Output::Cancel(epoch) => {
                    let segments = &self.segments;
                    let stale = |id: &SegmentId| {
                        segments.get(id).is_some_and(|segment| segment.epoch == epoch)
                    };
                    self.playout_queue.retain(|id| !stale(id));
                    if self.playing.as_ref().is_some_and(|playing| stale(&playing.segment)) {
                        self.playing = None;
                        self.playout_version += 1;
                    }
                }
                Output::Discard(segment) => {
                    self.playout_queue.retain(|id| *id != segment);
                    if self.playing.as_ref().is_some_and(|playing| playing.segment == segment) {
                        self.playing = None;
                        self.playout_version += 1;
                    }
                }
                Output::End(_) => self.ended = true,
                Output::CancelLlm(_)
                | Output::Duck
                | Output::Unduck
                | Output::RequestTurnProbability(_)
                | Output::CommandResult { .. } => {}
            }
        }
    }

    fn pause_playout(&mut self) {
        self.paused = true;
        self.playout_version += 1;
        if let Some(playing) = self.playing.as_mut() {
            playing.played += self.now.since(playing.resumed_at);
            playing.resumed_at = self.now;
            let event = PlayoutEvent::Progress(to_position(playing.played));
            self.immediate_inputs.push_back(Input::Playout { segment: playing.segment, event });
        }
    }

    /// Starts the next permitted segment if none is playing.
    fn start_next_segment(&mut self) {
        if self.paused || self.playing.is_some() {
            return;
        }
        let Some(segment) = self.playout_queue.pop_front() else { return };
        self.playing =
            Some(PlayingSegment { segment, played: Duration::ZERO, resumed_at: self.now });
        self.immediate_inputs.push_back(Input::Playout { segment, event: PlayoutEvent::Started });
        self.schedule_playout_end();
    }

    fn schedule_playout_end(&mut self) {
        self.playout_version += 1;
        let Some(playing) = &self.playing else { return };
        let length =
            self.segments.get(&playing.segment).map_or(Duration::ZERO, |segment| segment.duration);
        let end = playing.resumed_at + length.saturating_sub(playing.played);
        self.schedule(end, 0, ScheduledEvent::PlayoutFinished(self.playout_version));
    }

    fn into_report(mut self) -> String {
        let t = if self.ended { self.now } else { time_at(self.scenario.until) };
        self.report.push_summary(t, &self.conversation);
        self.report.take()
    }
}
