//! A token bucket: so many things a second, and so many at once.

use std::time::Instant;

/// One bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    since: Instant,
}

impl Bucket {
    /// A full one: `rate` a second, `burst` at once.
    pub(crate) fn new(rate: f64, burst: f64, now: Instant) -> Self {
        Self { rate, burst, tokens: burst, since: now }
    }

    /// Takes one; false if none is left.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.since = self.since.max(now);
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
