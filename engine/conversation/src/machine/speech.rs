//! The user's speech as the VAD reports it.
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
