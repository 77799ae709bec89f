//! The LLM's side of a reply: steps, preparation, failures.

use core::time::Duration;

use crate::conversation::Conversation;
use crate::endpoint::plain;
use crate::event::{Event, Stage, Timeline, TurnTimes};
use crate::floor::cut;
use crate::input::{LlmEvent, StepId};
use crate::output::{LlmRequest, Output, Source};
use crate::reply::{From, Kind, Reply, Step, ToolAsk, Utterance};
use crate::spec::Phrasing;
use crate::time::Time;

/// No first token, no further token, no first audio for so long is a failure. What comes at that very instant still counts.
pub(crate) const SILENT: Duration = Duration::from_micros(5_000_001);

/// A turn that has lasted longer gets no prepared reply.
const LONG_TURN: Duration = Duration::from_secs(10);

/// Characters of one live reply, all its steps together: some twenty minutes of speech. A model that goes on has lost its end.
const LONGEST: usize = 20_000;

/// Prepared replies of one turn, replaced ones included.
const PREPARATIONS: u32 = 3;

impl Conversation {
    /// Asks the LLM before the turn is committed, where that is wanted.
    pub(crate) fn prepare(&mut self) {
        self.drop_preparation("the turn has more words");
        let wanted = self.spec.preemptive_generation && self.floor.is_empty() && !self.is_ending();
        if !wanted {
            if self.spec.preemptive_generation {
                self.because(|| "nothing is prepared: another reply is current".into());
            }
            return;
        }
        let now = self.now;
        if self.turn.first_onset.is_some_and(|onset| now.since(onset) > LONG_TURN) {
            self.because(|| "nothing is prepared: the turn is over 10 s".into());
            return;
        }
        if self.turn.preparations >= PREPARATIONS {
            self.because(|| "nothing is prepared: three times was enough for this turn".into());
            return;
        }
        self.turn.preparations += 1;
        let mut text = self.kept.clone();
        crate::endpoint::append(&mut text, &self.turn.text);
        let mut reply = self.new_reply(Kind::Turn, self.spec.allow_interruptions);
        reply.times = Some(TurnTimes::default());
        reply.prepared = Some((text.clone(), self.history.version));
        self.because(|| "preemptive_generation: the reply is prepared before the commit".into());
        self.ask_llm(&mut reply, Some(&text), false);
        self.prep = Some(Box::new(reply));
    }

    /// The prepared reply, if it is still the answer to `text`.
    fn adopt(&mut self, text: &str) -> Option<Reply> {
        let (prepared, version) = self.prep.as_ref()?.prepared.as_ref()?;
        if plain(prepared) != plain(text) {
            self.drop_preparation("the turn's text is another");
            return None;
        }
        if *version != self.history.version {
            self.drop_preparation("the history has changed");
            return None;
        }
        self.because(|| "the prepared reply is adopted".into());
        self.prep.take().map(|reply| *reply)
    }

    /// A turn is over: it enters history, and a reply begins where `answered`.
    /// One that was `typed` leaves what is prepared for the open turn alone.
    pub(crate) fn commit(
        &mut self,
        text: String,
        times: TurnTimes,
        end: Option<Time>,
        answered: bool,
        typed: bool,
    ) {
        self.idle_count = 0;
        let answered = answered && !self.is_ending();
        if answered {
            if self.floor.front().is_some_and(|head| head.interruptible || head.is_unheard_greeting()) {
                self.because(|| "killed: a turn is committed over it".into());
                self.kill(0, true);
            }
            self.kill_waiting();
        }
        let timeline = Timeline {
            speech_end: end.map(Time::as_seconds),
            committed: Some(self.now.as_seconds()),
            ..Timeline::default()
        };
        let times = TurnTimes { turn: self.next_turn, timeline, ..times };
        self.next_turn += 1;
        self.tell(Event::UtteranceCommitted { text: text.clone() });
        if !answered {
            self.drop_preparation("the turn gets no reply");
            self.remember(crate::history::said(crate::event::Role::User, text), None);
            self.tell_turn(Some(times));
            return;
        }
        let adopted = if typed { None } else { self.adopt(&text) };
        self.remember(crate::history::said(crate::event::Role::User, text), None);
        let fresh = adopted.is_none();
        let mut reply = match adopted {
            Some(reply) => reply,
            None => self.new_reply(Kind::Turn, self.spec.allow_interruptions),
        };
        let known = reply.times.take().unwrap_or_default();
        reply.turn = Some(times.turn);
        reply.spoke_until = end;
        let timeline = Timeline { llm_first_token: known.timeline.llm_first_token, ..times.timeline.clone() };
        reply.times = Some(TurnTimes { llm_ttft: known.llm_ttft, timeline, ..times });
        self.last_times.clone_from(&reply.times);
        self.last_end = end;
        reply.prepared = None;
        if !self.floor.is_empty() {
            self.because(|| "the answer waits until what is said before it has ended".into());
        }
        self.floor.push_back(reply);
        self.refresh_state();
        let index = self.floor.len() - 1;
        if fresh {
            if let Some(mut reply) = self.floor.remove(index) {
                self.ask_llm(&mut reply, None, false);
                self.floor.insert(index, reply);
            }
        } else {
            self.start_tools(index);
        }
    }

    /// The head's next step, after its tools.
    pub(crate) fn next_step(&mut self) {
        let Some(mut head) = self.floor.pop_front() else { return };
        head.tools_due = false;
        self.ask_llm(&mut head, None, false);
        self.floor.push_front(head);
        self.refresh_state();
    }

    fn ask_llm(&mut self, reply: &mut Reply, open: Option<&str>, fallback: bool) {
        let id = StepId { epoch: reply.epoch, step: reply.next_step };
        reply.next_step += 1;
        let tools = reply.rounds < self.spec.max_tool_steps;
        if !tools && reply.rounds > 0 {
            let most = self.spec.max_tool_steps;
            self.because(|| format!("max_tool_steps {most}: asked once more without tools"));
        }
        reply.step = Some(Step {
            id,
            asked: self.now,
            first: None,
            last: self.now,
            tools,
            fallback,
            guardrail: false,
            ended: false,
            given: false,
            parts: 0,
            calls: Vec::new(),
        });
        self.tell(Event::LlmStarted);
        let history = self.history.for_llm(open);
        let preemptive = open.is_some();
        self.outputs.push_back(Output::AskLlm(LlmRequest { step: id, history, tools, fallback, preemptive }));
    }

    /// News of a question. `None` of the floor's indices = the preparation.
    pub(crate) fn llm(&mut self, id: StepId, event: LlmEvent) {
        let asked = |reply: &Reply| reply.step.as_ref().is_some_and(|step| step.id == id && !step.ended);
        let index = self.floor.iter().position(asked);
        if index.is_none() && !self.prep.as_deref().is_some_and(asked) {
            return;
        }
        if let LlmEvent::Failed(reason) = event {
            self.llm_failed(index, reason);
            return;
        }
        let (now, phrasing) = (self.now, self.spec.phrasing);
        let reply = match index {
            Some(index) => self.floor.get_mut(index),
            None => self.prep.as_deref_mut(),
        };
        let Some(reply) = reply else { return };
        let Some(step) = reply.step.as_mut() else { return };
        step.last = now;
        if step.first.is_none() {
            step.first = Some(now);
            if step.id.step == 0
                && let Some(times) = reply.times.as_mut()
            {
                times.llm_ttft = Some(now.since(step.asked).as_secs_f64());
                times.timeline.llm_first_token = Some(now.as_seconds());
            }
        }
        let mut over = false;
        match event {
            LlmEvent::Began | LlmEvent::Failed(_) => {}
            LlmEvent::Text(mut text) => {
                let room = LONGEST.saturating_sub(reply.given);
                if phrasing == Phrasing::Stream
                    && let Some((end, _)) = text.char_indices().nth(room)
                {
                    text.truncate(end);
                    step.calls.clear();
                    over = true;
                }
                reply.given += text.chars().count();
                let words = words_of(&mut reply.utterances, id);
                let text = if words.as_ref().is_none_or(|words| words.text.is_empty()) {
                    text.trim_start()
                } else {
                    &text
                };
                if text.is_empty() && !over {
                    return;
                }
                let words = match words {
                    Some(words) => words,
                    None => {
                        reply.utterances.push_back(Utterance::new(From::Words(id), String::new(), false));
                        let last = reply.utterances.len() - 1;
                        &mut reply.utterances[last]
                    }
                };
                words.text.push_str(text);
                if phrasing == Phrasing::Stream {
                    cut(words, phrasing, &mut step.parts);
                }
                if !text.is_empty() {
                    let text = text.to_owned();
                    self.tell(Event::LlmText { text });
                }
            }
            LlmEvent::Flush => {
                if let Some(words) = words_of(&mut reply.utterances, id)
                    && words.cut_piece(words.text.len() - words.cut, step.parts)
                {
                    step.parts += 1;
                }
            }
            LlmEvent::Call { id, name, arguments } => {
                if step.tools && !step.guardrail {
                    step.calls.push(ToolAsk { id, name, arguments });
                }
            }
            LlmEvent::Guardrail => {
                step.guardrail = true;
                step.calls.clear();
            }
            LlmEvent::End { prompt_tokens, completion_tokens } => {
                self.llm_ended(index, id, (prompt_tokens, completion_tokens));
            }
        }
        if over {
            // As if it had ended here, without calls.
            self.tell(Event::Warning {
                text: format!("The language model's reply was cut at {LONGEST} characters."),
            });
            self.outputs.push_back(Output::CancelLlm(id));
            self.llm_ended(index, id, (0, 0));
        }
    }

    fn llm_ended(
        &mut self,
        index: Option<usize>,
        id: StepId,
        (prompt_tokens, completion_tokens): (u32, u32),
    ) {
        let phrasing = self.spec.phrasing;
        let reply = match index {
            Some(index) => self.floor.get_mut(index),
            None => self.prep.as_deref_mut(),
        };
        let Some(reply) = reply else { return };
        let Some(step) = reply.step.as_mut() else { return };
        let words = words_of(&mut reply.utterances, id);
        if phrasing == Phrasing::Stream && words.is_none() && step.calls.is_empty() {
            self.llm_failed(index, "empty answer".into());
            return;
        }
        step.ended = true;
        if let Some(words) = words {
            words.text.truncate(words.text.trim_end().len());
            words.cut = words.cut.min(words.text.len());
            words.complete = true;
            cut(words, phrasing, &mut step.parts);
        }
        let guarded = step.guardrail;
        if guarded {
            reply.interruptible = false;
        }
        let held = reply.held;
        self.recovered(Stage::Llm);
        self.tell(Event::LlmStopped { prompt_tokens, completion_tokens });
        if let Some(index) = index {
            if guarded && held && index == 0 {
                self.resume("a guardrail's words cannot be held");
            }
            self.start_tools(index);
        }
    }

    /// The LLM gave nothing for too long.
    pub(crate) fn llm_silent(&mut self) {
        let now = self.now;
        let late = |reply: &Reply| {
            let step = reply.step.as_ref().filter(|step| !step.ended && step.last + SILENT <= now)?;
            Some((step.id, step.last, step.first.is_none()))
        };
        let found =
            self.floor.iter().enumerate().find_map(|(index, reply)| Some((Some(index), late(reply)?)));
        let found = found.or_else(|| Some((None, late(self.prep.as_deref()?)?)));
        if let Some((index, (id, last, first))) = found {
            self.because(|| {
                let token = if first { "first" } else { "further" };
                format!("the LLM has failed: no {token} token for 5s (fixed) since {last}")
            });
            self.outputs.push_back(Output::CancelLlm(id));
            self.llm_failed(index, "timeout".into());
        }
    }

    fn llm_failed(&mut self, index: Option<usize>, reason: String) {
        self.failed(Stage::Llm, reason);
        let Some(index) = index else {
            if let Some(prep) = self.prep.take()
                && prep.voiced
            {
                self.outputs.push_back(Output::Cancel(prep.epoch));
            }
            return;
        };
        let Some(mut reply) = self.floor.remove(index) else { return };
        let first = reply.step.as_ref().is_some_and(|step| step.id.step == 0);
        if first && let Some(times) = reply.times.as_mut() {
            (times.llm_ttft, times.timeline.llm_first_token) = (None, None);
        }
        let again =
            self.spec.fallback_llm && reply.step.as_ref().is_some_and(|step| !step.fallback && !step.given);
        if again {
            if let Some(step) = &reply.step {
                let from = From::Words(step.id);
                reply.utterances.retain(|utterance| utterance.from != from);
            }
            self.because(|| "the fallback model is asked".into());
            self.ask_llm(&mut reply, None, true);
            self.floor.insert(index, reply);
            return;
        }
        if let Some(step) = reply.step.as_mut() {
            step.ended = true;
            step.calls.clear();
            if let Some(words) = words_of(&mut reply.utterances, step.id) {
                // Only phrases that the voice has been given are spoken.
                while words.pieces.back().is_some_and(|piece| piece.asked.is_none()) {
                    words.pieces.pop_back();
                }
                let end = words.pieces.back().map_or(words.played, |piece| piece.end);
                words.text.truncate(end);
                words.cut = end;
                words.complete = true;
            }
        }
        self.apologise(&mut reply);
        self.floor.insert(index, reply);
        self.refresh_state();
    }

    /// The error message, as the last utterance of a reply.
    pub(crate) fn apologise(&mut self, reply: &mut Reply) {
        if let Some(text) = self.spec.error_message.clone() {
            self.because(|| "error_message is said".into());
            let apology = self.fixed(Source::Error, text);
            reply.utterances.push_back(apology);
        }
    }

    /// A guardrail fired for the turn that was committed last.
    pub(crate) fn guardrail(&mut self, say: &str) {
        let say = say.trim();
        let Some(turn) = self.last_times.as_ref().map(|times| times.turn).filter(|_| !self.is_ending())
        else {
            return;
        };
        if say.is_empty() {
            return;
        }
        self.because(|| "a guardrail fired: its words take the reply's place".into());
        let index = self.floor.iter().position(|reply| reply.turn == Some(turn));
        let sounded = self.floor.get(index.unwrap_or(usize::MAX)).is_none_or(|reply| reply.times.is_none());
        if let Some(index) = index {
            self.kill(index, true);
        }
        let mut reply = self.message(Kind::Guardrail, Source::Guardrail, say.to_owned(), false);
        reply.turn = Some(turn);
        if !sounded {
            reply.times.clone_from(&self.last_times);
            reply.spoke_until = self.last_end;
        }
        self.floor.insert(index.unwrap_or(self.floor.len()).min(self.floor.len()), reply);
        self.refresh_state();
    }
}

fn words_of(utterances: &mut std::collections::VecDeque<Utterance>, id: StepId) -> Option<&mut Utterance> {
    utterances.iter_mut().rev().find(|utterance| utterance.from == From::Words(id))
}
