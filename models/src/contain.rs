//! Panics stay where they happen: a fault in one piece of work ends that work, not the thread and not the process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

/// Restarts within [`WITHIN`] after which a thread is given up.
const MOST: usize = 5;
/// How long a restart counts.
const WITHIN: Duration = Duration::from_secs(10);
/// Wait before a restart, so that a thread that panics at once takes no core.
const PAUSE: Duration = Duration::from_millis(100);

/// Does `work`; `None` if it panicked. The caller must drop or put right what `work` may have left half done.
pub fn contained<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Counts the restarts of one thread.
#[derive(Debug, Default)]
pub struct Restarts(Vec<Instant>);

impl Restarts {
    /// The thread panicked at `now`; whether it may be restarted.
    pub fn allows(&mut self, now: Instant) -> bool {
        self.0.retain(|at| now.saturating_duration_since(*at) < WITHIN);
        self.0.push(now);
        self.0.len() <= MOST
    }
}

/// The body of a thread: does `work` until it returns, and does it again if it panicked. Five panics within 10 s end it.
pub fn restarting(mut work: impl FnMut()) {
    let mut restarts = Restarts::default();
    while contained(&mut work).is_none() {
        let name = thread::current().name().unwrap_or("unnamed").to_owned();
        if !restarts.allows(Instant::now()) {
            tracing::error!(thread = name, "a thread panicked too often and is not restarted");
            return;
        }
        tracing::error!(thread = name, "a thread panicked and is restarted");
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_panics_is_done_again_until_it_returns() {
        let mut tries = 0;
        restarting(|| {
            tries += 1;
            assert!(tries > 2, "the test's own panic");
        });
        assert_eq!(tries, 3);
    }

    #[test]
    fn a_thread_that_panics_all_the_time_is_given_up() {
        let mut restarts = Restarts::default();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!((0..5).all(|n| restarts.allows(at(n))));
        assert!(!restarts.allows(at(5)), "the sixth within ten seconds");
        assert!(restarts.allows(at(60)), "long after");
    }
}
