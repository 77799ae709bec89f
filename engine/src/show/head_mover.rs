//! Where a head is, and how it gets to where it should be: by at most one step of its paths a
//! picture, so that no picture differs much from the one before.

use super::stance_paths::{Place, StancePaths};

/// Minimum time of a step, in seconds. It is below the interval of pictures at 30 frames a second,
/// so that a head in a hurry steps with each picture.
pub(super) const QUICK_STEP: f32 = 0.03;

/// A head on its way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadMover {
    at: Place,
    to: Place,
    /// Time of a step, and since the last one, in seconds.
    step_seconds: f32,
    waited: f32,
}

impl HeadMover {
    /// The place that is shown.
    pub(super) fn at(&self) -> Place {
        self.at
    }

    /// The place to which it moves, or at which it rests.
    pub(super) fn to(&self) -> Place {
        self.to
    }

    /// Whether it rests.
    pub(super) fn is_still(&self) -> bool {
        self.at == self.to
    }

    /// Moves to a place. Each step takes this many seconds, the first one none.
    pub(super) fn go(&mut self, to: Place, step_seconds: f32) {
        if self.is_still() {
            self.waited = step_seconds;
        }
        (self.to, self.step_seconds) = (to, step_seconds);
    }

    /// Ends a motion soon: at the nearer end of the current path.
    pub(super) fn settle(&mut self, paths: &StancePaths) {
        self.go(paths.nearer_end(self.at), QUICK_STEP);
    }

    /// Advances by `dt` seconds, by one step at most. A step takes at least `min_seconds`.
    pub(super) fn update(&mut self, dt: f32, min_seconds: f32, paths: &StancePaths) {
        self.waited += dt;
        let step_seconds = self.step_seconds.max(min_seconds);
        if !self.is_still() && self.waited >= step_seconds {
            self.at = paths.next(self.at, self.to);
            self.waited = 0.0;
        }
    }

    /// Continues on other paths, as near as possible to where it is.
    pub(super) fn change_paths(&mut self, from: &StancePaths, to: &StancePaths) {
        self.at = to.same_place(from, self.at);
        self.to = to.same_place(from, self.to);
    }
}
