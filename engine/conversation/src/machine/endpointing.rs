//! Endpointing: when the user's turn is over.
//!
//! ```text
//!         speech starts                     speech stops
//! EMPTY ----------------> OPEN ---------------------------> WAITING FOR END
//!   ^                 (user speaks) <----------------------    |       |
//!   |                                       speech starts      |       | Commit
//!   | TranscriptTimeout without final words; Commit with too   |       v
//!   | few words over a reply (the text is carried over)        |   COMMITTED
//!   +----------------------------------------------------------+
//! ```
//!
//! A transcript without detected speech starts WAITING FOR END directly. There, `TranscriptTimeout`
//! runs while words are missing or interim, and `Commit` runs once all words are final. Interim
//! words that do not become final before `TranscriptTimeout` are dropped, and `Commit` runs for the
//! rest.

use core::time::Duration;

use crate::contract::event::Event;
use crate::contract::input::TurnHint;
use crate::contract::output::OpenTurn;
use crate::contract::providers::{TurnProviders, add_provider};
use crate::contract::time::Time;
use crate::machine::conversation::Conversation;
use crate::machine::people::SpokenTurn;
use crate::machine::speech::Turn;
use crate::machine::timers::TimerKind;
use crate::words::{append_words, count_words, normalize_text};

/// Maximum wait for a final transcript that is due. The wait starts with the VAD's report of the
/// end. For the turn itself, it starts again with a later final transcript, or with an interim one
/// without detected speech. A local STT without enough CPU time is late by seconds. After this
/// limit, the final transcript counts as lost.
const MAX_FINAL_TRANSCRIPT_WAIT: Duration = Duration::from_secs(8);

impl Turn {
    /// Whether the turn has text.
    pub(crate) fn is_open(&self) -> bool {
        !self.text.is_empty() || !self.interim.is_empty()
    }
}

/// Transcripts that count as backchannels, without spaces.
const BACKCHANNELS: [&str; 23] = [
    "yeah", "yes", "yep", "yup", "yah", "ya", "mhm", "mmhm", "mhmm", "mmhmm", "mm", "mmm", "hm",
    "hmm", "uhhuh", "aha", "okay", "ok", "right", "alright", "sure", "isee", "gotit",
];

/// Whether a transcript consists only of one backchannel, once or repeated.
pub(crate) fn is_backchannel(text: &str) -> bool {
    let plain = normalize_text(text);
    let joined = plain.replace(' ', "");
    let mut words = plain.split(' ');
    let first = words.next().unwrap_or_default();
    // "mm hm" matches "mmhm", and "yeah yeah" matches "yeah". "right okay" matches neither way.
    BACKCHANNELS.contains(&joined.as_str())
        || BACKCHANNELS.contains(&first) && words.all(|word| word == first)
}

impl Conversation {
    /// The user's open turn as it is now: the input for the turn model when
    /// [`Output::RequestTurnProbability`](crate::contract::output::Output::RequestTurnProbability)
    /// is sent.
    #[must_use]
    pub fn open_turn(&self) -> OpenTurn {
        let mut words = self.turn.text.clone();
        if !self.turn.interim.is_empty() {
            append_words(&mut words, &self.turn.interim);
        }
        OpenTurn { onset: self.turn.first_onset, transcript: words }
    }

    /// Whether the turn model's answer for the last speech segment can still change the time of the
    /// commit. The answer counts until the commit, the next onset, or the turn's end without words,
    /// whichever is first.
    #[must_use]
    pub fn awaits_turn_probability(&self) -> bool {
        self.spec.turn_model
            && !self.speech.active
            && self.turn.speech_end.is_some()
            && self.turn.end_of_turn_probability.is_none()
    }

    pub(crate) fn speech_started(&mut self, onset: Time) {
        if self.speech.active {
            return;
        }
        let onset = onset.min(self.now);
        self.end_lost_intervals(onset);
        self.speech.start(onset);
        self.turn.first_onset.get_or_insert(onset);
        self.turn.part_onset.get_or_insert(onset);
        self.turn.end_of_turn_probability = None;
        self.turn.has_provider_hint = false;
        self.emit(Event::UserStartedSpeaking);
        if self.turn.is_backchannel {
            self.turn.is_backchannel = false;
            self.explain_decision(|| {
                "the user continues: an ordinary turn, not a backchannel".into()
            });
        }
        if self.timers.deadline(TimerKind::Commit).is_some() {
            self.explain_decision(|| {
                "the user continues before the commit: the wait is cancelled, the turn stays open"
                    .into()
            });
        }
        self.reset_turn_deadline();
        self.start_barge_in_timers();
    }

    pub(crate) fn speech_continued(&mut self, until: Time) {
        if self.speech.active {
            self.speech.end = self.speech.end.max(until.min(self.now));
            self.evaluate_hold();
        }
    }

    pub(crate) fn speech_stopped(&mut self, end: Time) {
        if !self.speech.active {
            return;
        }
        self.speech.stop(end.min(self.now), self.now);
        self.turn.speech_end = Some(self.speech.end);
        self.turn.wait_started_at = self.now;
        self.emit(Event::UserStoppedSpeaking);
        if self.awaits_turn_probability() {
            self.outputs.push_back(crate::contract::output::Output::RequestTurnProbability(
                self.speech.segment_id(),
            ));
        }
        self.reset_turn_deadline();
        self.finish_barge_in();
    }

    pub(crate) fn handle_turn_probability(
        &mut self,
        speech_segment: crate::contract::input::SpeechSegmentId,
        probability: f32,
    ) {
        let of_this_turn = self.speech.active || self.turn.speech_end.is_some();
        if self.turn.has_provider_hint {
            self.explain_decision(|| {
                format!("the turn model's result {probability} is ignored: the provider decides")
            });
        } else if speech_segment == self.speech.segment_id()
            && of_this_turn
            && !probability.is_nan()
        {
            self.turn.end_of_turn_probability = Some(probability);
            self.reset_turn_deadline();
        } else {
            self.explain_decision(|| {
                format!("the turn model's result {probability} arrived too late")
            });
        }
    }

    /// Handles an opinion of the STT's provider. Its end of the turn is P(turn is over) = 1, and its
    /// resumption is 0, in place of the turn model's result for the same speech. An eager end only
    /// starts a preemptive reply.
    pub(crate) fn handle_turn_hint(&mut self, hint: TurnHint) {
        let of_this_turn =
            self.speech.active || self.turn.speech_end.is_some() || self.turn.is_open();
        let probability = match hint {
            _ if !of_this_turn => {
                self.explain_decision(|| "the provider's hint arrived too late".into());
                return;
            }
            TurnHint::EagerEnd => return self.start_eager_reply(),
            TurnHint::Resumed => 0.0,
            TurnHint::End => 1.0,
        };
        self.turn.end_of_turn_probability = Some(probability);
        self.turn.has_provider_hint = true;
        self.reset_turn_deadline();
    }

    /// Emits a transcript and returns its trimmed text. A transcript without letters or digits is
    /// not emitted, and the result is empty. Every transcript marks the STT as recovered.
    fn emit_transcript<'a>(&mut self, text: &'a str, is_final: bool) -> &'a str {
        self.stage_recovered(crate::contract::event::Stage::Stt);
        let text = text.trim();
        if !text.chars().any(char::is_alphanumeric) {
            return "";
        }
        self.emit(Event::UserTranscript { text: text.to_owned(), is_final });
        text
    }

    /// `trailing_interim`: words after the final transcript, which may still change.
    pub(crate) fn handle_final_transcript(&mut self, text: &str, trailing_interim: &str) {
        let text = self.emit_transcript(text, true);
        self.pending_finals = self.pending_finals.saturating_sub(1);
        trailing_interim.trim().clone_into(&mut self.turn.interim);
        if text.is_empty() {
            self.reset_turn_deadline();
            self.reschedule_resume();
            return;
        }
        append_words(&mut self.turn.text, text);
        self.push_turn_part(text);
        add_provider(&mut self.turn.stt_providers, self.stt_provider.as_ref());
        self.turn.last_final_at = Some(self.now);
        self.interrupt_by_final(is_backchannel(text));
        if !self.speech.active {
            self.turn.wait_started_at = self.now;
        }
        self.reset_turn_deadline();
        self.start_preemptive_reply();
    }

    pub(crate) fn handle_interim_transcript(&mut self, text: &str) {
        let text = self.emit_transcript(text, false);
        let fresh = self.turn.interim.is_empty();
        text.clone_into(&mut self.turn.interim);
        if fresh || text.is_empty() {
            if !self.speech.active && self.turn.speech_end.is_none() && self.turn.text.is_empty() {
                self.turn.wait_started_at = self.now;
            }
            self.reset_turn_deadline();
        }
        if self.spec.min_interruption_words > 0 {
            self.hold_if_interrupted();
        }
        self.interrupt_by_stop_word();
    }

    /// Number of words in the turn so far, including carried and interim words.
    pub(crate) fn turn_word_count(&self) -> usize {
        count_words(&self.carried_text)
            + count_words(&self.turn.text)
            + count_words(&self.turn.interim)
    }

    /// Sets the deadline for which the turn waits now.
    pub(crate) fn reset_turn_deadline(&mut self) {
        self.timers.clear(TimerKind::TranscriptTimeout);
        self.timers.clear(TimerKind::Commit);
        if self.speech.active {
            return;
        }
        let timeout =
            self.spec.transcript_timeout.map(|timeout| self.turn.wait_started_at + timeout);
        if self.turn.text.is_empty() {
            if self.turn.speech_end.is_some() || !self.turn.interim.is_empty() {
                self.timers.set_or_clear(TimerKind::TranscriptTimeout, timeout);
            }
        } else if self.turn.interim.is_empty() {
            self.timers.set(TimerKind::Commit, self.commit_at());
        } else {
            // The wait for an interim transcript never ends before the commit would be due.
            self.timers.set_or_clear(
                TimerKind::TranscriptTimeout,
                timeout.map(|at| at.max(self.commit_at())),
            );
        }
    }

    fn turn_model_expects_more(&self) -> bool {
        self.turn.end_of_turn_probability.is_some_and(|p| p < self.spec.turn_threshold)
    }

    fn commit_at(&self) -> Time {
        let (min_delay, max_delay) = self.endpointing_delays();
        let delay = if self.turn_model_expects_more() { max_delay } else { min_delay };
        let stopped = self.turn.speech_end.unwrap_or(self.turn.wait_started_at);
        self.turn.wait_started_at.max(stopped + delay)
    }

    /// Until when a wait that began at `since` continues for a final transcript that is due. `None`
    /// if no final transcript is due or the maximum wait has passed.
    pub(crate) fn final_transcript_deadline(&mut self, since: Time) -> Option<Time> {
        let latest = since + MAX_FINAL_TRANSCRIPT_WAIT;
        if self.now >= latest {
            // A lost final transcript must not prolong every later wait.
            self.pending_finals = 0;
        }
        (self.pending_finals > 0).then_some(latest)
    }

    pub(crate) fn transcript_timed_out(&mut self) {
        if let Some(latest) = self.final_transcript_deadline(self.turn.wait_started_at) {
            self.explain_decision(|| {
                format!("the STT is still transcribing: the turn waits until {latest}")
            });
            self.timers.set(TimerKind::TranscriptTimeout, latest);
            return;
        }
        let timeout = self.spec.transcript_timeout.unwrap_or_default();
        if self.turn.text.is_empty() {
            self.explain_decision(|| {
                format!("transcript_timeout {timeout:?}: no transcript arrived, the turn is over")
            });
            self.turn = Turn {
                late_onset: self.turn.first_onset.or(self.turn.late_onset),
                late_speech_end: self.turn.speech_end.or(self.turn.late_speech_end),
                ..Turn::default()
            };
        } else {
            self.explain_decision(|| {
                format!("transcript_timeout {timeout:?}: the final transcript did not arrive")
            });
            self.turn.interim.clear();
            self.reset_turn_deadline();
        }
    }

    /// Commits the turn, or carries its text over if it has too few words to end a reply.
    pub(crate) fn commit_due(&mut self) {
        if self.waits_for_speaker() {
            return;
        }
        let (min_delay, max_delay) = self.endpointing_delays();
        let mut turn = core::mem::take(&mut self.turn);
        let min_words = self.spec.min_interruption_words;
        let over_interruptible_reply =
            self.floor.front().is_some_and(|reply| reply.interruptible && !self.is_ending());
        if over_interruptible_reply
            && !turn.is_backchannel
            && count_words(&self.carried_text) + count_words(&turn.text) < min_words
        {
            append_words(&mut self.carried_text, &turn.text);
            self.explain_decision(|| {
                format!(
                    "min_interruption_words {min_words}: too few words to interrupt a reply; \
                     the next turn includes them"
                )
            });
            // The preemptive reply started while the floor was empty, and a reply has the floor
            // now. The text of the next turn differs.
            self.discard_preemptive_reply("its turn has too few words");
            return;
        }
        if !self.carried_text.is_empty() {
            let more = core::mem::replace(&mut turn.text, core::mem::take(&mut self.carried_text));
            if let Some(first) = turn.parts.first_mut() {
                let more = core::mem::replace(&mut first.text, turn.text.clone());
                append_words(&mut first.text, &more);
            }
            append_words(&mut turn.text, &more);
        }
        let now = self.now;
        let threshold = self.spec.turn_threshold;
        let turn_model_asked = self.spec.turn_model && turn.speech_end.is_some();
        let who = if turn.has_provider_hint { "the provider says" } else { "turn model" };
        self.explain_decision(|| {
            let why = match turn.end_of_turn_probability {
                Some(p) if p < threshold => {
                    format!(
                        "{who} {p} < turn_threshold {threshold}: max_endpointing_delay \
                         {max_delay:?}"
                    )
                }
                Some(p) => {
                    format!(
                        "{who} {p} >= turn_threshold {threshold}: min_endpointing_delay \
                         {min_delay:?}"
                    )
                }
                None if turn_model_asked => {
                    format!(
                        "no result of the turn model in time: min_endpointing_delay {min_delay:?}"
                    )
                }
                None => format!("min_endpointing_delay {min_delay:?}"),
            };
            let from = turn.speech_end.map_or("no speech was detected".to_owned(), |end| {
                format!("speech ended at {end}")
            });
            format!("committed: {from}, waited since {}, {why}", turn.wait_started_at)
        });
        let start = turn.first_onset.or(turn.late_onset);
        let end = turn.speech_end.or(turn.late_speech_end);
        let since_end = |at: Option<Time>| Some(at?.since(end?).as_secs_f64());
        let times = crate::contract::event::TurnTimes {
            endpointing: since_end(Some(now)),
            stt: since_end(turn.last_final_at),
            providers: TurnProviders { stt: turn.stt_providers, ..TurnProviders::default() },
            ..Default::default()
        };
        let wants_reply = !turn.is_backchannel;
        match self.split_turn(turn.parts, wants_reply) {
            None => {
                let spoken = SpokenTurn::of_user(start.zip(end));
                self.commit_turn(turn.text, times, spoken, wants_reply, false);
            }
            Some((utterances, answer)) => {
                self.commit_utterances(utterances, times, answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backchannels_are_told_by_their_whole_text() {
        for text in [
            "Yeah.",
            "mm-hm",
            "Mm-hm!",
            "OK",
            "Okay,",
            "uh-huh",
            "Right.",
            "Yep.",
            "yup",
            "Mmm.",
            "hm",
            "I see.",
            "Got it!",
            "yeah, yeah",
            "mm-hm, mm-hm.",
            "Okay okay okay.",
            "Alright.",
        ] {
            assert!(is_backchannel(text), "{text}");
        }
        for text in [
            "yeah but",
            "okay stop",
            "no",
            "",
            "right okay",
            "yep no",
            "I see it",
            "sure thing",
            "no no",
        ] {
            assert!(!is_backchannel(text), "{text}");
        }
    }
}
