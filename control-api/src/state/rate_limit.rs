//! Rate limits per minute: a bucket for each key or address that refills steadily (GCRA), or for
//! requests that cost money a window, so that no minute has more of them.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::error::RateLimitExceeded;

const MINUTE: Duration = Duration::from_secs(60);
/// Number of buckets at which the full ones are removed. After that, this happens whenever the
/// number has doubled, so the cost per request stays low.
const PRUNE_AT: usize = 10_000;

/// One rate limit.
pub(crate) struct RateLimit<K> {
    /// Requests per minute; 0 = off.
    per_minute: u32,
    buckets: Mutex<Buckets<K>>,
}

struct Buckets<K> {
    /// The instant at which each bucket is full again.
    full_at: HashMap<K, Instant>,
    prune_at: usize,
}

impl<K: Hash + Eq> RateLimit<K> {
    pub(crate) fn new(per_minute: u32) -> Self {
        Self {
            per_minute,
            buckets: Mutex::new(Buckets { full_at: HashMap::new(), prune_at: PRUNE_AT }),
        }
    }

    /// Takes one request from the bucket of `key`.
    pub(crate) fn check(&self, key: K, now: Instant) -> Result<(), RateLimitExceeded> {
        if self.per_minute == 0 {
            return Ok(());
        }
        let interval = MINUTE / self.per_minute;
        let mut buckets = self.buckets.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if buckets.full_at.len() >= buckets.prune_at {
            buckets.full_at.retain(|_, full| *full > now);
            buckets.prune_at = (2 * buckets.full_at.len()).max(PRUNE_AT);
        }
        let full = buckets.full_at.get(&key).copied().unwrap_or(now).max(now) + interval;
        let ahead = full - now;
        if ahead > MINUTE {
            let seconds = |span: Duration| span.as_secs_f64().ceil() as u64;
            let reset = seconds(ahead - interval);
            return Err(RateLimitExceeded {
                limit: self.per_minute,
                retry_after: seconds(ahead - MINUTE).max(1),
                reset,
            });
        }
        buckets.full_at.insert(key, full);
        Ok(())
    }
}

/// A maximum number of requests within any minute, which is small.
pub(crate) struct WindowLimit<K> {
    per_minute: usize,
    /// The requests of the last minute, the oldest first.
    taken: Mutex<HashMap<K, VecDeque<Instant>>>,
}

impl<K: Hash + Eq> WindowLimit<K> {
    pub(crate) fn new(per_minute: usize) -> Self {
        Self { per_minute, taken: Mutex::default() }
    }

    /// Counts one request of `key`, unless the minute before `now` has the maximum.
    pub(crate) fn check(&self, key: K, now: Instant) -> Result<(), RateLimitExceeded> {
        let age = |at: &Instant| now.saturating_duration_since(*at);
        let mut all = self.taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if all.len() >= PRUNE_AT && !all.contains_key(&key) {
            all.retain(|_, taken| taken.back().is_some_and(|at| age(at) < MINUTE));
        }
        let taken = all.entry(key).or_default();
        while taken.front().is_some_and(|at| age(at) >= MINUTE) {
            taken.pop_front();
        }
        let until_free = |at: &Instant| (MINUTE - age(at)).as_secs_f64().ceil() as u64;
        match (taken.front(), taken.back()) {
            (Some(first), Some(last)) if taken.len() >= self.per_minute => Err(RateLimitExceeded {
                limit: u32::try_from(self.per_minute).unwrap_or(u32::MAX),
                retry_after: until_free(first).max(1),
                reset: until_free(last),
            }),
            _ => {
                taken.push_back(now);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_s_worth_may_come_at_once_and_then_one_by_one() {
        let limit = RateLimit::new(30);
        let start = Instant::now();
        for _ in 0..30 {
            limit.check("a", start).unwrap();
        }
        assert_eq!(
            limit.check("a", start),
            Err(RateLimitExceeded { limit: 30, retry_after: 2, reset: 60 })
        );
        limit.check("b", start).unwrap();
        limit.check("a", start + Duration::from_secs(2)).unwrap();
        assert!(limit.check("a", start + Duration::from_secs(3)).is_err());
    }

    #[test]
    fn zero_is_no_limit() {
        let limit = RateLimit::new(0);
        let now = Instant::now();
        for _ in 0..1000 {
            limit.check(1, now).unwrap();
        }
    }

    #[test]
    fn no_minute_has_more_than_the_maximum() {
        let limit = WindowLimit::new(10);
        let start = Instant::now();
        let mut accepted = Vec::new();
        for quarter in 0..1_200 {
            let at = Duration::from_millis(250 * quarter);
            if limit.check("a", start + at).is_ok() {
                accepted.push(at);
            }
        }
        assert_eq!(accepted.len(), 50, "ten in each of five minutes");
        assert!(accepted.windows(11).all(|some| some[10] - some[0] >= MINUTE));
    }

    #[test]
    fn a_full_minute_says_when_the_next_request_is_possible() {
        let limit = WindowLimit::new(2);
        let start = Instant::now();
        let second = Duration::from_secs(1);
        limit.check("a", start).unwrap();
        limit.check("a", start + 20 * second).unwrap();
        assert_eq!(
            limit.check("a", start + 30 * second),
            Err(RateLimitExceeded { limit: 2, retry_after: 30, reset: 50 })
        );
        limit.check("b", start + 30 * second).unwrap();
        limit.check("a", start + 60 * second).unwrap();
        assert!(limit.check("a", start + 61 * second).is_err());
    }
}
