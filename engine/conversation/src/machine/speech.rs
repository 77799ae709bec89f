//! The user's speech as the VAD reports it, and the turn that it forms.
//!
//! ```text
//!           start(onset)
//! SILENT ------------------> ACTIVE <---+
//!    ^                        |  |      | SpeechContinued: `end` advances
//!    |        stop(end)       |  +------+
//!    +------------------------+
//! ```
//!
//! While the segment is active, `has_lasted` becomes true after `min_interruption_duration` of
//! speech. The hold decision is made once, then.

use core::time::Duration;

use crate::contract::input::SpeechSegmentId;
use crate::contract::spec::VadTiming;
use crate::contract::time::Time;
use crate::machine::people::TurnPart;

/// The user's open turn.
#[derive(Default)]
pub(crate) struct Turn {
    /// Final transcripts, joined.
    pub(crate) text: String,
    /// The final transcripts one by one, in a conversation of several people.
    pub(crate) parts: Vec<TurnPart>,
    /// True onset of the speech whose final transcript has not arrived, if there is any.
    pub(crate) part_onset: Option<Time>,
    /// Until when the commit waits for the name of the speaker.
    pub(crate) speaker_wait_until: Option<Time>,
    /// The interim transcript, which may still change.
    pub(crate) interim: String,
    /// True onset of its first speech segment.
    pub(crate) first_onset: Option<Time>,
    /// True end of its last speech segment.
    pub(crate) speech_end: Option<Time>,
    /// True onset of earlier speech whose words did not arrive in time.
    pub(crate) late_onset: Option<Time>,
    /// True end of earlier speech whose words did not arrive in time. Words that arrive later
    /// belong to that speech, and their latencies are measured from here.
    pub(crate) late_speech_end: Option<Time>,
    /// P(turn is over) for the last speech segment, by the turn model or the STT's provider.
    pub(crate) end_of_turn_probability: Option<f32>,
    /// Whether the STT's provider has determined the probability. The turn model is then ignored.
    pub(crate) has_provider_hint: bool,
    /// The providers of its final transcripts.
    pub(crate) stt_providers: Vec<String>,
    /// Start of the current wait.
    pub(crate) wait_started_at: Time,
    /// Arrival of the last final transcript.
    pub(crate) last_final_at: Option<Time>,
    /// Whether a final transcript was more than a backchannel over the agent's speech.
    pub(crate) has_non_backchannel: bool,
    /// Whether the turn is a backchannel, so that the agent continues.
    pub(crate) is_backchannel: bool,
    /// Number of preemptive replies that were started for this turn.
    pub(crate) preemptive_attempts: u32,
}

/// The current or last speech segment of the user.
#[derive(Default)]
pub(crate) struct UserSpeech {
    /// Whether the VAD reports speech now.
    pub(crate) active: bool,
    /// True onset: the time at which speech began, not the time of the report.
    pub(crate) onset: Time,
    /// True end so far: the end of the last window with speech.
    pub(crate) end: Time,
    /// Whether the hold decision of this segment was made. It is made once, when the segment has
    /// lasted long enough.
    pub(crate) hold_evaluated: bool,
    /// Time of the VAD's report of the end.
    pub(crate) end_reported_at: Option<Time>,
    /// Number of speech segments so far.
    segment_count: u32,
}

impl UserSpeech {
    pub(crate) fn start(&mut self, onset: Time) {
        self.active = true;
        self.onset = onset;
        self.end = onset;
        self.hold_evaluated = false;
        self.segment_count = self.segment_count.saturating_add(1);
    }

    pub(crate) fn stop(&mut self, end: Time, now: Time) {
        self.active = false;
        self.end = end.max(self.onset);
        self.end_reported_at = Some(now);
    }

    /// Identifier of the current or last segment.
    pub(crate) fn segment_id(&self) -> SpeechSegmentId {
        SpeechSegmentId(self.segment_count.saturating_sub(1))
    }

    /// The earliest time at which the VAD can know that unbroken speech has lasted `min_duration`.
    pub(crate) fn hold_deadline(&self, vad: VadTiming, min_duration: Duration) -> Time {
        self.onset + vad.min_speech_duration + min_duration
    }

    /// Whether the speech itself, without trailing silence, has lasted `min_duration` by `now`.
    pub(crate) fn has_lasted(&self, vad: VadTiming, min_duration: Duration, now: Time) -> bool {
        self.segment_count > 0
            && now >= self.hold_deadline(vad, min_duration)
            && self.end.since(self.onset) >= min_duration
    }
}
