//! Whether one more call may begin. Running calls are never asked: what is refused here is what would spoil them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{CallEngine, Directory, Seat, Waiting};
use crate::clock;
use conversation::engine::OfferError;

/// Why a new call is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Certificate or models are not there.
    NotReady(String),
    /// The server is about to stop.
    Draining,
    /// `limits.calls` are held.
    Full,
    /// Every media thread failed and has not begun anew yet.
    Dead,
    /// No media thread has time left.
    Load,
    /// Too little memory is left.
    Memory,
    /// A built-in model is behind, in one sentence.
    Models(String),
    /// The call's own models cannot be had: no decoder is free, say.
    Call(String),
}

/// Names of [`Why`], as `/metrics` has them.
pub(super) const WHY: [&str; 8] =
    ["not_ready", "draining", "full", "load", "memory", "models", "call", "dead"];

impl Why {
    fn place(&self) -> usize {
        match self {
            Self::NotReady(_) => 0,
            Self::Draining => 1,
            Self::Full => 2,
            Self::Load => 3,
            Self::Memory => 4,
            Self::Models(_) => 5,
            Self::Call(_) => 6,
            Self::Dead => 7,
        }
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotReady(what) | Self::Models(what) | Self::Call(what) => what,
            Self::Draining => "the server is shutting down",
            Self::Full => "the server is full",
            Self::Dead => "the media threads have failed and are tried again",
            Self::Load => "the media threads have no time for another call",
            Self::Memory => "too little memory is left for another call",
        })
    }
}

/// How often a call was refused, by reason.
#[derive(Default)]
pub(super) struct Refused([AtomicU64; WHY.len()]);

impl Refused {
    /// Counts one and makes it an answer.
    pub(super) fn note(&self, why: &Why) -> OfferError {
        self.0[why.place()].fetch_add(1, Relaxed);
        OfferError::NoCapacity(why.to_string())
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        WHY.into_iter().zip(self.0.iter().map(|count| count.load(Relaxed)))
    }
}

impl CallEngine {
    /// Why a call that is not held yet would be refused now; `None` if it would not.
    pub(super) fn no_room(&self) -> Option<Why> {
        // The cheapest first; the last one may read files.
        let full = self.most_calls > 0 && self.held() >= self.most_calls;
        if full {
            return Some(Why::Full);
        }
        if self.dead() == self.threads.len() {
            return Some(Why::Dead);
        }
        if self.least_loaded(None).is_none() {
            return Some(Why::Load);
        }
        if let Some(behind) = self.models.behind() {
            return Some(Why::Models(behind));
        }
        self.memory.is_short(clock::now()).then_some(Why::Memory)
    }

    /// Media threads that take no calls because they failed.
    pub(super) fn dead(&self) -> usize {
        self.threads.iter().filter(|thread| thread.stats.dead.load(Relaxed)).count()
    }

    /// What has failed while calls are taken still.
    pub(super) fn failing(&self) -> Option<String> {
        let (dead, all) = (self.dead(), self.threads.len());
        (dead > 0).then(|| format!("media threads that have failed and are tried again: {dead} of {all}"))
    }

    /// The thread with the fewest calls, and offers for them, of those that have time for one more call.
    fn least_loaded(&self, waiting: Option<&Waiting>) -> Option<usize> {
        let free = (0..self.threads.len()).filter(|thread| self.has_time(*thread));
        free.min_by_key(|thread| {
            self.threads[*thread].taken.load(Relaxed) + waiting.map_or(0, |waiting| waiting.on(*thread))
        })
    }

    fn has_time(&self, thread: usize) -> bool {
        let thread = &self.threads[thread];
        !thread.stats.dead.load(Relaxed) && thread.stats.headroom.admits(thread.taken.load(Relaxed))
    }

    /// The thread to which a call that is not here may come.
    pub(super) fn thread_for(&self, directory: &Directory) -> Result<usize, Why> {
        if directory.draining {
            return Err(Why::Draining);
        }
        if let Some(why) = self.no_room() {
            return Err(why);
        }
        self.least_loaded(Some(&directory.waiting)).ok_or(Why::Load)
    }

    /// A place on this thread. Places are taken under the directory's lock only, so that no limit is passed.
    pub(super) fn seat_on(&self, directory: &Directory, thread: usize) -> Result<Seat, Why> {
        if directory.draining {
            return Err(Why::Draining);
        }
        if let Some(why) = self.no_room() {
            return Err(why);
        }
        if !self.has_time(thread) {
            return Err(Why::Load);
        }
        Ok(Seat::take(&self.threads[thread].taken))
    }

    /// A place on the thread that has most time left.
    pub(super) fn place(&self, directory: &Directory) -> Result<(usize, Seat), Why> {
        let thread = self.thread_for(directory)?;
        Ok((thread, self.seat_on(directory, thread)?))
    }
}
