//! Panics stay where they happen: a fault in one piece of work ends that work, not the thread and not the process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

/// Failures within [`WITHIN`] that cost no pause.
const MOST: usize = 5;
/// How long a failure counts, and how long a thread must have worked after a pause to count as mended.
const WITHIN: Duration = Duration::from_secs(10);
/// The first pause; each is twice as long as the one before.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(30);
/// Wait before a restart, so that a thread that panics at once takes no core.
const PAUSE: Duration = Duration::from_millis(100);

/// Does `work`; `None` if it panicked. The caller must drop or put right what `work` may have left half done.
pub fn contained<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Counts the failures of one thread.
#[derive(Debug, Default)]
pub struct Restarts {
    /// Those of the last [`WITHIN`].
    recent: Vec<Instant>,
    /// The last pause, and its end.
    paused: Option<(Duration, Instant)>,
}

impl Restarts {
    /// The thread failed at `now`: how long it is to pause before it works again. Not at all for the first five failures within 10 s; then
    /// 1 s, and twice as long each time, at most 30 s, until it has worked for 10 s after a pause.
    pub fn pause(&mut self, now: Instant) -> Duration {
        if self.paused.is_some_and(|(_, end)| now.saturating_duration_since(end) >= WITHIN) {
            self.paused = None;
        }
        self.recent.retain(|at| now.saturating_duration_since(*at) < WITHIN);
        self.recent.push(now);
        let pause = match self.paused {
            Some((last, _)) => (last * 2).min(LONGEST),
            None if self.recent.len() <= MOST => return Duration::ZERO,
            None => FIRST,
        };
        self.paused = Some((pause, now + pause));
        pause
    }
}

/// The body of a thread: does `work` until it returns, and does it again if it panicked. The sixth panic within 10 s ends it.
pub fn restarting(mut work: impl FnMut()) {
    let mut restarts = Restarts::default();
    while contained(&mut work).is_none() {
        if !restarts.pause(Instant::now()).is_zero() {
            tracing::error!(thread = own_name(), "a thread panicked too often and is not restarted");
            return;
        }
        tracing::error!(thread = own_name(), "a thread panicked and is restarted");
        thread::sleep(PAUSE);
    }
}

/// The body of a thread that nothing takes the place of: as [`restarting`], but never given up. It pauses instead, see [`Restarts::pause`].
pub fn lasting(mut work: impl FnMut()) {
    let mut restarts = Restarts::default();
    while contained(&mut work).is_none() {
        let pause = restarts.pause(Instant::now()).max(PAUSE);
        tracing::error!(thread = own_name(), ?pause, "a thread panicked and is restarted after a pause");
        thread::sleep(pause);
    }
}

fn own_name() -> String {
    thread::current().name().unwrap_or("unnamed").to_owned()
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
        lasting(|| {
            tries += 1;
            assert!(tries > 5, "the test's own panic");
        });
        assert_eq!(tries, 6);
    }

    #[test]
    fn a_thread_that_fails_all_the_time_pauses_longer_and_longer_until_it_is_mended() {
        let (mut restarts, begin) = (Restarts::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!((0..5).all(|n| restarts.pause(at(n)).is_zero()));
        let (mut now, mut pauses) = (5, Vec::new());
        for _ in 0..7 {
            let pause = restarts.pause(at(now)).as_secs();
            pauses.push(pause);
            // It fails again one second after the pause.
            now += pause + 1;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        now += 9;
        assert!((0..5).all(|n| restarts.pause(at(now + n)).is_zero()), "it worked for ten seconds");
        assert_eq!(restarts.pause(at(now + 5)), FIRST);
    }

    #[test]
    fn failures_far_apart_cost_no_pause() {
        let (mut restarts, begin) = (Restarts::default(), Instant::now());
        assert!((0..20).all(|n| restarts.pause(begin + Duration::from_secs(3 * n)).is_zero()));
    }
}
