//! Barge-in: duck, hold, kill, resume.
//!
//! Readings: finals that are all backchannels stay one even where a new speech brought them, and a follow-up without words makes an
//! ordinary turn of them; "nothing was transcribed" means that the open turn has no text, or
//! too little to end a reply; what the echo warm-up puts off is judged at its end; a reply that begins in the midst of a long speech is held when its
//! first sample is there; a greeting is never held before its first sample.

use serde_json::json;

use super::case::Us;
use super::heard;
use super::record::{Kind, Record};

const BACKCHANNELS: &str = "yeah yes yep yup yah ya mhm mmhm mhmm mmhmm mm mmm hm hmm uhhuh aha okay ok right alright sure \
                            isee gotit";

/// Whether a text is one of the small words, said once or several times.
fn is_backchannel(text: &str) -> bool {
    let plain = heard::plain(text);
    let known = |word: &str| BACKCHANNELS.split_whitespace().any(|known| known == word);
    let said: std::collections::BTreeSet<&str> = plain.split(' ').collect();
    known(&plain.replace(' ', "")) || said.len() == 1 && known(said.first().copied().unwrap_or_default())
}

pub(crate) fn seconds(us: Us) -> f64 {
    (us as f64 / 1e6 * 1e3).round() / 1e3
}

/// A position is a number of samples at 48 kHz.
pub(crate) fn position(us: Us) -> f64 {
    let samples = us * 48 / 1000;
    (samples as f64 / 48_000.0 * 1e3).round() / 1e3
}

impl Record<'_> {
    pub(crate) fn user_started(&mut self) {
        self.tell("user.started_speaking", json!({}));
    }

    pub(crate) fn user_stopped(&mut self, stretch: usize) {
        self.tell("user.stopped_speaking", json!({}));
        let Some(head) = self.head() else { return };
        if self.replies[head].held() {
            if self.turn_is_backchannel() {
                self.resume(head);
            }
            return;
        }
        let held_since =
            self.replies[head].holds.iter().any(|(from, _, _)| *from >= self.ear.report(stretch));
        if self.ducks.contains(&(stretch, head, self.replies[head].sounding()))
            && !held_since
            && let Some(at) = self.position(head)
        {
            self.tell("playout.unducked", json!({"position": position(at)}));
        }
    }

    pub(crate) fn duck_due(&mut self, stretch: usize) {
        self.duck_judged.push(stretch);
        let Some(head) = self.head() else { return };
        let reply = &self.replies[head];
        if reply.interruptible
            && !reply.held()
            && let Some(at) = self.position(head)
        {
            self.ducks.push((stretch, head, self.replies[head].sounding()));
            self.tell("playout.ducked", json!({"position": position(at)}));
        }
    }

    pub(crate) fn hold_due(&mut self, stretch: usize) {
        self.hold_judged.push(stretch);
        self.hold_if_due();
    }

    pub(crate) fn interim_came(&mut self) {
        let long = self.ear.latest().and_then(|n| self.ear.long_enough(n)).is_some_and(|at| at <= self.now);
        let stop = self.ear.last_stop().filter(|_| self.ear.hearing().is_none());
        let too_late = stop.zip(self.case.settings.false_timeout).is_some_and(|(at, t)| at + t <= self.now);
        if self.case.settings.min_words > 0 && long && !too_late {
            self.hold_if_due();
        }
    }

    /// The speech has lasted long enough: does it hold the agent?
    fn hold_if_due(&mut self) {
        let Some(head) = self.head() else { return };
        if !self.replies[head].unheard_greeting() && self.may_hold(head) {
            self.hold(head);
        }
    }

    fn may_hold(&self, r: usize) -> bool {
        let reply = &self.replies[r];
        let enough = self.words_so_far() >= self.case.settings.min_words;
        reply.interruptible && !reply.held() && self.warm_until().is_none() && enough
    }

    /// A first sample is there while the user speaks. Has the speech lasted long enough for a hold?
    pub(crate) fn holds_first_sample(&self, r: usize) -> bool {
        let long = self.ear.hearing().and_then(|n| self.ear.long_enough(n)).is_some_and(|at| at <= self.now);
        long && !self.replies[r].unheard_greeting() && self.may_hold(r)
    }

    pub(crate) fn hold(&mut self, r: usize) {
        let at = self.position(r).or_else(|| {
            let reply = &self.replies[r];
            let utterance = &reply.utterances[reply.front()?];
            utterance.pieces[utterance.current()?].ready.map(|_| 0)
        });
        if let Some(at) = at {
            self.tell("playout.held", json!({"position": position(at)}));
        }
        self.replies[r].holds.push((self.now, None, at.is_some()));
        self.interrupted(r);
        self.refresh_state();
        if self.case.settings.false_timeout.is_none() {
            self.kill(r, true);
        }
    }

    fn interrupted(&mut self, r: usize) {
        if !self.replies[r].interrupted {
            self.replies[r].interrupted = true;
            self.tell("agent.interrupted", json!({}));
        }
    }

    pub(crate) fn resume_at(&self) -> Option<Us> {
        let head = self.head().filter(|head| self.replies[*head].held())?;
        if self.ear.hearing().is_some() {
            return None;
        }
        let stop = self.ear.last_stop()?;
        let judged = (self.replies[head].holds.last()?.0, stop);
        (!self.resume_judged.contains(&judged)).then_some(stop + self.case.settings.false_timeout?)
    }

    /// Nothing was transcribed, and the time-out has passed.
    pub(crate) fn resume_due(&mut self) {
        let Some(head) = self.head() else { return };
        if let (Some((held, _, _)), Some(stop)) = (self.replies[head].holds.last(), self.ear.last_stop()) {
            self.resume_judged.push((*held, stop));
        }
        let words: usize = heard::count(&self.text());
        let few = words < self.case.settings.min_words;
        if self.turn().finals.is_empty() || self.turn_is_backchannel() || few {
            self.resume(head);
        }
    }

    fn resume(&mut self, r: usize) {
        let at = self.position(r).unwrap_or(0);
        let now = self.now;
        let (_, order) = self.request();
        if let Some(u) = self.replies[r].sounding()
            && let Some(p) = self.replies[r].utterances[u].current()
        {
            self.replies[r].utterances[u].pieces[p].running_since = order;
        }
        let Some(hold) = self.replies[r].holds.last_mut() else { return };
        hold.1 = Some(now);
        if hold.2 {
            self.tell("playout.resumed", json!({"position": position(at)}));
        }
        self.refresh_state();
    }

    /// All of the turn's finals were backchannels, and nothing was said behind them.
    pub(crate) fn turn_is_backchannel(&self) -> bool {
        let turn = self.turn();
        !turn.finals.is_empty()
            && self.back.len() == turn.finals.len()
            && !turn.followed
            && self.kept.is_empty()
    }

    pub(crate) fn final_came(&mut self, item: usize) {
        let text = self.case.user[item].text.clone().unwrap_or_default();
        if heard::plain(&text).is_empty() {
            return;
        }
        self.final_over_floor(item, &text);
        self.prepare();
    }

    fn final_over_floor(&mut self, item: usize, text: &str) {
        if self.ending {
            return;
        }
        if let Some(head) = self.head()
            && self.replies[head].unheard_greeting()
        {
            self.kill(head, false);
        }
        let Some(head) = self.head() else { return };
        let reply = &self.replies[head];
        let listened = reply.held() || reply.sounding().is_some() || reply.spoke() && self.tool_runs(head);
        if self.case.settings.backchannels && listened && is_backchannel(text) {
            self.back.push(item);
            if self.turn_is_backchannel() {
                if reply_held(self, head) && self.ear.hearing().is_none() {
                    self.resume(head);
                }
                return;
            }
        }
        if self.warm_until().is_some() {
            return;
        }
        if self.words_so_far() < self.case.settings.min_words {
            return;
        }
        if self.replies[head].interruptible {
            if !self.replies[head].held() {
                self.hold(head);
            }
            if self.replies[head].gone.is_none() {
                self.kill(head, true);
            }
        }
        self.kill_waiting();
    }

    /// Answers to older turns that wait behind other speech.
    pub(crate) fn kill_waiting(&mut self) {
        for r in self.floor().into_iter().skip(1) {
            if self.replies[r].kind == Kind::Answer {
                self.kill(r, true);
            }
        }
    }

    pub(crate) fn kill(&mut self, r: usize, told: bool) {
        let now = self.now;
        let behind = self.head().is_some_and(|head| head != r && !self.replies[head].interruptible);
        let unknown = behind && !self.replies[r].spoke();
        if told && !unknown && !self.replies[r].unheard_greeting() {
            self.interrupted(r);
        }
        let sounded = self.replies[r].sounding().is_some();
        if sounded {
            let (text, part) = self.heard(r);
            if let (Some(at), Some(part)) = (self.position(r), part) {
                let fields = json!({"position": position(at), "interrupted": true, "heard": part});
                self.tell("playout.finished", fields);
            }
            self.ends.push(now);
            self.stopped_speaking(&text, true);
        }
        self.cancel_llm(r);
        self.replies[r].gone = Some(now);
        self.refresh_state();
    }

    pub(crate) fn stopped_speaking(&mut self, text: &str, interrupted: bool) {
        self.tell("agent.stopped_speaking", json!({"text": text}));
        if !text.is_empty() {
            self.remember(json!({"role": "assistant", "text": text, "interrupted": interrupted}));
        }
    }

    pub(crate) fn cancel_llm(&mut self, r: usize) {
        if let Some(step) = self.replies[r].steps.last_mut().filter(|step| !step.done) {
            step.done = true;
            self.tell("llm.cancelled", json!({}));
        }
    }
}

fn reply_held(record: &Record<'_>, r: usize) -> bool {
    record.replies[r].held()
}
