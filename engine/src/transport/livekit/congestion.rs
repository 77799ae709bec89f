//! Tells a narrow path from packets that a busy machine sent or received late.
//!
//! str0m takes a growing delay for overuse. Its estimate then falls to about what was sent: some ten
//! kbit/s while the agent listens. The pacer would hold back the next words' pictures for seconds,
//! and the avatar would be shown at a low quality. A path that is really narrow reports the next
//! fall soon. So the first fall restarts the estimation, and the second one counts.

use std::time::{Duration, Instant};

/// Estimates above this suffice for every picture, in bits per second.
const SUFFICIENT_BITRATE: u64 = 600_000;
/// An estimate falls if it is below this fraction of the previous one.
const FALL_RATIO: f64 = 0.95;
/// Two falls within this time are overuse.
const CONFIRMATION_TIME: Duration = Duration::from_secs(3);
/// How long further falls count at once after overuse.
const TRUST_TIME: Duration = Duration::from_secs(30);

/// What to do with an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is valid.
    Valid,
    /// It may be wrong: the estimation starts anew.
    Doubtful,
}

/// The estimates of one connection.
#[derive(Debug, Default)]
pub(super) struct Congestion {
    /// The last estimate, in bits per second.
    last: u64,
    doubted_at: Option<Instant>,
    overused_at: Option<Instant>,
}

impl Congestion {
    /// Judges the next estimate, in bits per second.
    pub(super) fn judge(&mut self, now: Instant, bps: u64) -> Verdict {
        let is_within = |at: Option<Instant>, limit: Duration| {
            at.is_some_and(|at| now.saturating_duration_since(at) < limit)
        };
        let falls = bps < SUFFICIENT_BITRATE && (bps as f64) < self.last as f64 * FALL_RATIO;
        self.last = bps;
        if !falls {
            return Verdict::Valid;
        }
        if is_within(self.doubted_at, CONFIRMATION_TIME) || is_within(self.overused_at, TRUST_TIME)
        {
            self.overused_at = Some(now);
            return Verdict::Valid;
        }
        self.doubted_at = Some(now);
        Verdict::Doubtful
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge_all(estimates: &[(u64, u64)]) -> Vec<Verdict> {
        let (mut congestion, start) = (Congestion::default(), crate::clock::now());
        let judge = |(ms, kbps): &(u64, u64)| {
            congestion.judge(start + Duration::from_millis(*ms), kbps * 1_000)
        };
        estimates.iter().map(judge).collect()
    }

    #[test]
    fn falls_that_leave_enough_and_estimates_that_rise_are_valid() {
        let estimates = [(0, 5_000), (100, 900), (200, 700), (300, 900), (400, 890)];
        assert!(judge_all(&estimates).iter().all(|verdict| *verdict == Verdict::Valid));
    }

    #[test]
    fn a_single_fall_is_doubted_and_the_next_one_counts() {
        use Verdict::{Doubtful, Valid};
        let fall_again = [(0, 900), (100, 90), (200, 1_000), (1_500, 80), (2_000, 60)];
        assert_eq!(judge_all(&fall_again), [Valid, Doubtful, Valid, Valid, Valid]);
        let late = [(0, 900), (100, 90), (200, 1_000), (9_000, 80)];
        assert_eq!(judge_all(&late), [Valid, Doubtful, Valid, Doubtful]);
    }

    #[test]
    fn falls_after_overuse_count_at_once_for_a_while() {
        use Verdict::{Doubtful, Valid};
        let estimates =
            [(0, 900), (100, 90), (200, 1_000), (300, 80), (9_000, 200), (9_100, 90), (60_000, 50)];
        assert_eq!(judge_all(&estimates), [Valid, Doubtful, Valid, Valid, Valid, Valid, Doubtful]);
    }
}
