//! Admission: whether one more call may start. Running calls are never affected: a call is rejected
//! when it would degrade them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use engine_api::OfferError;

use super::{CallDirectory, CallEngine, PendingOffers};
use crate::clock;
use crate::context::Slot;

/// Why a new call is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RejectReason {
    /// Certificate or models are not available.
    NotReady(String),
    /// The server is shutting down.
    Draining,
    /// `limits.calls` calls are running.
    Full,
    /// Every media thread has failed and has not restarted yet.
    ThreadsDead,
    /// No media thread has capacity left.
    ThreadsOverloaded,
    /// Too little memory is left.
    LowMemory,
    /// A built-in model is overloaded; the string describes it in one sentence.
    ModelsOverloaded(String),
    /// The call's own models are not available: no decoder is free, for example.
    CallModels(String),
}

/// Names of [`RejectReason`], as `/metrics` exports them.
pub(super) const REASON_NAMES: [&str; 8] =
    ["not_ready", "draining", "full", "load", "memory", "models", "call", "dead"];

impl RejectReason {
    fn index(&self) -> usize {
        match self {
            Self::NotReady(_) => 0,
            Self::Draining => 1,
            Self::Full => 2,
            Self::ThreadsOverloaded => 3,
            Self::LowMemory => 4,
            Self::ModelsOverloaded(_) => 5,
            Self::CallModels(_) => 6,
            Self::ThreadsDead => 7,
        }
    }
}

impl std::fmt::Display for RejectReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotReady(what) | Self::ModelsOverloaded(what) | Self::CallModels(what) => what,
            Self::Draining => "the server is shutting down",
            Self::Full => "the server is full",
            Self::ThreadsDead => "the media threads have failed and are restarting",
            Self::ThreadsOverloaded => "the media threads have no CPU time for another call",
            Self::LowMemory => "too little memory is left for another call",
        })
    }
}

/// Number of rejections, by reason.
#[derive(Default)]
pub(super) struct RejectionCounts([AtomicU64; REASON_NAMES.len()]);

impl RejectionCounts {
    /// Counts one rejection and converts it to an error.
    pub(super) fn reject(&self, why: &RejectReason) -> OfferError {
        self.0[why.index()].fetch_add(1, Relaxed);
        OfferError::NoCapacity(why.to_string())
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        REASON_NAMES.into_iter().zip(self.0.iter().map(|count| count.load(Relaxed)))
    }
}

impl CallEngine {
    /// Why a new call would be rejected now; `None` if it would be admitted.
    pub(super) fn reject_reason(&self) -> Option<RejectReason> {
        // Cheapest check first; the last one may read files.
        let full = self.max_calls > 0 && self.slots_taken() >= self.max_calls;
        if full {
            return Some(RejectReason::Full);
        }
        if self.dead_thread_count() == self.threads.len() {
            return Some(RejectReason::ThreadsDead);
        }
        if self.thread_with_fewest_calls(None).is_none() {
            return Some(RejectReason::ThreadsOverloaded);
        }
        if let Some(reason) = self.models.overloaded() {
            return Some(RejectReason::ModelsOverloaded(reason));
        }
        self.memory.is_low(clock::now()).then_some(RejectReason::LowMemory)
    }

    /// Number of media threads that take no calls because they failed.
    pub(super) fn dead_thread_count(&self) -> usize {
        self.threads.iter().filter(|thread| thread.stats.dead.load(Relaxed)).count()
    }

    /// Message about failed threads while other threads still take calls.
    pub(super) fn dead_threads_message(&self) -> Option<String> {
        let (down, all) = (self.dead_thread_count(), self.threads.len());
        (down > 0)
            .then(|| format!("media threads that have failed and are restarting: {down} of {all}"))
    }

    /// The thread with the fewest calls and pending offers, among those with capacity for one more
    /// call.
    fn thread_with_fewest_calls(&self, pending_offers: Option<&PendingOffers>) -> Option<usize> {
        let free = (0..self.threads.len()).filter(|thread| self.has_capacity(*thread));
        free.min_by_key(|thread| {
            self.threads[*thread].slots_taken.load(Relaxed)
                + pending_offers.map_or(0, |pending_offers| pending_offers.count_on_thread(*thread))
        })
    }

    fn has_capacity(&self, thread: usize) -> bool {
        let thread = &self.threads[thread];
        !thread.stats.dead.load(Relaxed)
            && thread.stats.load.admits_call(thread.slots_taken.load(Relaxed))
    }

    /// Selects the thread for a call that does not run yet.
    pub(super) fn select_thread(&self, directory: &CallDirectory) -> Result<usize, RejectReason> {
        if directory.draining {
            return Err(RejectReason::Draining);
        }
        if let Some(why) = self.reject_reason() {
            return Err(why);
        }
        self.thread_with_fewest_calls(Some(&directory.pending_offers))
            .ok_or(RejectReason::ThreadsOverloaded)
    }

    /// Checks whether a slot is free on this thread; takes none. Also while the engine drains: the
    /// offer was answered before.
    pub(super) fn check_slot_on(&self, thread: usize) -> Result<(), RejectReason> {
        if let Some(why) = self.reject_reason() {
            return Err(why);
        }
        if !self.has_capacity(thread) {
            return Err(RejectReason::ThreadsOverloaded);
        }
        Ok(())
    }

    /// Takes a slot on this thread. Slots are taken only under the directory's lock, so that no
    /// limit is exceeded.
    pub(super) fn take_slot_on(
        &self,
        _directory: &CallDirectory,
        thread: usize,
    ) -> Result<Slot, RejectReason> {
        self.check_slot_on(thread)?;
        Ok(Slot::take(&self.threads[thread].slots_taken))
    }

    /// Takes a slot on the thread with capacity that has the fewest calls.
    pub(super) fn take_slot(
        &self,
        directory: &CallDirectory,
    ) -> Result<(usize, Slot), RejectReason> {
        let thread = self.select_thread(directory)?;
        Ok((thread, self.take_slot_on(directory, thread)?))
    }
}
