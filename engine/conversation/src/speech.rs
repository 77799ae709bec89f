//! What the detector says of the user's voice.

use core::time::Duration;

use crate::input::StretchId;
use crate::spec::Vad;
use crate::time::Time;

/// The last stretch of the user's speech.
#[derive(Default)]
pub(crate) struct Speech {
    /// Whether the detector hears the user.
    pub(crate) hearing: bool,
    /// True onset.
    pub(crate) onset: Time,
    /// True end so far.
    pub(crate) until: Time,
    /// Whether it was asked whether it holds the agent: that is asked once, when it has lasted long enough.
    pub(crate) judged: bool,
    /// When its end was reported.
    pub(crate) stopped: Option<Time>,
    /// How many stretches there were.
    count: u32,
}

impl Speech {
    pub(crate) fn start(&mut self, onset: Time) {
        self.hearing = true;
        self.onset = onset;
        self.until = onset;
        self.judged = false;
        self.count = self.count.saturating_add(1);
    }

    pub(crate) fn stop(&mut self, end: Time, now: Time) {
        self.hearing = false;
        self.until = end.max(self.onset);
        self.stopped = Some(now);
    }

    /// The current stretch, or the last one.
    pub(crate) fn stretch(&self) -> StretchId {
        StretchId(self.count.saturating_sub(1))
    }

    /// When speech without a break has lasted `least`, as far as the detector can know it.
    pub(crate) fn hold_at(&self, vad: Vad, least: Duration) -> Time {
        self.onset + vad.start + least
    }

    /// Whether the speech itself, without trailing silence, has lasted `least` by `now`.
    pub(crate) fn lasted(&self, vad: Vad, least: Duration, now: Time) -> bool {
        self.count > 0 && now >= self.hold_at(vad, least) && self.until.since(self.onset) >= least
    }
}
