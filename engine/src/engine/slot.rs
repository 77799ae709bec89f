//! What a call holds of its media thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Marks a call, or an offer for one, as present on its thread; dropping it clears the mark.
pub struct PresenceGuard(pub(super) Arc<AtomicBool>);

impl Default for PresenceGuard {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Drop for PresenceGuard {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// A call's slot on its thread; dropping it frees the slot.
pub struct Slot {
    slots_taken: Arc<AtomicUsize>,
}

impl Slot {
    pub(super) fn take(taken: &Arc<AtomicUsize>) -> Self {
        taken.fetch_add(1, Relaxed);
        Self { slots_taken: Arc::clone(taken) }
    }

    /// A slot for a test's call.
    #[must_use]
    pub fn for_test() -> Self {
        Self::take(&Arc::default())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots_taken.fetch_sub(1, Relaxed);
    }
}
