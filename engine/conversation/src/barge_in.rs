//! The user's voice over the agent's: duck, hold, kill, resume.

use core::time::Duration;

use crate::conversation::Conversation;
use crate::event::Event;
use crate::output::Output;
use crate::reply::Kind;
use crate::timers::Reason;

/// How long after the onset the agent gets quieter, at the earliest.
const DUCK_AFTER: Duration = Duration::from_millis(60);

impl Conversation {
    /// The detector hears the user.
    pub(crate) fn voice_started(&mut self) {
        self.timers.clear(Reason::Resume);
        self.timers.set(Reason::Duck, (self.speech.onset + DUCK_AFTER).max(self.now));
        let least = self.spec.min_interruption_duration;
        self.timers.set(Reason::Hold, self.speech.hold_at(self.spec.vad, least).max(self.now));
    }

    /// The detector hears the user no more.
    pub(crate) fn voice_stopped(&mut self) {
        self.timers.clear(Reason::Duck);
        self.timers.clear(Reason::Hold);
        self.unduck(true);
        if self.floor.front().is_none_or(|head| !head.held) {
            self.explain_brief_voice();
            return;
        }
        if self.turn.backchannel {
            self.resume("the user's backchannel has ended");
        } else {
            self.await_resume();
        }
    }

    /// Starts to wait for words of the speech that held the reply.
    fn await_resume(&mut self) {
        let (Some(timeout), Some(stopped)) = (self.spec.false_interruption_timeout, self.speech.stopped)
        else {
            return;
        };
        if !self.speech.hearing {
            self.timers.set(Reason::Resume, (stopped + timeout).max(self.now));
        }
    }

    /// Why the voice that has ended did not hold the agent, where it was only too short.
    fn explain_brief_voice(&mut self) {
        if self.speech.judged
            || self.warming_up()
            || self.floor.front().is_none_or(|head| !head.interruptible)
        {
            return;
        }
        let (lasted, least) =
            (self.speech.until.since(self.speech.onset), self.spec.min_interruption_duration);
        self.because(|| {
            format!("not held: speech lasted {lasted:?}, less than min_interruption_duration {least:?}")
        });
    }

    fn warming_up(&self) -> bool {
        self.warmup_until.is_some_and(|until| self.now < until)
    }

    /// The user has been heard for long enough to duck the agent.
    pub(crate) fn duck_due(&mut self) {
        self.explain_let_be();
        self.duck();
    }

    /// Why a voice over the agent's changes nothing.
    fn explain_let_be(&mut self) {
        let Some(head) = self.floor.front().filter(|head| head.sounding().is_some()) else { return };
        if !head.interruptible {
            self.because(|| "neither ducked nor held: these words may not be interrupted".into());
        } else if let Some(until) = self.warmup_until.filter(|_| self.warming_up()) {
            let warmup = self.spec.echo_warmup;
            self.because(|| format!("neither ducked nor held: echo_warmup {warmup:?} lasts until {until}"));
        }
    }

    /// Makes what sounds quieter, where the user is heard over it.
    pub(crate) fn duck(&mut self) {
        if self.ducked || self.warming_up() || !self.speech.hearing {
            return;
        }
        let now = self.now;
        let Some(head) = self.floor.front().filter(|head| head.interruptible && !head.held) else { return };
        let Some(piece) =
            head.sounding().and_then(|utterance| utterance.pieces.front()).filter(|piece| piece.started)
        else {
            return;
        };
        let position = piece.position(now).as_seconds();
        self.ducked = true;
        self.outputs.push_back(Output::Duck);
        self.tell(Event::PlayoutDucked { position });
        let onset = self.speech.onset;
        self.because(|| format!("ducked: the user is heard since {onset}, at least {DUCK_AFTER:?}"));
    }

    /// Back to full loudness, told where something sounds.
    pub(crate) fn unduck(&mut self, told: bool) {
        if !core::mem::take(&mut self.ducked) {
            return;
        }
        self.outputs.push_back(Output::Unduck);
        let now = self.now;
        let piece = self
            .floor
            .front()
            .and_then(|head| head.sounding())
            .and_then(|utterance| utterance.pieces.front());
        if let Some(position) =
            piece.filter(|piece| told && piece.started).map(|piece| piece.position(now).as_seconds())
        {
            self.tell(Event::PlayoutUnducked { position });
        }
    }

    /// Whether the user's speech is enough to hold an interruptible reply now.
    pub(crate) fn holds(&self) -> bool {
        let least = self.spec.min_interruption_words;
        // Behind the speech a hold that would be false at once is none.
        let not_false =
            |stopped| self.spec.false_interruption_timeout.is_none_or(|timeout| self.now < stopped + timeout);
        let in_time = self.speech.hearing || self.speech.stopped.is_some_and(not_false);
        in_time
            && self.speech.lasted(self.spec.vad, self.spec.min_interruption_duration, self.now)
            && (least == 0 || self.words_so_far() >= least)
            && !self.warming_up()
    }

    /// The user's speech may have lasted long enough by now: then it is judged, once. A reply that begins later in the same speech is
    /// held no sooner than its first sample is there.
    pub(crate) fn judge_hold(&mut self) {
        let long = self.speech.lasted(self.spec.vad, self.spec.min_interruption_duration, self.now);
        if long && !self.speech.judged && !self.warming_up() {
            self.speech.judged = true;
            self.consider_hold();
            let (words, least) = (self.words_so_far(), self.spec.min_interruption_words);
            if words < least && self.floor.front().is_some_and(|head| head.interruptible) {
                self.because(|| {
                    format!("not held: {words} words so far, less than min_interruption_words {least}")
                });
            }
        }
    }

    /// Holds the reply on the floor if the user's speech has become an interruption.
    pub(crate) fn consider_hold(&mut self) {
        let Some(head) = self.floor.front() else { return };
        if head.interruptible && !head.held && !head.is_unheard_greeting() && self.holds() {
            let least = self.spec.min_interruption_duration;
            let onset = self.speech.onset;
            self.because(|| format!("held: speech since {onset} lasted min_interruption_duration {least:?}"));
            self.hold();
        }
    }

    /// Pauses the reply on the floor.
    pub(crate) fn hold(&mut self) {
        let (now, onset) = (self.now, self.speech.onset);
        let Some(head) = self.floor.front_mut() else { return };
        head.held = true;
        head.hold_told = false;
        let mut position = None;
        if let Some(utterance) = head.utterances.front_mut() {
            let sounds = utterance.started.is_some();
            head.silenced = sounds.then_some((now, onset));
            let first = utterance.pieces.front_mut();
            if sounds || first.as_ref().is_some_and(|piece| piece.permitted) {
                self.paused = true;
                self.outputs.push_back(Output::Hold);
            }
            if let Some(piece) = first.filter(|piece| piece.ready.is_some()) {
                piece.freeze(now);
                position = Some(piece.position(now).as_seconds());
            }
        }
        head.hold_told = position.is_some();
        let told = core::mem::replace(&mut head.interrupted, true);
        if let Some(position) = position {
            self.tell(Event::PlayoutHeld { position });
        }
        self.unduck(false);
        if !told {
            self.tell(Event::AgentInterrupted);
        }
        self.heard_so_far();
        self.timers.clear(Reason::Heard);
        self.refresh_state();
        if self.spec.false_interruption_timeout.is_none() {
            self.because(|| "killed: false_interruption_timeout is null".into());
            self.kill(0, true);
        } else {
            self.await_resume();
        }
    }

    /// The held reply goes on.
    pub(crate) fn resume(&mut self, why: &str) {
        let now = self.now;
        self.timers.clear(Reason::Resume);
        let Some(head) = self.floor.front_mut().filter(|head| head.held) else { return };
        head.held = false;
        head.silenced = None;
        let told = core::mem::take(&mut head.hold_told);
        let mut position = None;
        if let Some(piece) = head.utterances.front_mut().and_then(|utterance| utterance.pieces.front_mut()) {
            piece.base_at = now;
            piece.running = piece.started;
            position = Some(piece.position(now).as_seconds());
        }
        self.unpause();
        self.timers.set(Reason::Heard, now + Duration::from_secs(1));
        if let Some(position) = position.filter(|_| told) {
            self.tell(Event::PlayoutResumed { position });
        }
        self.because(|| format!("resumed: {why}"));
        self.refresh_state();
    }

    /// Lets playout go on, where it was told to hold.
    pub(crate) fn unpause(&mut self) {
        if core::mem::take(&mut self.paused) {
            self.outputs.push_back(Output::Resume);
        }
    }

    /// No words came of the speech that held the reply: a resume that waited for them waits no longer than it would have without.
    pub(crate) fn rewait_resume(&mut self) {
        if self.timers.at(Reason::Resume).is_some() {
            self.await_resume();
        }
    }

    /// Nobody said a word since the hold.
    pub(crate) fn resume_due(&mut self) {
        // A resume that the words of the same speech cut off again would be worse than a longer silence.
        let awaited = self.speech.stopped.and_then(|stopped| self.awaited_final(stopped));
        if let Some(latest) = awaited.filter(|_| !self.speech.hearing) {
            self.because(|| format!("the recogniser still works on the words: no resume until {latest}"));
            self.timers.set(Reason::Resume, latest);
            return;
        }
        let words = crate::endpoint::count_words(&self.kept) + crate::endpoint::count_words(&self.turn.text);
        let awaited =
            !self.turn.text.is_empty() && !self.turn.backchannel && words >= self.spec.min_interruption_words;
        if !awaited && !self.speech.hearing {
            let timeout = self.spec.false_interruption_timeout.unwrap_or_default();
            self.resume(&format!("nothing was transcribed within false_interruption_timeout {timeout:?}"));
        }
    }

    pub(crate) fn warmup_over(&mut self) {
        if self.speech.hearing {
            let onset = self.speech.onset;
            self.timers.set(Reason::Duck, (onset + DUCK_AFTER).max(self.now));
            let at = self.speech.hold_at(self.spec.vad, self.spec.min_interruption_duration);
            self.timers.set(Reason::Hold, at.max(self.now));
        }
    }

    /// What a final transcript does to the agent. The turn has its text already. `nod`: it is one of the small words.
    pub(crate) fn final_over_floor(&mut self, nod: bool) {
        self.turn.backchannel = false;
        let wordy = core::mem::replace(&mut self.turn.wordy, true) || !nod;
        if self.is_ending() {
            return;
        }
        if self.floor.front().is_some_and(|head| head.is_unheard_greeting()) {
            self.because(|| "the greeting is dropped: the user spoke first".into());
            self.kill(0, false);
        }
        let Some(head) = self.floor.front() else { return };
        let of_tools =
            head.spoke && self.tools.iter().any(|tool| tool.step.epoch == head.epoch && !tool.orphan);
        let listened = head.held || head.sounding().is_some() || of_tools;
        if self.spec.backchannels && listened && !wordy && self.kept.is_empty() {
            (self.turn.backchannel, self.turn.wordy) = (true, false);
            let held = head.held;
            self.because(|| "a backchannel: the agent goes on".into());
            if held && !self.speech.hearing {
                self.resume("the user's words were a backchannel");
            }
            return;
        }
        if self.warming_up() {
            self.because(|| "echo_warmup: the transcript does not stop the agent".into());
            return;
        }
        let least = self.spec.min_interruption_words;
        if self.words_so_far() < least && !self.says_stop() {
            self.because(|| format!("min_interruption_words {least}: too few words to stop the agent"));
            return;
        }
        if self.floor.front().is_some_and(|head| !head.interruptible) {
            self.because(|| {
                "the transcript does not stop the agent: these words may not be interrupted".into()
            });
        } else {
            if self.floor.front().is_some_and(|head| !head.held) {
                self.because(|| "held: the user's words are final".into());
                self.hold();
            }
            // With no false_interruption_timeout the hold was the kill.
            if self.floor.front().is_some_and(|head| head.held) {
                self.because(|| "killed: the user's words are final".into());
                self.kill(0, true);
            }
        }
        self.kill_waiting();
    }

    /// Whether the user's turn begins with a stop word.
    fn says_stop(&self) -> bool {
        let words =
            [&self.kept, &self.turn.text, &self.turn.interim].into_iter().find(|text| !text.is_empty());
        words.is_some_and(|text| crate::stop::begins_with(&self.spec.stop_words, text))
    }

    /// Ends the reply on the floor if the user asks for silence, before the words are final.
    pub(crate) fn consider_stop_word(&mut self) {
        if self.is_ending() || self.warming_up() || !self.says_stop() {
            return;
        }
        let Some(head) = self.floor.front().filter(|head| head.held || head.sounding().is_some()) else {
            return;
        };
        if !head.interruptible || head.is_unheard_greeting() {
            return;
        }
        if !head.held {
            self.because(|| "held: the user's words begin with a stop word".into());
            self.hold();
        }
        // With no false_interruption_timeout the hold was the kill.
        if self.floor.front().is_some_and(|head| head.held) {
            self.because(|| "killed: the user's words begin with a stop word".into());
            self.kill(0, true);
        }
        self.kill_waiting();
    }

    /// Answers to older turns that wait behind other speech.
    pub(crate) fn kill_waiting(&mut self) {
        while let Some(index) = self.floor.iter().skip(1).position(|reply| reply.kind == Kind::Turn) {
            self.because(|| "killed: an answer to an older turn, still waiting".into());
            self.kill(index + 1, true);
        }
    }
}
