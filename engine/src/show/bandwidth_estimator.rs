//! Estimates whether a receiver's path is overused, from its bandwidth estimates (REMB) and from
//! the bitrate that was really sent.
//!
//! A single estimate says little here. Chromium's estimate starts at the incoming rate and never
//! exceeds 1.5 times that rate. So after silence it is far below what speech needs, on any path. It
//! is meaningful when it *falls* while the server sends: then the path is overused, and the
//! estimate is the bitrate that it carried.

use std::time::Duration;

use conversation::time::Time;

/// How long the send mode stays reduced after the last sign of overuse.
const RECOVERY_TIME: Duration = Duration::from_secs(10);
/// An estimate falls if it is below this fraction of the previous one.
const FALL_RATIO: f64 = 0.95;
/// A fall counts only if at least this fraction of the allowed bitrate is sent.
const BUSY_RATIO: f64 = 0.6;
/// Factor on the bytes of frames that accounts for packet headers.
const HEADER_OVERHEAD: f64 = 1.25;

/// Which frames are sent, and at which quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendMode {
    /// Every frame while speaking.
    Full,
    /// Only frames that differ from the last one.
    ChangesOnly,
    /// Like [`SendMode::ChangesOnly`], at a coarser quality level.
    CoarseChanges,
    /// Like [`SendMode::CoarseChanges`], at half the frame rate.
    HalfRate,
}

impl SendMode {
    /// Approximate fraction of the full bitrate that is sent.
    fn rate_fraction(self) -> f64 {
        match self {
            Self::Full => 1.0,
            Self::ChangesOnly => 0.55,
            Self::CoarseChanges => 0.24,
            Self::HalfRate => 0.18,
        }
    }
}

/// The bandwidth state of one receiver.
#[derive(Clone, Debug)]
pub(super) struct BandwidthEstimator {
    /// Bitrate that a speaking avatar needs, bits per second.
    required_bitrate: f64,
    /// Recently sent bitrate, bits per second: an exponential mean with a time constant of one
    /// second.
    sent_bitrate: f64,
    sent_bitrate_at: Time,
    estimate: f64,
    send_mode: SendMode,
    reduced_until: Time,
}

fn required_bitrate(frame_bytes: f64, frame_rate: u32) -> f64 {
    frame_bytes * 8.0 * HEADER_OVERHEAD * f64::from(frame_rate)
}

impl BandwidthEstimator {
    /// `frame_bytes` is the mean length of a frame with moving lips; `frame_rate` is in frames per
    /// second.
    pub(super) fn new(frame_bytes: f64, frame_rate: u32) -> Self {
        Self {
            required_bitrate: required_bitrate(frame_bytes, frame_rate),
            sent_bitrate: 0.0,
            sent_bitrate_at: Time::ZERO,
            estimate: 0.0,
            send_mode: SendMode::Full,
            reduced_until: Time::ZERO,
        }
    }

    /// Updates the mean length of a frame with moving lips.
    pub(super) fn set_required_bitrate(&mut self, frame_bytes: f64, frame_rate: u32) {
        self.required_bitrate = required_bitrate(frame_bytes, frame_rate);
    }

    /// Records that a frame of `bytes` is sent.
    pub(super) fn on_sent(&mut self, now: Time, bytes: usize) {
        self.decay(now);
        self.sent_bitrate += bytes as f64 * 8.0 * HEADER_OVERHEAD;
    }

    /// Handles the receiver's bandwidth estimate, bits per second; 0 = unknown.
    pub(super) fn on_estimate(&mut self, now: Time, bps: u64) {
        self.decay(now);
        let bps = bps as f64;
        let fell = bps > 0.0 && bps < self.estimate * FALL_RATIO;
        self.estimate = bps;
        if fell
            && bps < self.sent_bitrate
            && self.sent_bitrate
                > BUSY_RATIO * self.send_mode(now).rate_fraction() * self.required_bitrate
        {
            self.send_mode = match bps / self.required_bitrate {
                0.5.. => SendMode::ChangesOnly,
                0.2.. => SendMode::CoarseChanges,
                _ => SendMode::HalfRate,
            };
            self.reduced_until = now + RECOVERY_TIME;
        }
    }

    /// The current send mode.
    pub(super) fn send_mode(&self, now: Time) -> SendMode {
        if now < self.reduced_until { self.send_mode } else { SendMode::Full }
    }

    fn decay(&mut self, now: Time) {
        self.sent_bitrate *= (-now.since(self.sent_bitrate_at).as_secs_f64()).exp();
        self.sent_bitrate_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME_BYTES: usize = 600;

    fn at(frame: u64) -> Time {
        Time::from_micros(frame * 40_000)
    }

    /// An estimator after four seconds of speech, with the estimate that its receiver would report.
    fn estimator_while_speaking() -> BandwidthEstimator {
        let mut estimator = BandwidthEstimator::new(FRAME_BYTES as f64, 25);
        (0..100).for_each(|frame| estimator.on_sent(at(frame), FRAME_BYTES));
        estimator.on_estimate(at(100), 200_000);
        estimator
    }

    #[test]
    fn an_estimate_that_follows_what_is_sent_changes_nothing() {
        let mut estimator = BandwidthEstimator::new(FRAME_BYTES as f64, 25);
        for frame in 0..1000 {
            if frame % 25 == 0 {
                estimator.on_estimate(at(frame), 45_000 + frame * 20);
            }
            if frame > 500 {
                estimator.on_sent(at(frame), FRAME_BYTES);
            }
            assert_eq!(estimator.send_mode(at(frame)), SendMode::Full);
        }
    }

    #[test]
    fn a_bandwidth_drop_while_speaking_is_overuse() {
        let mut estimator = estimator_while_speaking();
        estimator.on_estimate(at(101), 90_000);
        assert_eq!(estimator.send_mode(at(101)), SendMode::ChangesOnly);
        let mut estimator = estimator_while_speaking();
        estimator.on_estimate(at(101), 40_000);
        assert_eq!(estimator.send_mode(at(101)), SendMode::CoarseChanges);
        let mut estimator = estimator_while_speaking();
        estimator.on_estimate(at(101), 20_000);
        assert_eq!(estimator.send_mode(at(101)), SendMode::HalfRate);
    }

    #[test]
    fn a_bandwidth_drop_in_silence_is_ignored() {
        let mut estimator = estimator_while_speaking();
        estimator.on_estimate(at(200), 40_000);
        assert_eq!(estimator.send_mode(at(200)), SendMode::Full);
    }

    #[test]
    fn the_changes_only_mode_ends_ten_seconds_after_the_last_drop() {
        let mut estimator = estimator_while_speaking();
        estimator.on_estimate(at(101), 90_000);
        assert_eq!(estimator.send_mode(at(101 + 249)), SendMode::ChangesOnly);
        assert_eq!(estimator.send_mode(at(101 + 250)), SendMode::Full);
    }
}
