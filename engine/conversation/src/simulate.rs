//! Runs a scenario: the real conversation with scripted providers, in simulated time.
//!
//! The only machine here is a clock: what happens next is either a deadline of the conversation or something scripted. Of one instant,
//! deadlines come first, then what providers and playout do, then the user's voice, then actions.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use serde_json::{Map, Value, json};

use crate::conversation::Conversation;
use crate::endpoint::plain;
use crate::event::{Event, HistoryItem, Role, Stamped, TurnTimes};
use crate::input::{
    Command, CommandId, Epoch, Input, LlmEvent, PieceId, PlayoutEvent, StepId, StretchId, TtsEvent,
};
use crate::output::{LlmRequest, Output, Source, SpeechRequest, ToolMessage};
use crate::scenario::{Act, Answer, Part, Said, Scenario, parse};
use crate::settings::Message;
use crate::spec::{Phrasing, Spec, ToolSpec, Vad};
use crate::time::{Position, Time};
use crate::view::round;

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

/// Something that will happen.
enum Happening {
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
struct Voiced {
    epoch: Epoch,
    length: Duration,
}

struct Simulation<'a> {
    script: &'a Scenario,
    conversation: Conversation,
    now: Time,
    order: u64,
    agenda: BinaryHeap<Reverse<(Time, u8, u64)>>,
    happenings: HashMap<u64, Happening>,
    at_once: VecDeque<Input>,
    /// Which answer each step is, by its index; `None` = the script has none.
    steps: HashMap<StepId, Option<usize>>,
    last_step: HashMap<Epoch, Option<usize>>,
    pieces: HashMap<PieceId, Voiced>,
    tool_names: HashMap<crate::input::ToolCallId, String>,
    playing: Option<Playing>,
    queue: VecDeque<PieceId>,
    paused: bool,
    generation: u64,
    /// Which items have an interim out, and no final.
    interims: Vec<bool>,
    lines: String,
    history: Vec<Value>,
    turns: Vec<TurnTimes>,
    ended: bool,
}

fn at(time: Duration) -> Time {
    Time::ZERO + time
}

fn position(time: Duration) -> Position {
    Position::from_samples(time.as_micros() as u64 * 48 / 1000)
}

fn seconds(time: f64) -> Duration {
    Duration::from_secs_f64(time.max(0.0))
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
            happenings: HashMap::new(),
            at_once: VecDeque::new(),
            steps: HashMap::new(),
            last_step: HashMap::new(),
            pieces: HashMap::new(),
            tool_names: HashMap::new(),
            playing: None,
            queue: VecDeque::new(),
            paused: false,
            generation: 0,
            interims: vec![false; script.user.len()],
            lines: String::new(),
            history: Vec::new(),
            turns: Vec::new(),
            ended: false,
        };
        simulation.schedule_user(hold_after);
        simulation.schedule_actions();
        Ok(simulation)
    }

    fn schedule(&mut self, at: Time, rank: u8, happening: Happening) {
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
        for (index, action) in self.script.actions.iter().enumerate() {
            let command = match &action.act {
                Act::Interrupt => Command::Interrupt,
                Act::Respond(text) => Command::Respond { text: text.clone() },
                Act::Say { text, interrupt, allow_interruptions, .. } => Command::Say {
                    text: text.clone(),
                    interrupt: *interrupt,
                    allow_interruptions: *allow_interruptions,
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
                self.give_interim();
            }
            Happening::Final(index) => {
                self.interims[index] = false;
                let text = self.script.user[index].text.clone().unwrap_or_default();
                self.give(Input::Transcript { text, is_final: true });
                if self.interims.contains(&true) {
                    self.give_interim();
                }
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

    fn give_interim(&mut self) {
        let first_two = |item: &Said| {
            item.text.iter().flat_map(|text| text.split_whitespace().take(2)).collect::<Vec<_>>().join(" ")
        };
        let out = self.script.user.iter().zip(&self.interims).filter(|(_, out)| **out);
        let text = out.map(|(item, _)| first_two(item)).collect::<Vec<_>>().join(" ");
        self.give(Input::Transcript { text, is_final: false });
    }

    /// Tells the conversation, does what it asks for, and answers what can be answered at once.
    fn give(&mut self, input: Input) {
        self.conversation.handle(input, self.now);
        self.drain();
        self.answer();
    }

    fn answer(&mut self) {
        while let Some(input) = self.at_once.pop_front() {
            self.conversation.handle(input, self.now);
            self.drain();
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.conversation.poll() {
            match output {
                Output::Tell(fact) => self.tell(fact),
                Output::Explain(explanation) => {
                    let t = round(explanation.at.as_seconds());
                    self.line(&json!({"t": t, "what": "explain", "why": explanation.why}));
                }
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

    /// The script's answer to a question.
    fn find_answer(&self, request: &LlmRequest) -> Option<usize> {
        let replies = &self.script.replies;
        if let Some(last) = self.last_step.get(&request.step.epoch) {
            let tools: Vec<&str> = last
                .iter()
                .flat_map(|index| replies[*index].calls.iter().map(|call| call.0.as_str()))
                .collect();
            return replies
                .iter()
                .position(|reply| reply.to.strip_prefix("tool:").is_some_and(|name| tools.contains(&name)));
        }
        let said = request
            .history
            .iter()
            .rev()
            .find(|item| item.role == Role::User)
            .map(|item| plain(&item.text))?;
        replies
            .iter()
            .position(|reply| reply.to == "*" || !reply.to.starts_with("tool:") && plain(&reply.to) == said)
    }

    fn ask_llm(&mut self, request: &LlmRequest) {
        let step = request.step;
        let found = self.find_answer(request);
        self.steps.insert(step, found);
        self.last_step.insert(step.epoch, found);
        let llm = |event| Input::Llm { step, event };
        let end = LlmEvent::End { prompt_tokens: 0, completion_tokens: 0 };
        let defaults = self.script.defaults;
        let empty =
            Answer { llm_ttft: defaults.llm_ttft, llm_duration: defaults.llm_duration, ..Answer::default() };
        let script = self.script;
        let answer = found.map_or(&empty, |index| &script.replies[index]);
        let first = self.now + answer.llm_ttft;
        if answer.llm_fails {
            self.schedule(first, 0, Happening::Inputs(vec![llm(LlmEvent::Failed("scripted".into()))]));
            return;
        }
        // A stream that is slow, not silent: its gaps are no failure.
        let done = self.now + answer.llm_duration.max(answer.llm_ttft);
        let mut alive = first;
        while alive < done {
            self.schedule(alive, 0, Happening::Inputs(vec![llm(LlmEvent::Began)]));
            alive = alive + Duration::from_secs(4);
        }
        let mut events = Vec::new();
        if answer.guardrail {
            events.push(llm(LlmEvent::Guardrail));
        }
        for (index, part) in answer.parts.iter().enumerate() {
            let blank = if index > 0 { " " } else { "" };
            events.push(llm(LlmEvent::Text(format!("{blank}{}", part.say.trim()))));
            events.push(llm(LlmEvent::Flush));
        }
        for (index, (name, arguments)) in answer.calls.iter().enumerate() {
            let id = format!("call_{index}");
            events.push(llm(LlmEvent::Call { id, name: name.clone(), arguments: arguments.clone() }));
        }
        events.push(llm(end));
        self.schedule(done, 0, Happening::Inputs(events));
    }

    fn synthesize(&mut self, request: &SpeechRequest) {
        let mut ttfb = self.script.defaults.tts_ttfb;
        let settings = &self.script.settings;
        let message = |message: Option<&Message>| Part {
            audio: seconds(message.map_or(0.0, |m| m.audio)),
            ..Part::default()
        };
        let part = match &request.source {
            Source::Step { step, part } => {
                let answer = self.steps.get(step).copied().flatten().map(|index| &self.script.replies[index]);
                ttfb = answer.map_or(ttfb, |answer| answer.tts_ttfb);
                answer.and_then(|answer| answer.parts.get(*part as usize)).cloned().unwrap_or_default()
            }
            Source::Greeting => message(settings.greeting.as_ref()),
            Source::Idle(n) => {
                message(settings.idle_messages.iter().filter(|m| !m.say.trim().is_empty()).nth(*n as usize))
            }
            Source::Warning => message(settings.warning_message.as_ref()),
            Source::Exit => message(settings.exit_message.as_ref()),
            Source::Error => message(settings.error_message.as_ref()),
            Source::Say(id) => match self.script.actions.get(id.0 as usize).map(|action| &action.act) {
                Some(Act::Say { audio, .. }) => Part { audio: *audio, ..Part::default() },
                _ => Part::default(),
            },
            Source::Guardrail => Part::default(),
            Source::Tool { call, message: which } => {
                let name = self.tool_names.get(call);
                let tool =
                    self.script.tools.iter().find(|(known, _)| Some(known) == name).map(|(_, tool)| tool);
                message(tool.and_then(|tool| match which {
                    ToolMessage::OnStart => tool.on_start.as_ref(),
                    ToolMessage::OnDelay => tool.on_delay.as_ref(),
                    ToolMessage::OnSuccess => tool.on_success.as_ref(),
                    ToolMessage::OnError => tool.on_error.as_ref(),
                }))
            }
        };
        let piece = request.piece;
        let length = part.audio + Duration::from_millis(10);
        self.pieces.insert(piece, Voiced { epoch: request.epoch, length });
        let tts = |event| Input::Tts { piece, event };
        let events = if part.fails {
            vec![tts(TtsEvent::Failed("scripted".into()))]
        } else {
            let words = part.words.iter().map(|(word, end)| (word.clone(), position(*end))).collect();
            vec![tts(TtsEvent::Words(words)), tts(TtsEvent::End { duration: position(length) })]
        };
        self.schedule(self.now + ttfb, 0, Happening::Inputs(events));
    }

    fn tell(&mut self, fact: Stamped) {
        let t = round(fact.at.as_seconds());
        let line = match fact.event {
            Event::Joined { .. }
            | Event::UserTranscript { .. }
            | Event::AgentHeard { .. }
            | Event::LlmText { .. }
            | Event::LlmStopped { .. }
            | Event::ToolStarted { .. }
            | Event::Snippets { .. }
            | Event::Warning { .. } => return,
            Event::Turn(times) => {
                self.turns.push(times);
                return;
            }
            Event::History(item) => {
                let item = history_item(&item);
                self.history.push(Value::Object(item.clone()));
                let mut line = Map::from_iter([("t".into(), json!(t)), ("what".into(), json!("history"))]);
                line.extend(item);
                Value::Object(line)
            }
            event => {
                let Ok(Value::Object(fields)) = serde_json::to_value(event) else { return };
                let mut line = Map::from_iter([("t".into(), json!(t))]);
                for (key, value) in fields.into_iter().filter(|(key, _)| key != "utterance") {
                    let rounded = matches!(key.as_str(), "position" | "call_duration" | "max_call_duration");
                    let value =
                        value.as_f64().filter(|_| rounded).map_or(value, |number| json!(round(number)));
                    line.insert(key, value);
                }
                Value::Object(line)
            }
        };
        self.line(&line);
    }

    fn line(&mut self, line: &Value) {
        self.lines.push_str(&line.to_string());
        self.lines.push('\n');
    }

    fn finish(mut self) -> String {
        let open: Vec<TurnTimes> = self.conversation.open_turns().cloned().collect();
        let told: Vec<u32> = self.turns.iter().map(|turn| turn.turn).collect();
        self.turns.extend(open.into_iter().filter(|turn| !told.contains(&turn.turn)));
        // A guardrail's words tell the times of their turn anew: the last word counts.
        self.turns.reverse();
        self.turns.sort_by_key(|turn| turn.turn);
        self.turns.dedup_by_key(|turn| turn.turn);
        let number = |value: Option<f64>| value.map(round);
        let turns: Vec<Value> = self
            .turns
            .iter()
            .map(|turn| {
                json!({
                    "endpointing": number(turn.endpointing),
                    "llm_ttft": number(turn.llm_ttft),
                    "tts_ttfb": number(turn.tts_ttfb),
                    "voice_to_voice": number(turn.voice_to_voice),
                })
            })
            .collect();
        let t = if self.ended { self.now } else { at(self.script.until) };
        let history = core::mem::take(&mut self.history);
        self.line(
            &json!({"t": round(t.as_seconds()), "what": "summary", "history": history, "turns": turns}),
        );
        self.lines
    }
}

/// An item as the scenario format shows it.
fn history_item(item: &HistoryItem) -> Map<String, Value> {
    let mut map = Map::from_iter([("role".into(), json!(item.role))]);
    if item.role == Role::Tool {
        map.insert("name".into(), json!(item.name));
        map.insert("arguments".into(), json!(item.arguments));
        map.insert("text".into(), json!(item.text));
    } else {
        map.insert("text".into(), json!(item.text));
        map.insert("interrupted".into(), json!(item.interrupted));
    }
    map
}
