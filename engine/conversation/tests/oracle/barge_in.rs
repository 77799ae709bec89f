//! Barge-in: duck, hold, kill, resume.
//!
//! Assumptions where the turn-taking page leaves room:
//!
//! - Finals that are all backchannels stay a backchannel, even if a new speech segment brought
//!   them. A follow-up without words makes an ordinary turn of them.
//! - "Nothing was transcribed" means that the open turn has no text, or too little to end a reply.
//! - What the echo warm-up postpones is evaluated at its end.
//! - A reply that starts during a long speech segment is held when its first sample is available.
//! - A greeting is never held before its first sample.

use serde_json::json;

use super::case::Micros;
use super::heard_text;
use super::record::{CallRecord, ReplyKind};

const BACKCHANNELS: &str = "yeah yes yep yup yah ya mhm mmhm mhmm mmhmm mm mmm hm hmm uhhuh aha \
                            okay ok right alright sure isee gotit";

/// Whether a text is one of the backchannel words, once or repeated.
fn is_backchannel(text: &str) -> bool {
    let plain = heard_text::normalize_text(text);
    let known = |word: &str| BACKCHANNELS.split_whitespace().any(|known| known == word);
    let distinct: std::collections::BTreeSet<&str> = plain.split(' ').collect();
    known(&plain.replace(' ', ""))
        || distinct.len() == 1 && known(distinct.first().copied().unwrap_or_default())
}

pub(crate) fn to_seconds(us: Micros) -> f64 {
    (us as f64 / 1e6 * 1e3).round() / 1e3
}

/// A position is a number of samples at 48 kHz.
pub(crate) fn position_seconds(us: Micros) -> f64 {
    let samples = us * 48 / 1000;
    (samples as f64 / 48_000.0 * 1e3).round() / 1e3
}

impl CallRecord<'_> {
    pub(crate) fn user_started(&mut self) {
        self.emit("user.started_speaking", json!({}));
    }

    pub(crate) fn user_stopped(&mut self, speech_segment: usize) {
        self.emit("user.stopped_speaking", json!({}));
        let Some(head) = self.head() else { return };
        if self.replies[head].is_held() {
            if self.turn_is_backchannel() {
                self.resume(head);
            }
            return;
        }
        let held_since = self.replies[head]
            .holds
            .iter()
            .any(|(from, _, _)| *from >= self.user_input.start_reported_at(speech_segment));
        if self.ducks.contains(&(speech_segment, head, self.replies[head].sounding_utterance()))
            && !held_since
            && let Some(at) = self.position(head)
        {
            self.emit("playout.unducked", json!({"position": position_seconds(at)}));
        }
    }

    pub(crate) fn duck_due(&mut self, speech_segment: usize) {
        self.duck_judged.push(speech_segment);
        let Some(head) = self.head() else { return };
        let reply = &self.replies[head];
        if reply.interruptible
            && !reply.is_held()
            && let Some(at) = self.position(head)
        {
            self.ducks.push((speech_segment, head, self.replies[head].sounding_utterance()));
            self.emit("playout.ducked", json!({"position": position_seconds(at)}));
        }
    }

    pub(crate) fn hold_due(&mut self, speech_segment: usize) {
        self.hold_judged.push(speech_segment);
        self.try_hold();
    }

    pub(crate) fn interim_received(&mut self) {
        let long = self
            .user_input
            .latest_segment()
            .and_then(|n| self.user_input.min_duration_at(n))
            .is_some_and(|at| at <= self.now);
        let stop =
            self.user_input.last_stop_at().filter(|_| self.user_input.active_segment().is_none());
        let too_late = stop
            .zip(self.case.settings.false_interruption_timeout)
            .is_some_and(|(at, t)| at + t <= self.now);
        if self.case.settings.min_interruption_words > 0 && long && !too_late {
            self.try_hold();
        }
    }

    /// Holds the agent if the speech, which has lasted long enough, is an interruption.
    fn try_hold(&mut self) {
        let Some(head) = self.head() else { return };
        if !self.replies[head].is_unheard_opening() && self.may_hold(head) {
            self.hold(head);
        }
    }

    fn may_hold(&self, r: usize) -> bool {
        let reply = &self.replies[r];
        let enough = self.turn_word_count() >= self.case.settings.min_interruption_words;
        reply.interruptible && !reply.is_held() && self.echo_warmup_end().is_none() && enough
    }

    /// Whether a first sample that is available while the user speaks is held: the speech has
    /// lasted long enough.
    pub(crate) fn holds_first_sample(&self, r: usize) -> bool {
        let long = self
            .user_input
            .active_segment()
            .and_then(|n| self.user_input.min_duration_at(n))
            .is_some_and(|at| at <= self.now);
        long && !self.replies[r].is_unheard_opening() && self.may_hold(r)
    }

    pub(crate) fn hold(&mut self, r: usize) {
        let at = self.position(r).or_else(|| {
            let reply = &self.replies[r];
            let utterance = &reply.utterances[reply.front_utterance()?];
            utterance.segments[utterance.current_segment()?].ready_at.map(|_| 0)
        });
        if let Some(at) = at {
            self.emit("playout.held", json!({"position": position_seconds(at)}));
        }
        self.replies[r].holds.push((self.now, None, at.is_some()));
        self.emit_interrupted(r);
        self.update_agent_state();
        if self.case.settings.false_interruption_timeout.is_none() {
            self.cancel_reply(r, true);
        }
    }

    fn emit_interrupted(&mut self, r: usize) {
        if !self.replies[r].interruption_emitted {
            self.replies[r].interruption_emitted = true;
            self.emit("agent.interrupted", json!({}));
        }
    }

    pub(crate) fn resume_at(&self) -> Option<Micros> {
        let head = self.head().filter(|head| self.replies[*head].is_held())?;
        if self.user_input.active_segment().is_some() {
            return None;
        }
        let stop = self.user_input.last_stop_at()?;
        let judged = (self.replies[head].holds.last()?.0, stop);
        (!self.resume_judged.contains(&judged))
            .then_some(stop + self.case.settings.false_interruption_timeout?)
    }

    /// Nothing was transcribed within the timeout.
    pub(crate) fn resume_due(&mut self) {
        let Some(head) = self.head() else { return };
        if let (Some((held, _, _)), Some(stop)) =
            (self.replies[head].holds.last(), self.user_input.last_stop_at())
        {
            self.resume_judged.push((*held, stop));
        }
        let words: usize = heard_text::count_words(&self.open_turn_text());
        let few = words < self.case.settings.min_interruption_words;
        if self.open_turn().finals.is_empty() || self.turn_is_backchannel() || few {
            self.resume(head);
        }
    }

    pub(crate) fn resume(&mut self, r: usize) {
        let at = self.position(r).unwrap_or(0);
        let now = self.now;
        let (_, order) = self.next_request();
        if let Some(u) = self.replies[r].sounding_utterance()
            && let Some(p) = self.replies[r].utterances[u].current_segment()
        {
            self.replies[r].utterances[u].segments[p].running_since = order;
        }
        let Some(hold) = self.replies[r].holds.last_mut() else { return };
        hold.1 = Some(now);
        if hold.2 {
            self.emit("playout.resumed", json!({"position": position_seconds(at)}));
        }
        self.update_agent_state();
    }

    /// Whether all finals of the turn are backchannels and no speech follows them.
    pub(crate) fn turn_is_backchannel(&self) -> bool {
        let turn = self.open_turn();
        !turn.finals.is_empty()
            && self.backchannel_finals.len() == turn.finals.len()
            && !turn.followed_by_speech
            && self.carried_texts.is_empty()
    }

    pub(crate) fn final_received(&mut self, item: usize) {
        let text = self.case.user[item].text.clone().unwrap_or_default();
        if heard_text::normalize_text(&text).is_empty() {
            return;
        }
        self.interrupt_by_final(item, &text);
        self.start_preemptive_reply();
    }

    fn interrupt_by_final(&mut self, item: usize, text: &str) {
        if self.ending {
            return;
        }
        if let Some(head) = self.head()
            && self.replies[head].is_unheard_opening()
        {
            self.cancel_reply(head, false);
        }
        let Some(head) = self.head() else { return };
        let reply = &self.replies[head];
        let agent_is_heard = reply.is_held()
            || reply.sounding_utterance().is_some()
            || reply.has_spoken() && self.has_running_tool(head);
        if self.case.settings.backchannels && agent_is_heard && is_backchannel(text) {
            self.backchannel_finals.push(item);
            if self.turn_is_backchannel() {
                if reply_held(self, head) && self.user_input.active_segment().is_none() {
                    self.resume(head);
                }
                return;
            }
        }
        if self.echo_warmup_end().is_some() {
            return;
        }
        if self.turn_word_count() < self.case.settings.min_interruption_words {
            return;
        }
        if self.replies[head].interruptible {
            if !self.replies[head].is_held() {
                self.hold(head);
            }
            if self.replies[head].ended_at.is_none() {
                self.cancel_reply(head, true);
            }
        }
        self.cancel_waiting_replies();
    }

    /// Ends the answers to older turns that wait for other speech.
    pub(crate) fn cancel_waiting_replies(&mut self) {
        for r in self.floor().into_iter().skip(1) {
            if self.replies[r].kind == ReplyKind::Answer {
                self.cancel_reply(r, true);
            }
        }
    }

    pub(crate) fn cancel_reply(&mut self, r: usize, emit_interruption: bool) {
        let now = self.now;
        let is_queued =
            self.head().is_some_and(|head| head != r && !self.replies[head].interruptible);
        let never_announced = is_queued && !self.replies[r].has_spoken();
        if emit_interruption && !never_announced && !self.replies[r].is_unheard_opening() {
            self.emit_interrupted(r);
        }
        let sounded = self.replies[r].sounding_utterance().is_some();
        if sounded {
            let (text, part) = self.heard_text(r);
            if let (Some(at), Some(part)) = (self.position(r), part) {
                let fields =
                    json!({"position": position_seconds(at), "interrupted": true, "heard": part});
                self.emit("playout.finished", fields);
            }
            self.playout_ends.push(now);
            self.emit_stopped_speaking(&text, true);
        }
        self.cancel_llm(r);
        self.replies[r].ended_at = Some(now);
        self.update_agent_state();
    }

    pub(crate) fn emit_stopped_speaking(&mut self, text: &str, interrupted: bool) {
        self.emit("agent.stopped_speaking", json!({"text": text}));
        if !text.is_empty() {
            self.append_history(
                json!({"role": "assistant", "text": text, "interrupted": interrupted}),
            );
        }
    }

    pub(crate) fn cancel_llm(&mut self, r: usize) {
        if let Some(step) = self.replies[r].generations.last_mut().filter(|step| !step.done) {
            step.done = true;
            self.emit("llm.cancelled", json!({}));
        }
    }
}

fn reply_held(record: &CallRecord<'_>, r: usize) -> bool {
    record.replies[r].is_held()
}
