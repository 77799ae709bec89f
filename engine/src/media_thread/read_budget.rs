//! Limits of the input that one step of a media thread reads. A flood must not delay the tick, so
//! the limits count items and time. What a step leaves, the next one reads at once.

use std::time::{Duration, Instant};

/// Limit of one kind of input in one step.
#[derive(Clone, Copy)]
pub(super) struct ReadLimit {
    /// Number of items that are read however late it is, so that no kind waits for another.
    guaranteed: usize,
    /// Maximum number of items.
    count: usize,
    /// Time since the start of the step at which no further item is read. A step reads the kinds in
    /// the order in which they are declared here, so each kind has what the earlier ones left.
    until: Duration,
}

/// Messages of the inbox. Most take some µs, an offer takes milliseconds.
pub(super) const MESSAGES: ReadLimit =
    ReadLimit { guaranteed: 1, count: 1_024, until: Duration::from_micros(2_500) };
/// Datagrams received by TCP.
pub(super) const TCP_DATAGRAMS: ReadLimit =
    ReadLimit { guaranteed: 64, count: 1_024, until: Duration::from_micros(3_750) };
/// Datagrams of the socket. The number exceeds what a flood delivers within one tick. Unknown
/// datagrams take well under half a tick; those of a call cost more (decryption, HMAC), so the time
/// limits them.
pub(super) const UDP_DATAGRAMS: ReadLimit =
    ReadLimit { guaranteed: 256, count: 4_096, until: Duration::from_millis(5) };
/// The clock is read once for this number of TCP datagrams. For UDP it is read once per batch.
pub(super) const DATAGRAMS_PER_CLOCK_READING: usize = 32;

/// How long the current step has read input.
pub(super) struct ReadBudget<'a> {
    started_at: Instant,
    clock: &'a dyn Fn() -> Instant,
}

impl<'a> ReadBudget<'a> {
    /// The budget of a step that started at `now`.
    pub(super) fn new(now: Instant, clock: &'a dyn Fn() -> Instant) -> Self {
        Self { started_at: now, clock }
    }

    /// Whether a further item may be read after `count` items of this kind.
    pub(super) fn admits(&self, limit: ReadLimit, count: usize) -> bool {
        count < limit.guaranteed
            || (count < limit.count
                && (self.clock)().saturating_duration_since(self.started_at) < limit.until)
    }
}
