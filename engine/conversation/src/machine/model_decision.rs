//! Whether the agent speaks without being addressed, if the model decides
//! ([`Decider::Model`](crate::contract::participation::Decider::Model)).
//!
//! The utterances that the rules leave open are collected. One request is about all of them, and
//! offers the tool [`STAY_SILENT`].
//!
//! ```text
//!            open utterance          request          text, end
//! NOTHING ------------------> COLLECTED -----> PENDING -----------> the reply goes to the floor
//!    ^    <-- answer, age -------'               |
//!    +------- stay_silent, failure, answer ------+
//! ```
//!
//! PENDING: the reply is not on the floor, so nothing of it is spoken or shown. Its events are held
//! back until the generation ends, because a model may write text before it calls the tool.

use core::time::Duration;

use crate::contract::event::{Event, Stage, TurnTimes};
use crate::contract::input::{GenerationId, LlmEvent};
use crate::contract::output::{Output, STAY_SILENT};
use crate::contract::participation::Decider;
use crate::contract::time::Time;
use crate::machine::conversation::Conversation;
use crate::machine::open_words::{OpenUtterance, PendingDecision};
use crate::machine::reply::{Reply, ReplyKind};
use crate::machine::think::{MAX_REPLY_CHARS, PROVIDER_TIMEOUT};

/// Minimum time between two requests.
const MIN_REQUEST_INTERVAL: Duration = Duration::from_secs(10);

impl Conversation {
    /// Whether the model decides about utterances that the rules leave open.
    pub(crate) fn model_decides(&self) -> bool {
        self.group_rules().is_some_and(|rules| rules.decide == Decider::Model)
    }

    /// Collects an utterance that was just committed and that the rules leave open.
    pub(crate) fn collect_open_utterance(
        &mut self,
        speaker: Option<String>,
        times: TurnTimes,
        speech_end: Option<Time>,
    ) {
        let committed_at = self.now;
        self.forget_old_utterances();
        let utterance = OpenUtterance { committed_at, speaker, times, speech_end };
        self.decisions.collected.push(utterance);
    }

    fn forget_old_utterances(&mut self) {
        let now = self.now;
        self.decisions.collected.retain(|utterance| utterance.is_fresh(now));
    }

    /// The agent answers something: the model is not asked about what was said before. A pending
    /// request is cancelled without a trace, because nobody knows of it.
    pub(crate) fn cancel_decision(&mut self, why: &'static str) {
        self.decisions.collected.clear();
        let Some(pending) = self.decisions.pending.take() else { return };
        self.explain_decision(|| format!("the undecided request is cancelled: {why}"));
        if let Some(generation) = pending.reply.generation {
            self.outputs.push_back(Output::CancelLlm(generation.id));
        }
    }

    /// Speech of the agent begins. An answer may answer what was said before it.
    pub(crate) fn forget_answered_utterances(&mut self) {
        if self.floor.front().is_some_and(Reply::counts_as_thinking) {
            self.decisions.collected.clear();
        }
    }

    /// When the model is asked next. `None` while anybody speaks: the words belong to the question.
    pub(crate) fn decision_deadline(&self) -> Option<Time> {
        let oldest = self.decisions.collected.first()?;
        let rules = self.group_rules()?;
        let is_busy = self.decisions.pending.is_some()
            || !self.floor.is_empty()
            || self.speech.active
            || self.turn.is_open()
            || self.is_ending();
        if is_busy {
            return None;
        }
        let interval = self.decisions.last_request_at.map(|last| last + MIN_REQUEST_INTERVAL);
        let silence = self.speech.end + rules.min_silence_before_answer;
        Some(oldest.committed_at.max(silence).max(interval.unwrap_or_default()))
    }

    /// Asks the model about the collected utterances.
    pub(crate) fn decision_due(&mut self) {
        self.forget_old_utterances();
        let count = self.decisions.collected.len();
        let Some(utterance) = self.decisions.collected.pop() else {
            self.explain_decision(|| "the model is not asked: the words are too old".into());
            return;
        };
        self.decisions.collected.clear();
        self.decisions.last_request_at = Some(self.now);
        self.explain_decision(|| format!("the model is asked, open utterances: {count}"));
        let mut reply = self.new_reply(ReplyKind::Turn, self.spec.allow_interruptions);
        reply.is_undecided = true;
        self.request_llm(&mut reply, None, false);
        self.decisions.pending = Some(Box::new(PendingDecision::new(reply, utterance)));
    }

    /// Holds an event of the pending request back. Returns the event if it is of another one.
    pub(crate) fn hold_undecided_event(
        &mut self,
        id: GenerationId,
        event: LlmEvent,
    ) -> Option<LlmEvent> {
        let now = self.now;
        let Some(pending) = self.decisions.pending_of(id) else { return Some(event) };
        if let Some(generation) = pending.reply.generation.as_mut() {
            generation.last_token_at = now;
        }
        match event {
            LlmEvent::Failed(reason) => self.decision_failed(reason, false),
            LlmEvent::Exhausted(reason) => self.decision_failed(reason, true),
            LlmEvent::End { prompt_tokens, completion_tokens } => {
                self.decide_by_answer(event, (prompt_tokens, completion_tokens));
            }
            LlmEvent::ToolCall { name, .. } if name == STAY_SILENT => pending.is_silent = true,
            _ if pending.is_silent => {}
            LlmEvent::Text(text) => {
                pending.held_chars += text.chars().count();
                match pending.held_events.last_mut() {
                    Some(LlmEvent::Text(held)) => held.push_str(&text),
                    _ => pending.held_events.push(LlmEvent::Text(text)),
                }
                if pending.held_chars > MAX_REPLY_CHARS {
                    // The rules of an ordinary reply cut it.
                    self.speak_undecided_reply();
                }
            }
            LlmEvent::Started => {}
            event => pending.held_events.push(event),
        }
        None
    }

    /// Holds the results of a knowledge search for the pending request back. Returns other events.
    pub(crate) fn hold_undecided_snippets(&mut self, event: Event) -> Option<Event> {
        match self.decisions.pending.as_deref_mut() {
            Some(pending) if matches!(event, Event::Snippets { .. }) => {
                pending.held_snippets.push(event);
                None
            }
            _ => Some(event),
        }
    }

    /// The generation has ended: its answer is spoken, or nothing has happened.
    fn decide_by_answer(&mut self, end: LlmEvent, (prompt_tokens, completion_tokens): (u32, u32)) {
        let Some(pending) = self.decisions.pending.as_deref_mut() else { return };
        if !pending.says_nothing() {
            pending.held_events.push(end);
            self.speak_undecided_reply();
            return;
        }
        self.decisions.pending = None;
        self.explain_decision(|| "the model stays silent".into());
        self.stage_recovered(Stage::Llm);
        // Its tokens are used. No client shows this event without that of the start.
        self.emit(Event::LlmStopped { prompt_tokens, completion_tokens });
    }

    /// Puts the reply on the floor, where it is an answer as any other.
    fn speak_undecided_reply(&mut self) {
        let Some(pending) = self.decisions.pending.take() else { return };
        let PendingDecision { mut reply, utterance, held_events, held_snippets, .. } = *pending;
        let Some(id) = reply.generation.as_ref().map(|generation| generation.id) else { return };
        self.explain_decision(|| "the model has decided to answer".into());
        reply.is_undecided = false;
        reply.turn = Some(utterance.times.turn);
        reply.user_speech_end = utterance.speech_end;
        reply.providers.stt.clone_from(&utterance.times.providers.stt);
        self.last_turn_times = Some(utterance.times);
        self.last_turn_speech_end = utterance.speech_end;
        self.people.answered = Some(utterance.speaker);
        self.floor.push_back(reply);
        self.update_agent_state();
        self.emit(Event::LlmStarted);
        held_snippets.into_iter().for_each(|event| self.emit(event));
        held_events.into_iter().for_each(|event| self.handle_llm_event(id, event));
    }

    /// Fails the pending request if it produced no token for too long. Returns whether it did.
    pub(crate) fn decision_timed_out(&mut self) -> bool {
        let generation = self.decisions.pending_reply().and_then(|reply| reply.generation.as_ref());
        let Some((id, last)) = generation.map(|found| (found.id, found.last_token_at)) else {
            return false;
        };
        if last + PROVIDER_TIMEOUT > self.now {
            return false;
        }
        self.outputs.push_back(Output::CancelLlm(id));
        self.decision_failed("timeout".into(), false);
        true
    }

    /// The pending request has failed. Nobody waits for an answer, so there is no error message,
    /// and the failure does not end the conversation.
    fn decision_failed(&mut self, reason: String, is_exhausted: bool) {
        self.emit(Event::Error { stage: Stage::Llm, reason });
        let Some(mut pending) = self.decisions.pending.take() else { return };
        let is_fallback =
            pending.reply.generation.as_ref().is_some_and(|generation| generation.is_fallback);
        let has_decided = pending.is_silent;
        if !self.spec.fallback_llm || is_exhausted || is_fallback || has_decided {
            self.explain_decision(|| "the agent stays silent: the model has failed".into());
            return;
        }
        self.explain_decision(|| "the fallback LLM is requested".into());
        self.request_llm(&mut pending.reply, None, true);
        pending.held_chars = 0;
        pending.held_events.clear();
        self.decisions.pending = Some(pending);
    }
}
