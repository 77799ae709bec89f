//! The call as a whole: greeting, commands, silence, limit, end.
//!
//! Assumptions where the turn-taking page leaves room:
//!
//! - A `say` that interrupts is an `interrupt` first, including the queue.
//! - The message of a recording comes when the floor is free, before the warning. If the user
//!   speaks before its first sample, it waits until the floor is free again.
//! - An answer that waits for other speech is not speech yet: an interrupt discards it even if
//!   answers cannot be interrupted.

use serde_json::{Value, json};

use super::barge_in::to_seconds;
use super::case::{ActionKind, Message, Micros};
use super::record::{CallRecord, Reply, ReplyKind};
use super::turn::TurnSource;

impl CallRecord<'_> {
    pub(crate) fn start(&mut self) {
        if let Some(greeting) = self.case.settings.greeting.clone() {
            self.say_first(ReplyKind::Greeting, &greeting);
        }
        self.settle();
    }

    fn say_first(&mut self, kind: ReplyKind, words: &Message) {
        let allow = self.case.settings.allow_interruptions;
        let floor_position = self.next_floor_position();
        let r =
            self.new_message_reply(kind, &words.text, words.audio_duration, allow, floor_position);
        self.replies[r].not_before = words.delay;
    }

    /// The user has not heard the beginning of the recording message, and no TTS has failed for it.
    pub(crate) fn can_say_recording_message(&self) -> bool {
        let is_done = |reply: &Reply| reply.has_spoken() || reply.has_nothing_left();
        self.case.settings.recording_message.is_some()
            && !self.ending
            && self.floor_is_free()
            && !self
                .replies
                .iter()
                .any(|reply| reply.kind == ReplyKind::RecordingMessage && is_done(reply))
    }

    pub(crate) fn say_recording_message(&mut self) {
        if let Some(words) = self.case.settings.recording_message.clone() {
            self.say_first(ReplyKind::RecordingMessage, &words);
        }
    }

    pub(crate) fn apply_action(&mut self, what: ActionKind) {
        match what {
            ActionKind::End => self.end_call("ended_by_api", Value::Null),
            ActionKind::Leave => self.end_call("user_left", json!({"id": "user"})),
            ActionKind::Context(text) => {
                self.append_history(json!({"role": "system", "text": text, "interrupted": false}));
            }
            ActionKind::Interrupt | ActionKind::Say { .. } | ActionKind::Respond(_)
                if self.ending => {}
            ActionKind::Interrupt => self.interrupt(),
            ActionKind::Respond(text) => self.commit_turn(&text, None, TurnSource::Typed),
            ActionKind::Say {
                text,
                audio_duration: audio,
                interrupt,
                allow_interruptions: allow,
            } => self.say(&text, audio, interrupt, allow),
        }
    }

    fn interrupt(&mut self) {
        let Some(head) = self.head() else { return };
        if !self.replies[head].interruptible && !self.replies[head].is_unheard_opening() {
            return;
        }
        self.cancel_reply(head, true);
        for r in self.floor() {
            if self.replies[r].interruptible || self.replies[r].kind == ReplyKind::Answer {
                self.cancel_reply(r, false);
            }
        }
    }

    fn say(&mut self, text: &str, audio: Micros, interrupt: bool, allow: bool) {
        if let Some(head) = self.head()
            && self.replies[head].is_unheard_opening()
        {
            self.cancel_reply(head, false);
        }
        if interrupt {
            self.interrupt();
        }
        let floor_position = self.next_floor_position();
        self.new_message_reply(ReplyKind::Say, text, audio, allow, floor_position);
    }

    /// Nothing is playing, held, queued or pending, no tool runs, no turn is open and the user is
    /// silent.
    fn floor_is_free(&self) -> bool {
        self.head().is_none()
            && self.preemptive_reply().is_none()
            && self.tools.iter().all(|tool| tool.result_at.is_some())
            && !self.turn_is_open()
            && self.user_input.active_segment().is_none()
    }

    /// The agent said goodbye, and nothing else is to be said.
    pub(crate) fn is_over(&self) -> bool {
        self.farewell_spoken && !self.ending && self.floor_is_free()
    }

    pub(crate) fn warning_at(&self) -> Option<Micros> {
        let at = self.case.settings.max_call_duration? - self.case.settings.call_warning_before;
        (!self.warning_emitted && !self.ending && at >= 0).then_some(at)
    }

    pub(crate) fn warning_due(&mut self) {
        self.warning_emitted = true;
        let limit = self.case.settings.max_call_duration.unwrap_or(0);
        let fields =
            json!({"call_duration": to_seconds(self.now), "max_call_duration": to_seconds(limit)});
        self.emit("max_call_duration_warning", fields);
        // Immediately, before anything else that is due now can take the floor.
        if self.can_say_warning() {
            self.say_warning();
        }
    }

    pub(crate) fn can_say_warning(&self) -> bool {
        self.warning_emitted
            && !self.warning_said
            && !self.ending
            && self.case.settings.warning_message.is_some()
            && self.case.settings.max_call_duration.is_some_and(|limit| self.now < limit)
            && self.floor_is_free()
    }

    pub(crate) fn say_warning(&mut self) {
        self.warning_said = true;
        if let Some(words) = self.case.settings.warning_message.clone() {
            let floor_position = self.next_floor_position();
            self.new_message_reply(
                ReplyKind::Warning,
                &words.text,
                words.audio_duration,
                self.case.settings.allow_interruptions,
                floor_position,
            );
        }
    }

    pub(crate) fn idle_at(&self) -> Option<Micros> {
        let timeout = self.case.settings.idle_timeout?;
        if self.ending
            || self.head().is_some()
            || self.turn_is_open()
            || self.tools.iter().any(|tool| tool.result_at.is_none())
            || self.user_input.active_segment().is_some()
        {
            return None;
        }
        let placed = |reply: &&Reply| reply.floor_position.is_some();
        let gone = self.replies.iter().filter(placed).filter_map(|reply| reply.ended_at);
        let results = self.tools.iter().filter_map(|tool| tool.result_at);
        let sounds = self.playout_ends.iter().copied();
        let idles = self.callouts.iter().map(|(at, _)| *at);
        let latest = gone
            .chain(results)
            .chain(sounds)
            .chain(idles)
            .chain(self.user_input.last_stop_at())
            .max();
        Some(latest.unwrap_or(0) + timeout)
    }

    pub(crate) fn idle_due(&mut self) {
        let turns = self.turns.len();
        let in_a_row = self.callouts.iter().filter(|(_, before)| *before == turns).count();
        if self.case.settings.idle_end_after.is_some_and(|max_callouts| in_a_row >= max_callouts) {
            self.end_call("idle", Value::Null);
            return;
        }
        self.emit("user.idle", json!({}));
        self.callouts.push((self.now, turns));
        let messages = &self.case.settings.idle_messages;
        if messages.is_empty() {
            return;
        }
        let words = messages[self.idle_messages_spoken % messages.len()].clone();
        self.idle_messages_spoken += 1;
        let floor_position = self.next_floor_position();
        self.new_message_reply(
            ReplyKind::Idle,
            &words.text,
            words.audio_duration,
            self.case.settings.allow_interruptions,
            floor_position,
        );
    }

    pub(crate) fn limit_at(&self) -> Option<Micros> {
        self.case.settings.max_call_duration.filter(|_| !self.ending)
    }

    pub(crate) fn limit_reached(&mut self) {
        let limit = to_seconds(self.case.settings.max_call_duration.unwrap_or(0));
        let fields = json!({"call_duration": to_seconds(self.now), "max_call_duration": limit});
        self.emit("max_call_duration_timeout", fields);
        self.ending = true;
        self.stop_all_speech();
        match self.case.settings.exit_message.clone() {
            Some(words) => {
                let floor_position = self.next_floor_position();
                self.new_message_reply(
                    ReplyKind::Exit,
                    &words.text,
                    words.audio_duration,
                    false,
                    floor_position,
                );
            }
            None => self.end_call("max_call_duration", Value::Null),
        }
    }

    /// Cuts the current speech and discards the rest.
    fn stop_all_speech(&mut self) {
        for r in self.floor() {
            self.cancel_reply(r, false);
        }
        self.discard_preemptive_reply();
    }

    pub(crate) fn end_call(&mut self, reason: &str, who: Value) {
        self.stop_all_speech();
        if !who.is_null() {
            self.emit("participant_left", who);
        }
        self.emit("call_ended", json!({}));
        self.emit("ended", json!({"reason": reason}));
        self.over = true;
    }
}
