//! The two units of a conversation: [`Time`] since its start, and [`Position`] in what is played.
//! Nothing else counts time.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

use serde::{Deserialize, Serialize};

/// Samples per second of [`Position`], whatever the sample rate of a voice or codec.
pub const SAMPLE_RATE: u64 = 48_000;

/// Microseconds since the start of the conversation. Only the driver derives one from a clock.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(u64);

impl Time {
    /// The start of the conversation.
    pub const ZERO: Self = Self(0);

    /// The time `micros` µs after the start.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The time nearest to `seconds` after the start; negative values and NaN give the start.
    #[must_use]
    pub fn from_seconds(seconds: f64) -> Self {
        Self((seconds * 1e6).round().max(0.0) as u64)
    }

    /// µs since the start.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Seconds since the start.
    #[must_use]
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The duration from `earlier` to this time; zero if this time is not later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Self;

    /// Saturates at the start.
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.as_seconds())
    }
}

/// Samples at [`SAMPLE_RATE`] since the first sample of a segment.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Position(u64);

impl Position {
    /// The first sample.
    pub const ZERO: Self = Self(0);

    /// The position after `samples` samples at [`SAMPLE_RATE`].
    #[must_use]
    pub const fn from_samples(samples: u64) -> Self {
        Self(samples)
    }

    /// The position nearest to `seconds`; negative values and NaN give zero.
    #[must_use]
    pub fn from_seconds(seconds: f64) -> Self {
        Self((seconds * SAMPLE_RATE as f64).round().max(0.0) as u64)
    }

    /// The number of samples at [`SAMPLE_RATE`].
    #[must_use]
    pub const fn as_samples(self) -> u64 {
        self.0
    }

    /// Seconds of audio before this position.
    #[must_use]
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / SAMPLE_RATE as f64
    }
}
