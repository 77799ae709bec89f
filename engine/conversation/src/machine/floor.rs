//! The floor: the queue of replies. The head of the queue has the floor.
//!
//! States of a reply on the floor:
//!
//! ```text
//!               first sample
//! WAITING ---------------------> SPEAKING
//!  |  ^ | <--------------------    |  ^
//!  |  | |     finish_utterance     |  |
//!  |  | +-- hold --> HELD <- hold -+  |
//!  |  +--- resume --'   '--- resume --+
//!  |
//!  +-- end_reply --> ENDED <-- cancel_reply, from every state
//! ```
//!
//! WAITING: no utterance has started. HELD: user speech pauses the reply. `end_reply` ends a head
//! without utterances, running generation or awaited tools, even if it is held.

use crate::contract::direction;
use crate::contract::event::{AgentState, Event, HistoryItem, TurnTimes};
use crate::contract::input::Epoch;
use crate::contract::output::{Output, SpeechSource};
use crate::contract::spec::Phrasing;
use crate::contract::time::Time;
use crate::machine::conversation::Conversation;
use crate::machine::history::assistant_item;
use crate::machine::phrase;
use crate::machine::reply::{Reply, ReplyKind, Utterance, UtteranceOrigin, WaitReason};
use crate::machine::timers::TimerKind;

impl Conversation {
    pub(crate) fn new_reply(&mut self, kind: ReplyKind, interruptible: bool) -> Reply {
        let epoch = Epoch(self.next_epoch);
        self.next_epoch = self.next_epoch.wrapping_add(1);
        Reply::new(epoch, kind, interruptible)
    }

    /// A reply with one fixed text.
    pub(crate) fn new_message_reply(
        &mut self,
        kind: ReplyKind,
        source: SpeechSource,
        text: String,
        interruptible: bool,
    ) -> Reply {
        let mut reply = self.new_reply(kind, interruptible);
        reply.utterances.push_back(self.new_message_utterance(source, text));
        reply
    }

    /// An utterance with one fixed text without its directions, cut into segments for the TTS.
    pub(crate) fn new_message_utterance(&self, source: SpeechSource, text: String) -> Utterance {
        let (text, directions) = direction::split(&text);
        let mut utterance = Utterance::new(UtteranceOrigin::Message(source), text, true);
        utterance.directions = directions;
        cut_segments(&mut utterance, self.spec.phrasing, &mut 0);
        utterance
    }

    /// Recomputes the agent's state and emits it if it changed.
    pub(crate) fn update_agent_state(&mut self) {
        let state = match self.floor.front() {
            Some(head) if head.held => AgentState::Listening,
            Some(head) if head.sounding_utterance().is_some() => AgentState::Speaking,
            _ if self.floor.iter().any(|reply| reply.counts_as_thinking() && !reply.held) => {
                AgentState::Thinking
            }
            _ => AgentState::Listening,
        };
        if state != self.agent_state {
            self.agent_state = state;
            self.emit(Event::AgentState { state });
        }
    }

    /// Performs the next action that needs no further input. Returns false if there is none.
    pub(crate) fn advance(&mut self) -> bool {
        let now = self.now;
        let user_speaking = self.speech.active;
        if self.spec.preemptive_tts
            && self.floor.is_empty()
            && self.preemptive_reply.is_some()
            && now >= self.tts_allowed_at(Time::ZERO)
        {
            self.request_preemptive_tts();
        }
        let Some(head) = self.floor.front() else { return false };
        let tool_running = self
            .running_tools
            .iter()
            .any(|tool| tool.generation.epoch == head.epoch && !tool.orphaned);
        if head.awaiting_tools
            && !tool_running
            && head.utterances.iter().all(Utterance::is_tool_result_message)
        {
            self.explain_decision(|| {
                "the next generation is requested: the speech was played and all tool results have \
                 arrived"
                    .into()
            });
            self.start_next_generation();
            return true;
        }
        let (interruptible, held, may_ask) =
            (head.interruptible, head.held, now >= self.tts_allowed_at(head.not_before));
        let Some(utterance) = head.utterances.front() else {
            if head.is_generating() || head.awaiting_tools {
                return false;
            }
            self.end_reply();
            return true;
        };
        if utterance.segments.is_empty() {
            if !utterance.complete {
                return false;
            }
            self.finish_utterance();
            return true;
        }
        if may_ask && utterance.next_request(self.spec.phrasing).is_some() {
            self.request_tts();
            return true;
        }
        let first = utterance.played_bytes == 0 && utterance.started_at.is_none();
        let Some(index) = utterance.segments.iter().position(|segment| !segment.play_allowed)
        else {
            return false;
        };
        if utterance.segments[index].ready_at.is_none() || held {
            if !may_ask && utterance.segments[index].requested_at.is_none() {
                self.explain_wait(WaitReason::Spacing);
            }
            return false;
        }
        let waits_for_silence = self.head_waits_for_silence();
        if waits_for_silence && self.silence_deadline().is_some() {
            self.explain_wait(WaitReason::Silence);
            return false;
        }
        if index == 0 && first && interruptible && user_speaking {
            if !head.is_unheard_opening() && !waits_for_silence && self.should_hold() {
                self.explain_decision(|| "held before its first sample: the user speaks".into());
                self.hold();
                return true;
            }
            self.explain_wait(WaitReason::UserSpeech);
            return false;
        }
        let Some(segment) = self
            .floor
            .front_mut()
            .and_then(|head| head.utterances.front_mut()?.segments.get_mut(index))
        else {
            return false;
        };
        segment.play_allowed = true;
        if let Some(id) = segment.id {
            self.outputs.push_back(Output::Play(id));
        }
        true
    }

    /// Explains why the front utterance does not start yet, once per reason.
    fn explain_wait(&mut self, wait: WaitReason) {
        let Some(head) = self.floor.front_mut() else { return };
        let (not_before, kind) = (head.not_before, head.kind);
        let Some(utterance) = head.utterances.front_mut() else { return };
        if utterance.explained_wait.replace(wait) == Some(wait) {
            return;
        }
        let (at, delay) = (self.tts_allowed_at(not_before), self.spec.min_consecutive_speech_delay);
        self.explain_decision(|| match wait {
            WaitReason::UserSpeech => "the first sample waits: the user is speaking".into(),
            WaitReason::Silence => {
                "the first sample waits: nobody may have spoken for min_silence_before_answer"
                    .into()
            }
            WaitReason::Spacing if at == not_before => {
                let message = match kind {
                    ReplyKind::RecordingMessage => "recording_message",
                    _ => "greeting",
                };
                format!("the TTS is requested at {at}: {message}.wait")
            }
            WaitReason::Spacing => {
                format!("the TTS is requested at {at}: min_consecutive_speech_delay {delay:?}")
            }
        });
    }

    /// The earliest time of a TTS request for a new utterance.
    pub(crate) fn tts_allowed_at(&self, not_before: Time) -> Time {
        let spaced = self
            .last_playout_end
            .map_or(Time::ZERO, |end| end + self.spec.min_consecutive_speech_delay);
        not_before.max(spaced)
    }

    /// The deadline for the head's TTS request, if the request must wait.
    pub(crate) fn spacing_deadline(&self) -> Option<Time> {
        let waits = |reply: &Reply| {
            let front = reply.utterances.front();
            front.is_some_and(|utterance| utterance.next_request(self.spec.phrasing).is_some())
        };
        let not_before = match self.floor.front() {
            Some(head) => waits(head).then_some(head.not_before),
            None => self
                .preemptive_reply
                .as_ref()
                .filter(|preemptive_reply| self.spec.preemptive_tts && waits(preemptive_reply))
                .map(|_| Time::ZERO),
        };
        not_before.map(|at| self.tts_allowed_at(at)).filter(|at| *at > self.now)
    }

    /// Ends the front utterance: its last sample was played, or it had no words.
    fn finish_utterance(&mut self) {
        let now = self.now;
        let Some(head) = self.floor.front_mut() else { return };
        let Some(mut utterance) = head.utterances.pop_front() else { return };
        if utterance.started_at.is_some() {
            // The next utterance is not ducked: it may be uninterruptible, and such speech is never
            // ducked.
            self.unduck(false);
            self.timers.clear(TimerKind::HeardUpdate);
            utterance.heard_bytes = utterance.heard_bytes.max(utterance.played_bytes);
            self.last_playout_end = Some(now);
            self.close_utterance(utterance, false);
        }
        // A reply that ends here changes from speaking to listening directly. `end_reply` updates
        // the state, so that no thinking state appears in between.
        if self.floor.front().is_some_and(|head| {
            !head.utterances.is_empty() || head.is_generating() || head.awaiting_tools
        }) {
            self.update_agent_state();
        }
    }

    /// Emits the end of an utterance that played, and adds its heard text to the history.
    fn close_utterance(&mut self, mut utterance: Utterance, interrupted: bool) {
        let now = self.now;
        let text = utterance.update_heard_text(now).to_owned();
        let Some(began) = utterance.started_at else { return };
        self.emit(Event::AgentStoppedSpeaking { text: text.clone(), utterance: utterance.id });
        if !text.is_empty() {
            let item = assistant_item(text, interrupted, utterance.id, began, utterance.in_context);
            let ended_at = utterance.silent_since.filter(|end| *end < now);
            self.append_history(HistoryItem { ended_at, ..item }, utterance.generation);
        }
    }

    /// Ends the head, which has nothing left to say, generate or wait for.
    fn end_reply(&mut self) {
        let Some(mut reply) = self.floor.pop_front() else { return };
        self.resume_playout();
        self.last_reply_end = self.now;
        self.note_answer_end(&reply);
        self.timers.clear(TimerKind::Resume);
        self.emit_turn_times(reply.take_turn_times());
        self.emit_turn_reply_heard(&reply, false);
        self.farewell_spoken |= reply.ends_call;
        self.update_agent_state();
        match reply.kind {
            ReplyKind::Exit => self.exit_message_ended(),
            // Its TTS may have failed, or it has no words.
            ReplyKind::RecordingMessage => self.recording_message_pending = false,
            _ => {}
        }
    }

    /// Kills a reply: cancels its epoch, stops its LLM and TTS requests. The history gets the heard
    /// text.
    pub(crate) fn cancel_reply(&mut self, index: usize, emit_interruption: bool) {
        let now = self.now;
        let Some(mut reply) = self.floor.remove(index) else { return };
        // No event has announced a reply that waits behind uninterruptible speech, so its end emits
        // no interruption.
        let never_announced = index > 0
            && !reply.has_spoken
            && self.floor.front().is_some_and(|head| !head.interruptible);
        let emit_interruption =
            emit_interruption && !never_announced && !reply.is_unheard_opening();
        if emit_interruption && !core::mem::replace(&mut reply.interruption_emitted, true) {
            self.emit(Event::AgentInterrupted);
        }
        if reply.tts_requested {
            self.outputs.push_back(Output::Cancel(reply.epoch));
        }
        if index == 0 {
            self.resume_playout();
        }
        if let Some(mut utterance) =
            reply.utterances.pop_front().filter(|utterance| utterance.started_at.is_some())
        {
            utterance.update_heard_text(now);
            if let Some(segment) = utterance.segments.front().filter(|segment| segment.has_started)
            {
                let heard = utterance.text[segment.start..utterance.heard_bytes.max(segment.start)]
                    .to_owned();
                let position = segment.position(now).as_seconds();
                let words = self.departures.as_ref().and_then(|departures| {
                    departures.words_event(&utterance, utterance.heard_bytes, now)
                });
                self.emit(Event::PlayoutFinished { position, interrupted: true, heard });
                words.into_iter().for_each(|words| self.emit(words));
            }
            self.last_playout_end = Some(now);
            self.timers.clear(TimerKind::HeardUpdate);
            self.close_utterance(utterance, true);
        }
        if let Some(generation) = reply.generation.take().filter(|generation| !generation.ended) {
            self.outputs.push_back(Output::CancelLlm(generation.id));
            self.emit(Event::LlmCancelled);
        }
        self.orphan_tools(reply.epoch);
        if index == 0 {
            self.timers.clear(TimerKind::Resume);
            self.unduck(false);
        }
        self.last_reply_end = now;
        self.note_answer_end(&reply);
        // A reply that is cancelled before its first sample emits no `TurnReplyHeard`. The turn
        // times carry the time of its interruption instead.
        if let Some(times) =
            reply.turn_times.as_mut().filter(|_| reply.interruption_emitted && !reply.has_spoken)
        {
            times.timeline.interrupted = Some(now.as_seconds());
        }
        self.emit_turn_times(reply.take_turn_times());
        self.emit_turn_reply_heard(&reply, true);
        self.update_agent_state();
    }

    /// Emits a turn's latencies, if they have not been emitted yet.
    pub(crate) fn emit_turn_times(&mut self, times: Option<TurnTimes>) {
        if let Some(times) = times {
            self.emit(Event::Turn(times));
        }
    }

    /// Emits until when a turn's reply was heard, after the reply has ended. A reply without a
    /// first sample emits nothing.
    fn emit_turn_reply_heard(&mut self, reply: &Reply, cut: bool) {
        let (true, Some(turn), Some(end)) = (reply.has_spoken, reply.turn, self.last_playout_end)
        else {
            return;
        };
        let (end, onset) = match reply.silenced_by {
            Some((at, onset)) => (at, Some(onset)),
            None => (end, None),
        };
        let now = self.now;
        let cut = cut.then(|| onset.unwrap_or(now).as_seconds());
        self.emit(Event::TurnReplyHeard {
            turn,
            heard_end: end.as_seconds(),
            interrupted: cut,
            barge_in: onset.map(|onset| end.since(onset).as_secs_f64()),
            providers: reply.has_new_provider.then(|| reply.providers.clone()),
        });
    }

    /// Cancels the preemptive reply to the open turn.
    pub(crate) fn discard_preemptive_reply(&mut self, why: &'static str) {
        let Some(mut preemptive_reply) = self.preemptive_reply.take() else { return };
        self.explain_decision(|| format!("the preemptive reply is discarded: {why}"));
        if preemptive_reply.tts_requested {
            self.outputs.push_back(Output::Cancel(preemptive_reply.epoch));
        }
        if let Some(generation) =
            preemptive_reply.generation.take().filter(|generation| !generation.ended)
        {
            self.outputs.push_back(Output::CancelLlm(generation.id));
            self.emit(Event::LlmCancelled);
        }
    }

    /// Whether the floor is free: no reply (playing, held, queued or preemptive), no running tool,
    /// no open turn, no user speech.
    pub(crate) fn is_floor_free(&self) -> bool {
        self.floor.is_empty()
            && self.preemptive_reply.is_none()
            && self.running_tools.is_empty()
            && !self.turn.is_open()
            && !self.speech.active
    }
}

/// Cuts the available text into segments. `segment_index` counts them.
pub(crate) fn cut_segments(utterance: &mut Utterance, phrasing: Phrasing, segment_index: &mut u32) {
    if phrasing == Phrasing::Flushed {
        if utterance.complete
            && utterance
                .push_segment(utterance.text.len() - utterance.segmented_bytes, *segment_index)
        {
            *segment_index += 1;
        }
        return;
    }
    loop {
        let rest = &utterance.text[utterance.segmented_bytes..];
        let Some(len) =
            phrase::next_phrase_len(rest, utterance.segmented_bytes == 0, utterance.complete)
        else {
            return;
        };
        let spoken = rest[..len].chars().any(char::is_alphanumeric);
        if !spoken && utterance.complete {
            utterance.segmented_bytes += len;
        } else if utterance.push_segment(len, *segment_index) {
            *segment_index += 1;
        }
    }
}
