//! What the detector says of the user's voice.

use core::time::Duration;

use crate::input::SpeechSegmentId;
use crate::spec::VadTiming;
use crate::time::Time;

/// The last stretch of the user's speech.
#[derive(Default)]
pub(crate) struct UserSpeech {
    /// Whether the detector hears the user.
    pub(crate) active: bool,
    /// True onset.
    pub(crate) onset: Time,
    /// True end so far.
    pub(crate) end: Time,
    /// Whether it was asked whether it holds the agent: that is asked once, when it has lasted long enough.
    pub(crate) hold_evaluated: bool,
    /// When its end was reported.
    pub(crate) end_reported_at: Option<Time>,
    /// How many stretches there were.
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

    /// The current stretch, or the last one.
    pub(crate) fn segment_id(&self) -> SpeechSegmentId {
        SpeechSegmentId(self.segment_count.saturating_sub(1))
    }

    /// When speech without a break has lasted `least`, as far as the detector can know it.
    pub(crate) fn hold_deadline(&self, vad: VadTiming, min_duration: Duration) -> Time {
        self.onset + vad.min_speech_duration + min_duration
    }

    /// Whether the speech itself, without trailing silence, has lasted `least` by `now`.
    pub(crate) fn has_lasted(&self, vad: VadTiming, min_duration: Duration, now: Time) -> bool {
        self.segment_count > 0
            && now >= self.hold_deadline(vad, min_duration)
            && self.end.since(self.onset) >= min_duration
    }
}
