//! A token bucket: limits a rate per second and a burst.

use std::time::Instant;

/// One bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    last_refill: Instant,
}

impl TokenBucket {
    /// A full bucket: `rate` tokens a second, at most `burst` at once.
    pub(crate) fn new(rate: f64, burst: f64, now: Instant) -> Self {
        Self { rate, burst, tokens: burst, last_refill: now }
    }

    /// Takes one token. Returns false if none is left.
    pub(crate) fn try_take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.last_refill).as_secs_f64();
        self.last_refill = self.last_refill.max(now);
        self.tokens = (self.tokens + passed * self.rate).min(self.burst);
        let any = self.tokens >= 1.0;
        if any {
            self.tokens -= 1.0;
        }
        any
    }

    /// Whether at least half of the burst is left.
    pub(crate) fn is_half_full(&self) -> bool {
        self.tokens >= self.burst / 2.0
    }
}
