//! What a call holds of its media thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// That a call, or an offer for one, is on its thread; dropping it ends that.
pub struct Presence(pub(super) Arc<AtomicBool>);

impl Default for Presence {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// A call's place on its thread; dropping it frees the place.
pub struct Seat {
    taken: Arc<AtomicUsize>,
}

impl Seat {
    pub(super) fn take(taken: &Arc<AtomicUsize>) -> Self {
        taken.fetch_add(1, Relaxed);
        Self { taken: Arc::clone(taken) }
    }

    /// A place for a test's call.
    #[must_use]
    pub fn free() -> Self {
        Self::take(&Arc::default())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Relaxed);
    }
}
