//! Panic isolation: a panic ends one unit of work, not its thread and not the process.
//!
//! [`RestartBackoff`] decides how long a thread waits after a failure:
//!
//! ```text
//!             failure 1 to 5 in 10 s: no delay
//!            ┌───┐
//!            ▼   │      failure 6 in 10 s
//!         Immediate ────────────────────────► Backoff: 1 s ─┐
//!            ▲                                  ▲           │ further failure: delay doubles,
//!            │                                  └───────────┘ at most 30 s
//!            └── next failure 10 s or more after the end of the delay
//! ```
//!
//! [`run_until_done`] is the body of a thread that is restarted so. It never gives up.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

/// Number of failures within [`FAILURE_WINDOW`] that cause no delay.
const MAX_IMMEDIATE_RESTARTS: usize = 5;
/// How long a failure counts, and how long a thread must run after a delay to count as recovered.
const FAILURE_WINDOW: Duration = Duration::from_secs(10);
/// First delay; each further one is twice as long.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Maximum delay.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Minimum wait before a restart, so that a thread that panics immediately does not take a core.
pub const RESTART_DELAY: Duration = Duration::from_millis(100);

/// Runs `work`; `None` if it panicked. The caller must discard or repair what `work` may have left
/// incomplete.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Counts the failures of one thread.
#[derive(Debug, Default)]
pub struct RestartBackoff {
    /// Failures within the last [`FAILURE_WINDOW`].
    recent_failures: Vec<Instant>,
    /// The last delay, and its end.
    last_backoff: Option<(Duration, Instant)>,
}

impl RestartBackoff {
    /// Records a failure at `now` and returns the delay before the restart. The first five failures
    /// within 10 s cause no delay. After that the delay is 1 s and doubles each time, up to 30 s.
    /// It is reset when the thread has run for 10 s after a delay.
    pub fn next_backoff(&mut self, now: Instant) -> Duration {
        if self
            .last_backoff
            .is_some_and(|(_, end)| now.saturating_duration_since(end) >= FAILURE_WINDOW)
        {
            self.last_backoff = None;
        }
        self.recent_failures.retain(|at| now.saturating_duration_since(*at) < FAILURE_WINDOW);
        self.recent_failures.push(now);
        let pause = match self.last_backoff {
            Some((last, _)) => (last * 2).min(MAX_BACKOFF),
            None if self.recent_failures.len() <= MAX_IMMEDIATE_RESTARTS => return Duration::ZERO,
            None => INITIAL_BACKOFF,
        };
        self.last_backoff = Some((pause, now + pause));
        pause
    }
}

/// Body of a thread: runs `work` until it returns `Ok`, and again after each error and each panic.
///
/// Before each restart, `pause` gets the reason of the failure and the delay, which
/// [`RestartBackoff`] decides; it waits that long. If it returns false, the thread ends. It must
/// not panic.
pub fn run_until_done(
    now: impl Fn() -> Instant,
    mut work: impl FnMut() -> Result<(), String>,
    mut pause: impl FnMut(&str, Duration) -> bool,
) {
    let mut restarts = RestartBackoff::default();
    let mut last_reason = String::new();
    while let Err(reason) = catch_panic(&mut work).unwrap_or_else(|| Err("it panicked".to_owned()))
    {
        let delay = restarts.next_backoff(now()).max(RESTART_DELAY);
        if reason == last_reason {
            tracing::debug!(thread = thread_name(), reason, ?delay, "thread failed again");
        } else {
            tracing::error!(
                thread = thread_name(),
                reason,
                ?delay,
                "thread failed; restarting after a delay"
            );
        }
        if !pause(&reason, delay) {
            return;
        }
        last_reason = reason;
    }
}

/// Body of a thread: runs `work` until it returns, and again after each panic and a delay.
pub fn restart_forever(mut work: impl FnMut()) {
    let work = || {
        work();
        Ok(())
    };
    run_until_done(Instant::now, work, |_, delay| {
        thread::sleep(delay);
        true
    });
}

fn thread_name() -> String {
    thread::current().name().unwrap_or("unnamed").to_owned()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn work_that_panics_is_done_again_until_it_returns() {
        let mut tries = 0;
        restart_forever(|| {
            tries += 1;
            assert!(tries > 2, "the test's own panic");
        });
        assert_eq!(tries, 3);
    }

    #[test]
    fn work_that_fails_is_tried_for_ever_with_growing_pauses() {
        let clock = Cell::new(Instant::now());
        let (mut tries, mut pauses, mut reasons) = (0, Vec::new(), Vec::new());
        let work = || {
            tries += 1;
            match tries {
                101 => Ok(()),
                n if n % 2 == 0 => Err("no memory".to_owned()),
                _ => panic!("the test's own panic"),
            }
        };
        run_until_done(
            || clock.get(),
            work,
            |reason, delay| {
                reasons.push(reason.to_owned());
                pauses.push(delay.as_millis());
                clock.set(clock.get() + delay);
                true
            },
        );
        assert_eq!((tries, pauses.len()), (101, 100));
        assert_eq!(
            pauses[..11],
            [100, 100, 100, 100, 100, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]
        );
        assert!(pauses[11..].iter().all(|pause| *pause == 30_000));
        assert_eq!(reasons[..2], ["it panicked", "no memory"]);
    }

    #[test]
    fn a_pause_can_end_the_thread() {
        let mut pauses = 0;
        let pause = |_: &str, _| {
            pauses += 1;
            pauses < 3
        };
        run_until_done(Instant::now, || Err("broken".to_owned()), pause);
        assert_eq!(pauses, 3);
    }

    #[test]
    fn a_thread_that_fails_all_the_time_pauses_longer_and_longer_until_it_is_mended() {
        let (mut restarts, begin) = (RestartBackoff::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!((0..5).all(|n| restarts.next_backoff(at(n)).is_zero()));
        let (mut now, mut pauses) = (5, Vec::new());
        for _ in 0..7 {
            let pause = restarts.next_backoff(at(now)).as_secs();
            pauses.push(pause);
            // The thread fails again one second after the delay.
            now += pause + 1;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        now += 9;
        assert!(
            (0..5).all(|n| restarts.next_backoff(at(now + n)).is_zero()),
            "it worked for ten seconds"
        );
        assert_eq!(restarts.next_backoff(at(now + 5)), INITIAL_BACKOFF);
    }

    #[test]
    fn failures_far_apart_cost_no_pause() {
        let (mut restarts, begin) = (RestartBackoff::default(), Instant::now());
        assert!(
            (0..20).all(|n| restarts.next_backoff(begin + Duration::from_secs(3 * n)).is_zero())
        );
    }
}
