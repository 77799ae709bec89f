//! Barge-in: the user speaks while the agent does. The agent ducks, holds, cancels or resumes its
//! reply.

use core::time::Duration;

use crate::contract::event::Event;
use crate::contract::output::Output;
use crate::machine::conversation::Conversation;
use crate::machine::reply::ReplyKind;
use crate::machine::timers::TimerKind;

/// Minimum time from the speech onset to ducking.
const DUCK_DELAY: Duration = Duration::from_millis(60);

impl Conversation {
    /// Sets the timers of a barge-in when the VAD reports speech.
    pub(crate) fn start_barge_in_timers(&mut self) {
        self.timers.clear(TimerKind::Resume);
        self.timers.set(TimerKind::Duck, (self.speech.onset + DUCK_DELAY).max(self.now));
        let min_duration = self.spec.min_interruption_duration;
        self.timers.set(
            TimerKind::Hold,
            self.speech.hold_deadline(self.spec.vad, min_duration).max(self.now),
        );
    }

    /// Ends the barge-in when the VAD reports the end of speech.
    pub(crate) fn finish_barge_in(&mut self) {
        self.timers.clear(TimerKind::Duck);
        self.timers.clear(TimerKind::Hold);
        self.unduck(true);
        if self.floor.front().is_none_or(|head| !head.held) {
            self.explain_short_speech();
            return;
        }
        if self.turn.is_backchannel {
            self.resume("the user's backchannel has ended");
        } else {
            self.schedule_resume();
        }
    }

    /// Starts the wait for words of the speech that held the reply.
    fn schedule_resume(&mut self) {
        let (Some(timeout), Some(stopped)) =
            (self.spec.false_interruption_timeout, self.speech.end_reported_at)
        else {
            return;
        };
        if !self.speech.active {
            self.timers.set(TimerKind::Resume, (stopped + timeout).max(self.now));
        }
    }

    /// Explains why finished speech did not hold the agent, if the speech was only too short.
    fn explain_short_speech(&mut self) {
        if self.speech.hold_evaluated
            || self.in_echo_warmup()
            || self.floor.front().is_none_or(|head| !head.interruptible)
        {
            return;
        }
        let (lasted, min_duration) =
            (self.speech.end.since(self.speech.onset), self.spec.min_interruption_duration);
        self.explain_decision(|| {
            format!(
                "not held: speech lasted {lasted:?}, less than min_interruption_duration \
                 {min_duration:?}"
            )
        });
    }

    fn in_echo_warmup(&self) -> bool {
        self.warmup_until.is_some_and(|until| self.now < until)
    }

    /// Ducks the agent: the user has spoken for long enough.
    pub(crate) fn duck_due(&mut self) {
        self.explain_no_duck_or_hold();
        self.duck();
    }

    /// Explains why user speech over the agent's has no effect.
    fn explain_no_duck_or_hold(&mut self) {
        let Some(head) = self.floor.front().filter(|head| head.sounding_utterance().is_some())
        else {
            return;
        };
        if !head.interruptible {
            self.explain_decision(|| {
                "neither ducked nor held: the speech is not interruptible".into()
            });
        } else if let Some(until) = self.warmup_until.filter(|_| self.in_echo_warmup()) {
            let warmup = self.spec.echo_warmup;
            self.explain_decision(|| {
                format!("neither ducked nor held: echo_warmup {warmup:?} lasts until {until}")
            });
        }
    }

    /// Lowers the volume of the playing segment while the user speaks over it.
    pub(crate) fn duck(&mut self) {
        if self.ducked || self.in_echo_warmup() || !self.speech.active {
            return;
        }
        let now = self.now;
        let Some(head) = self.floor.front().filter(|head| head.interruptible && !head.held) else {
            return;
        };
        let Some(segment) = head
            .sounding_utterance()
            .and_then(|utterance| utterance.segments.front())
            .filter(|segment| segment.has_started)
        else {
            return;
        };
        let position = segment.position(now).as_seconds();
        self.ducked = true;
        self.outputs.push_back(Output::Duck);
        self.emit(Event::PlayoutDucked { position });
        let onset = self.speech.onset;
        self.explain_decision(|| {
            format!("ducked: the user has spoken since {onset}, at least {DUCK_DELAY:?}")
        });
    }

    /// Restores full volume. Emits an event if `emit_event` is set and a segment has started.
    pub(crate) fn unduck(&mut self, emit_event: bool) {
        if !core::mem::take(&mut self.ducked) {
            return;
        }
        self.outputs.push_back(Output::Unduck);
        let now = self.now;
        let segment = self
            .floor
            .front()
            .and_then(|head| head.sounding_utterance())
            .and_then(|utterance| utterance.segments.front());
        if let Some(position) = segment
            .filter(|segment| emit_event && segment.has_started)
            .map(|segment| segment.position(now).as_seconds())
        {
            self.emit(Event::PlayoutUnducked { position });
        }
    }

    /// Whether the user's speech is enough to hold an interruptible reply now.
    pub(crate) fn should_hold(&self) -> bool {
        let min_words = self.spec.min_interruption_words;
        // After the speech, a hold is only useful before `false_interruption_timeout` has passed. A
        // later hold would resume at once.
        let not_false = |stopped| {
            self.spec.false_interruption_timeout.is_none_or(|timeout| self.now < stopped + timeout)
        };
        let in_time = self.speech.active || self.speech.end_reported_at.is_some_and(not_false);
        in_time
            && self.speech.has_lasted(self.spec.vad, self.spec.min_interruption_duration, self.now)
            && (min_words == 0 || self.turn_word_count() >= min_words)
            && !self.in_echo_warmup()
    }

    /// Makes the hold decision once per speech segment, when the segment has lasted long enough. A
    /// reply that starts later during the same segment is held only when its first audio is ready.
    pub(crate) fn evaluate_hold(&mut self) {
        let long =
            self.speech.has_lasted(self.spec.vad, self.spec.min_interruption_duration, self.now);
        if long && !self.speech.hold_evaluated && !self.in_echo_warmup() {
            self.speech.hold_evaluated = true;
            self.hold_if_interrupted();
            let (words, min_words) = (self.turn_word_count(), self.spec.min_interruption_words);
            if words < min_words && self.floor.front().is_some_and(|head| head.interruptible) {
                self.explain_decision(|| {
                    format!(
                        "not held: {words} words so far, less than min_interruption_words \
                         {min_words}"
                    )
                });
            }
        }
    }

    /// Holds the reply on the floor if the user's speech counts as an interruption.
    pub(crate) fn hold_if_interrupted(&mut self) {
        let Some(head) = self.floor.front() else { return };
        if head.interruptible
            && !head.held
            && !head.is_unheard_opening()
            && !self.head_waits_for_silence()
            && self.should_hold()
        {
            let min_duration = self.spec.min_interruption_duration;
            let onset = self.speech.onset;
            self.explain_decision(|| {
                format!(
                    "held: speech since {onset} lasted min_interruption_duration {min_duration:?}"
                )
            });
            self.hold();
        }
    }

    /// Pauses the reply on the floor.
    pub(crate) fn hold(&mut self) {
        let (now, onset) = (self.now, self.speech.onset);
        let Some(head) = self.floor.front_mut() else { return };
        head.held = true;
        head.hold_emitted = false;
        let mut position = None;
        if let Some(utterance) = head.utterances.front_mut() {
            let sounds = utterance.started_at.is_some();
            head.silenced_by = sounds.then_some((now, onset));
            if sounds {
                utterance.silent_since.get_or_insert(now);
            }
            let first = utterance.segments.front_mut();
            if sounds || first.as_ref().is_some_and(|segment| segment.play_allowed) {
                self.playout_paused = true;
                self.outputs.push_back(Output::Hold);
            }
            if let Some(segment) = first.filter(|segment| segment.ready_at.is_some()) {
                segment.freeze_position(now);
                position = Some(segment.position(now).as_seconds());
            }
        }
        head.hold_emitted = position.is_some();
        let already_emitted = core::mem::replace(&mut head.interruption_emitted, true);
        if let Some(position) = position {
            self.emit(Event::PlayoutHeld { position });
        }
        self.unduck(false);
        if !already_emitted {
            self.emit(Event::AgentInterrupted);
        }
        self.emit_heard_text();
        self.timers.clear(TimerKind::HeardUpdate);
        self.update_agent_state();
        if self.spec.false_interruption_timeout.is_none() {
            self.explain_decision(|| "cancelled: false_interruption_timeout is null".into());
            self.cancel_reply(0, true);
        } else {
            self.schedule_resume();
        }
    }

    /// Continues the held reply.
    pub(crate) fn resume(&mut self, why: &str) {
        let now = self.now;
        self.timers.clear(TimerKind::Resume);
        let Some(head) = self.floor.front_mut().filter(|head| head.held) else { return };
        head.held = false;
        head.silenced_by = None;
        let hold_was_emitted = core::mem::take(&mut head.hold_emitted);
        let mut position = None;
        if let Some(utterance) = head.utterances.front_mut()
            && let Some(segment) = utterance.segments.front_mut()
        {
            segment.base_time = now;
            segment.playing = segment.has_started;
            utterance.silent_since.take_if(|_| segment.has_started);
            if let Some(departures) = self.departures.as_mut().filter(|_| segment.has_started) {
                departures.resume(now, segment.base_position);
            }
            position = Some(segment.position(now).as_seconds());
        }
        self.resume_playout();
        self.timers.set(TimerKind::HeardUpdate, now + Duration::from_secs(1));
        if hold_was_emitted {
            // What was held may be gone: an unheard message of a tool is dropped at the tool's
            // result.
            self.emit(Event::PlayoutResumed { position: position.unwrap_or(0.0) });
        }
        self.explain_decision(|| format!("resumed: {why}"));
        self.update_agent_state();
    }

    /// Resumes playout if it was paused.
    pub(crate) fn resume_playout(&mut self) {
        if core::mem::take(&mut self.playout_paused) {
            self.outputs.push_back(Output::Resume);
        }
    }

    /// The final transcript contained no words. A resume that waited for it is scheduled at
    /// `false_interruption_timeout` again, as without a pending transcript.
    pub(crate) fn reschedule_resume(&mut self) {
        if self.timers.deadline(TimerKind::Resume).is_some() {
            self.schedule_resume();
        }
    }

    /// Resumes the held reply unless enough words were transcribed since the hold.
    pub(crate) fn resume_due(&mut self) {
        // A longer silence is better than a resume that the words of the same speech interrupt
        // again.
        let awaited =
            self.speech.end_reported_at.and_then(|stopped| self.final_transcript_deadline(stopped));
        if let Some(latest) = awaited.filter(|_| !self.speech.active) {
            self.explain_decision(|| {
                format!("the STT is still transcribing: no resume before {latest}")
            });
            self.timers.set(TimerKind::Resume, latest);
            return;
        }
        let words = crate::words::count_words(&self.carried_text)
            + crate::words::count_words(&self.turn.text);
        let awaited = !self.turn.text.is_empty()
            && !self.turn.is_backchannel
            && words >= self.spec.min_interruption_words;
        if !awaited && !self.speech.active {
            let timeout = self.spec.false_interruption_timeout.unwrap_or_default();
            self.resume(&format!(
                "nothing was transcribed within false_interruption_timeout {timeout:?}"
            ));
        }
    }

    pub(crate) fn warmup_over(&mut self) {
        if self.speech.active {
            let onset = self.speech.onset;
            self.timers.set(TimerKind::Duck, (onset + DUCK_DELAY).max(self.now));
            let at = self.speech.hold_deadline(self.spec.vad, self.spec.min_interruption_duration);
            self.timers.set(TimerKind::Hold, at.max(self.now));
        }
    }

    /// Applies a final transcript to the agent's speech. The turn already contains the text.
    /// `is_backchannel`: the transcript consists of a backchannel.
    pub(crate) fn interrupt_by_final(&mut self, is_backchannel: bool) {
        self.turn.is_backchannel = false;
        let has_non_backchannel =
            core::mem::replace(&mut self.turn.has_non_backchannel, true) || !is_backchannel;
        if self.is_ending() {
            return;
        }
        if let Some(head) = self.floor.front().filter(|head| head.is_unheard_opening()) {
            let kind = head.kind;
            self.explain_decision(|| match kind {
                ReplyKind::RecordingMessage => {
                    "recording_message waits: the user spoke first".into()
                }
                _ => "the greeting is dropped: the user spoke first".into(),
            });
            self.cancel_reply(0, false);
        }
        let Some(head) = self.floor.front() else { return };
        let awaits_tool = head.has_spoken
            && self
                .running_tools
                .iter()
                .any(|tool| tool.generation.epoch == head.epoch && !tool.orphaned);
        let agent_is_heard = head.held || head.sounding_utterance().is_some() || awaits_tool;
        if self.spec.backchannels
            && agent_is_heard
            && !has_non_backchannel
            && self.carried_text.is_empty()
        {
            (self.turn.is_backchannel, self.turn.has_non_backchannel) = (true, false);
            let held = head.held;
            self.explain_decision(|| "a backchannel: the agent continues".into());
            if held && !self.speech.active {
                self.resume("the user's words were a backchannel");
            }
            return;
        }
        if self.head_waits_for_silence() {
            self.explain_decision(|| "the answer waits: it has not begun".into());
            return;
        }
        if self.in_echo_warmup() {
            self.explain_decision(|| "echo_warmup: the transcript does not stop the agent".into());
            return;
        }
        let min_words = self.spec.min_interruption_words;
        if self.turn_word_count() < min_words && !self.turn_begins_with_stop_word() {
            self.explain_decision(|| {
                format!("min_interruption_words {min_words}: too few words to stop the agent")
            });
            return;
        }
        if self.floor.front().is_some_and(|head| !head.interruptible) {
            self.explain_decision(|| {
                "the transcript does not stop the agent: the speech is not interruptible".into()
            });
        } else {
            if self.floor.front().is_some_and(|head| !head.held) {
                self.explain_decision(|| "held: the user's words are final".into());
                self.hold();
            }
            // Without `false_interruption_timeout`, `hold` has already cancelled the reply.
            if self.floor.front().is_some_and(|head| head.held) {
                self.explain_decision(|| "cancelled: the user's words are final".into());
                self.cancel_reply(0, true);
            }
        }
        self.cancel_waiting_replies();
    }

    /// Whether the user's turn begins with a stop word.
    fn turn_begins_with_stop_word(&self) -> bool {
        let words = [&self.carried_text, &self.turn.text, &self.turn.interim]
            .into_iter()
            .find(|text| !text.is_empty());
        words.is_some_and(|text| {
            crate::contract::stop_words::begins_with_stop_word(&self.spec.stop_words, text)
        })
    }

    /// Kills the reply on the floor if the user's words begin with a stop word, before they are
    /// final.
    pub(crate) fn interrupt_by_stop_word(&mut self) {
        if self.is_ending() || self.in_echo_warmup() || !self.turn_begins_with_stop_word() {
            return;
        }
        let Some(head) =
            self.floor.front().filter(|head| head.held || head.sounding_utterance().is_some())
        else {
            return;
        };
        if !head.interruptible || head.is_unheard_opening() {
            return;
        }
        if !head.held {
            self.explain_decision(|| "held: the user's words begin with a stop word".into());
            self.hold();
        }
        // Without `false_interruption_timeout`, `hold` has already cancelled the reply.
        if self.floor.front().is_some_and(|head| head.held) {
            self.explain_decision(|| "cancelled: the user's words begin with a stop word".into());
            self.cancel_reply(0, true);
        }
        self.cancel_waiting_replies();
    }

    /// Kills the answers to older turns that wait behind other speech.
    pub(crate) fn cancel_waiting_replies(&mut self) {
        while let Some(index) =
            self.floor.iter().skip(1).position(|reply| reply.kind == ReplyKind::Turn)
        {
            self.explain_decision(|| "cancelled: a waiting reply to an older turn".into());
            self.cancel_reply(index + 1, true);
        }
    }
}
