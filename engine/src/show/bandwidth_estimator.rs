//! What a receiver's line takes, judged from its bandwidth estimates (REMB) and from what was really sent.
//!
//! An estimate by itself says little here: Chromium's begins at the rate that comes in and never exceeds one and a half times of it, so
//! after a silence it is far below what speech needs, on any line. It says something when it *falls* while we send: then the line is
//! overused, and the estimate is what it carried.

use std::time::Duration;

use conversation::time::Time;

/// How long thrift lasts after the last sign of overuse.
const RECOVERY_TIME: Duration = Duration::from_secs(10);
/// An estimate below this part of the one before is a fall.
const FALL_RATIO: f64 = 0.95;
/// A fall counts while at least this part of what may be sent is sent.
const BUSY_RATIO: f64 = 0.6;
/// Bytes of frames are multiplied by this for packet headers.
const HEADER_OVERHEAD: f64 = 1.25;

/// How much of what could be sent is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendMode {
    /// Every frame while speaking.
    Full,
    /// Only pictures that differ from the last one.
    ChangesOnly,
    /// The same, coarser.
    CoarseChanges,
    /// The same, at half the frame rate.
    HalfRate,
}

impl SendMode {
    /// Roughly the part of the full rate that is sent.
    fn rate_fraction(self) -> f64 {
        match self {
            Self::Full => 1.0,
            Self::ChangesOnly => 0.55,
            Self::CoarseChanges => 0.24,
            Self::HalfRate => 0.18,
        }
    }
}

/// The line to one receiver.
#[derive(Clone, Debug)]
pub(super) struct BandwidthEstimator {
    /// What a speaking face needs, in bits a second.
    required_bitrate: f64,
    /// Bits a second sent lately: a mean that forgets within a second.
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
    /// `frame_bytes`: the mean length of a frame with moving lips.
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

    /// Another mean length of a frame with moving lips.
    pub(super) fn set_required_bitrate(&mut self, frame_bytes: f64, frame_rate: u32) {
        self.required_bitrate = required_bitrate(frame_bytes, frame_rate);
    }

    /// A frame of so many bytes goes out.
    pub(super) fn on_sent(&mut self, now: Time, bytes: usize) {
        self.decay(now);
        self.sent_bitrate += bytes as f64 * 8.0 * HEADER_OVERHEAD;
    }

    /// The receiver says what it can take, in bits a second; 0 = unknown.
    pub(super) fn on_estimate(&mut self, now: Time, bps: u64) {
        self.decay(now);
        let bps = bps as f64;
        let fell = bps > 0.0 && bps < self.estimate * FALL_RATIO;
        self.estimate = bps;
        if fell
            && bps < self.sent_bitrate
            && self.sent_bitrate > BUSY_RATIO * self.send_mode(now).rate_fraction() * self.required_bitrate
        {
            self.send_mode = match bps / self.required_bitrate {
                0.5.. => SendMode::ChangesOnly,
                0.2.. => SendMode::CoarseChanges,
                _ => SendMode::HalfRate,
            };
            self.reduced_until = now + RECOVERY_TIME;
        }
    }

    /// How much may be sent now.
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

    /// A line on which a face has spoken for four seconds, and the estimate that its receiver would have told.
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
    fn a_fall_while_speaking_is_overuse() {
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
    fn a_fall_in_silence_says_nothing() {
        let mut estimator = estimator_while_speaking();
        estimator.on_estimate(at(200), 40_000);
        assert_eq!(estimator.send_mode(at(200)), SendMode::Full);
    }

    #[test]
    fn thrift_ends_ten_seconds_after_the_last_fall() {
        let mut estimator = estimator_while_speaking();
        estimator.on_estimate(at(101), 90_000);
        assert_eq!(estimator.send_mode(at(101 + 249)), SendMode::ChangesOnly);
        assert_eq!(estimator.send_mode(at(101 + 250)), SendMode::Full);
    }
}
