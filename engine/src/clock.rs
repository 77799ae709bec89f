//! The only place that reads a clock. All code on a media thread gets `now` as a parameter, so that
//! a test simulates an hour in a moment.

#![allow(clippy::disallowed_methods)] // allowed only here

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two ticks of a media thread.
pub const TICK_INTERVAL: Duration = Duration::from_millis(10);

/// The monotonic clock: the media clock of every call.
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// The wall clock: µs since the Unix epoch. Read once per call, at its start.
#[must_use]
pub fn unix_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
