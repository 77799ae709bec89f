//! Which threads of a part of the server have failed and have not restarted yet.
//!
//! The thread sets its own state. Anyone reads it without a lock, unless a thread has failed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The state of a number of threads with the same work.
#[derive(Debug)]
pub struct ThreadHealth {
    failed: Box<[AtomicBool]>,
    /// Why the last thread failed.
    reason: Mutex<String>,
}

impl ThreadHealth {
    /// State of `threads` threads, none of which has failed.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let failed = (0..threads).map(|_| AtomicBool::new(false)).collect();
        Self { failed, reason: Mutex::default() }
    }

    /// Thread number `thread` has failed.
    pub fn set_failed(&self, thread: usize, reason: &str) {
        // First, so that a thread that sees the failure also sees its reason.
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason.to_owned();
        self.failed[thread].store(true, Ordering::Release);
    }

    /// Thread number `thread` works, again or for the first time.
    pub fn set_working(&self, thread: usize) {
        self.failed[thread].store(false, Ordering::Release);
    }

    /// Whether thread number `thread` has failed and has not restarted yet.
    #[must_use]
    pub fn is_failed(&self, thread: usize) -> bool {
        self.failed[thread].load(Ordering::Acquire)
    }

    /// Number of such threads.
    #[must_use]
    pub fn failed_count(&self) -> usize {
        (0..self.failed.len()).filter(|thread| self.is_failed(*thread)).count()
    }

    /// Why the last of them failed; `None` if all threads work.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        (self.failed_count() > 0)
            .then(|| self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// As [`ThreadHealth::reason`], but `None` while any thread works.
    #[must_use]
    pub fn total_failure(&self) -> Option<String> {
        if self.failed_count() == self.failed.len() { self.reason() } else { None }
    }

    /// One sentence about the failed threads, which `what` names; `None` if all threads work.
    #[must_use]
    pub fn message(&self, what: &str) -> Option<String> {
        let reason = self.reason()?;
        let (failed, all) = (self.failed_count(), self.failed.len());
        Some(format!("{what} that have failed and are restarting: {failed} of {all} ({reason})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_threads_are_counted_until_they_work_again() {
        let health = ThreadHealth::new(2);
        assert_eq!(
            (health.failed_count(), health.reason(), health.message("voices")),
            (0, None, None)
        );
        health.set_failed(1, "no memory");
        health.set_failed(1, "it panicked");
        assert_eq!(
            (health.is_failed(0), health.is_failed(1), health.total_failure()),
            (false, true, None)
        );
        assert_eq!(
            health.message("voices").unwrap(),
            "voices that have failed and are restarting: 1 of 2 (it panicked)"
        );
        health.set_failed(0, "no memory");
        assert_eq!(health.total_failure().as_deref(), Some("no memory"));
        health.set_working(0);
        health.set_working(1);
        assert_eq!(
            (health.failed_count(), health.reason(), health.total_failure()),
            (0, None, None)
        );
    }
}
