//! The call as a whole: greeting, commands, silence, limit, end.
//!
//! Readings: a `say` that interrupts is an `interrupt` first, the queue included; an answer that waits behind other speech is no speech
//! yet, and an interrupt drops it even where answers may not be interrupted.

use serde_json::{Value, json};

use super::barge::seconds;
use super::case::{Do, Us};
use super::record::{Kind, Record, Reply};
use super::turn::Turn;

impl Record<'_> {
    pub(crate) fn begin(&mut self) {
        if let Some(greeting) = self.case.settings.greeting.clone() {
            let allow = self.case.settings.allow;
            let place = self.place_at_back();
            let r = self.message(Kind::Greeting, &greeting.say, greeting.audio, allow, place);
            self.replies[r].not_before = greeting.wait;
        }
        self.settle();
    }

    pub(crate) fn act(&mut self, what: Do) {
        match what {
            Do::End => self.call_ends("ended_by_api", Value::Null),
            Do::Leave => self.call_ends("user_left", json!({"id": "user"})),
            Do::Context(text) => {
                self.remember(json!({"role": "system", "text": text, "interrupted": false}));
            }
            Do::Interrupt | Do::Say { .. } | Do::Respond(_) if self.ending => {}
            Do::Interrupt => self.interrupt(),
            Do::Respond(text) => self.commit(&text, None, Turn::Typed),
            Do::Say { text, audio, interrupt, allow } => self.speak(&text, audio, interrupt, allow),
        }
    }

    fn interrupt(&mut self) {
        let Some(head) = self.head() else { return };
        if !self.replies[head].interruptible && !self.replies[head].unheard_greeting() {
            return;
        }
        self.kill(head, true);
        for r in self.floor() {
            if self.replies[r].interruptible || self.replies[r].kind == Kind::Answer {
                self.kill(r, false);
            }
        }
    }

    fn speak(&mut self, text: &str, audio: Us, interrupt: bool, allow: bool) {
        if let Some(head) = self.head()
            && self.replies[head].unheard_greeting()
        {
            self.kill(head, false);
        }
        if interrupt {
            self.interrupt();
        }
        let place = self.place_at_back();
        self.message(Kind::Say, text, audio, allow, place);
    }

    /// Nothing sounds, is held, queued or pending, no tool runs, no turn is open and nobody is heard.
    fn floor_is_free(&self) -> bool {
        self.head().is_none()
            && self.preparation().is_none()
            && self.tools.iter().all(|tool| tool.result.is_some())
            && !self.turn_is_open()
            && self.ear.hearing().is_none()
    }

    pub(crate) fn warning_at(&self) -> Option<Us> {
        let at = self.case.settings.limit? - self.case.settings.warning_before;
        (!self.warned && !self.ending && at >= 0).then_some(at)
    }

    pub(crate) fn warning_due(&mut self) {
        self.warned = true;
        let limit = self.case.settings.limit.unwrap_or(0);
        let fields = json!({"call_duration": seconds(self.now), "max_call_duration": seconds(limit)});
        self.tell("max_call_duration_warning", fields);
        // Before anything else that is due now could take the floor.
        if self.warning_may_sound() {
            self.say_warning();
        }
    }

    pub(crate) fn warning_may_sound(&self) -> bool {
        self.warned
            && !self.warning_said
            && !self.ending
            && self.case.settings.warning.is_some()
            && self.case.settings.limit.is_some_and(|limit| self.now < limit)
            && self.floor_is_free()
    }

    pub(crate) fn say_warning(&mut self) {
        self.warning_said = true;
        if let Some(words) = self.case.settings.warning.clone() {
            let place = self.place_at_back();
            self.message(Kind::Warning, &words.say, words.audio, self.case.settings.allow, place);
        }
    }

    pub(crate) fn idle_at(&self) -> Option<Us> {
        let timeout = self.case.settings.idle?;
        if self.ending
            || self.head().is_some()
            || self.turn_is_open()
            || self.tools.iter().any(|tool| tool.result.is_none())
            || self.ear.hearing().is_some()
        {
            return None;
        }
        let placed = |reply: &&Reply| reply.place.is_some();
        let gone = self.replies.iter().filter(placed).filter_map(|reply| reply.gone);
        let results = self.tools.iter().filter_map(|tool| tool.result);
        let sounds = self.ends.iter().copied();
        let idles = self.idles.iter().map(|(at, _)| *at);
        let latest = gone.chain(results).chain(sounds).chain(idles).chain(self.ear.last_stop()).max();
        Some(latest.unwrap_or(0) + timeout)
    }

    pub(crate) fn idle_due(&mut self) {
        let turns = self.turns.len();
        let in_a_row = self.idles.iter().filter(|(_, before)| *before == turns).count();
        if self.case.settings.idle_end.is_some_and(|most| in_a_row >= most) {
            self.call_ends("idle", Value::Null);
            return;
        }
        self.tell("user.idle", json!({}));
        self.idles.push((self.now, turns));
        let messages = &self.case.settings.idle_messages;
        if messages.is_empty() {
            return;
        }
        let words = messages[self.idle_spoken % messages.len()].clone();
        self.idle_spoken += 1;
        let place = self.place_at_back();
        self.message(Kind::Idle, &words.say, words.audio, self.case.settings.allow, place);
    }

    pub(crate) fn limit_at(&self) -> Option<Us> {
        self.case.settings.limit.filter(|_| !self.ending)
    }

    pub(crate) fn limit_reached(&mut self) {
        let limit = seconds(self.case.settings.limit.unwrap_or(0));
        let fields = json!({"call_duration": seconds(self.now), "max_call_duration": limit});
        self.tell("max_call_duration_timeout", fields);
        self.ending = true;
        self.silence();
        match self.case.settings.exit.clone() {
            Some(words) => {
                let place = self.place_at_back();
                self.message(Kind::Exit, &words.say, words.audio, false, place);
            }
            None => self.call_ends("max_call_duration", Value::Null),
        }
    }

    /// Cuts what sounds and drops the rest.
    fn silence(&mut self) {
        for r in self.floor() {
            self.kill(r, false);
        }
        self.drop_preparation();
    }

    pub(crate) fn call_ends(&mut self, reason: &str, who: Value) {
        self.silence();
        if !who.is_null() {
            self.tell("participant_left", who);
        }
        self.tell("call_ended", json!({}));
        self.tell("ended", json!({"reason": reason}));
        self.over = true;
    }
}
