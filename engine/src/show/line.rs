//! What a receiver's line takes, judged from its bandwidth estimates (REMB) and from what was really sent.
//!
//! An estimate by itself says little here: Chromium's begins at the rate that comes in and never exceeds one and a half times of it, so
//! after a silence it is far below what speech needs, on any line. It says something when it *falls* while we send: then the line is
//! overused, and the estimate is what it carried.

use std::time::Duration;

use conversation::time::Time;

/// How long thrift lasts after the last sign of overuse.
const RECOVERY: Duration = Duration::from_secs(10);
/// An estimate below this part of the one before is a fall.
const FALL: f64 = 0.95;
/// A fall counts while at least this part of what may be sent is sent.
const BUSY: f64 = 0.6;
/// Bytes of frames are multiplied by this for packet headers.
const HEADERS: f64 = 1.25;

/// How much of what could be sent is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thrift {
    /// Every frame while speaking.
    Full,
    /// Only pictures that differ from the last one.
    Changes,
    /// The same, coarser.
    Coarse,
    /// The same, at half the frame rate.
    Half,
}

impl Thrift {
    /// Roughly the part of the full rate that is sent.
    fn part(self) -> f64 {
        match self {
            Self::Full => 1.0,
            Self::Changes => 0.55,
            Self::Coarse => 0.24,
            Self::Half => 0.18,
        }
    }
}

/// The line to one receiver.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// What a speaking face needs, in bits a second.
    need: f64,
    /// Bits a second sent lately: a mean that forgets within a second.
    rate: f64,
    rate_at: Time,
    estimate: f64,
    thrift: Thrift,
    until: Time,
}

fn need(frame_bytes: f64, frame_rate: u32) -> f64 {
    frame_bytes * 8.0 * HEADERS * f64::from(frame_rate)
}

impl Line {
    /// `frame_bytes`: the mean length of a frame with moving lips.
    pub(super) fn new(frame_bytes: f64, frame_rate: u32) -> Self {
        Self {
            need: need(frame_bytes, frame_rate),
            rate: 0.0,
            rate_at: Time::ZERO,
            estimate: 0.0,
            thrift: Thrift::Full,
            until: Time::ZERO,
        }
    }

    /// Another mean length of a frame with moving lips.
    pub(super) fn set_need(&mut self, frame_bytes: f64, frame_rate: u32) {
        self.need = need(frame_bytes, frame_rate);
    }

    /// A frame of so many bytes goes out.
    pub(super) fn sent(&mut self, now: Time, bytes: usize) {
        self.forget(now);
        self.rate += bytes as f64 * 8.0 * HEADERS;
    }

    /// The receiver says what it can take, in bits a second; 0 = unknown.
    pub(super) fn estimated(&mut self, now: Time, bps: u64) {
        self.forget(now);
        let bps = bps as f64;
        let fell = bps > 0.0 && bps < self.estimate * FALL;
        self.estimate = bps;
        if fell && bps < self.rate && self.rate > BUSY * self.thrift(now).part() * self.need {
            self.thrift = match bps / self.need {
                0.5.. => Thrift::Changes,
                0.2.. => Thrift::Coarse,
                _ => Thrift::Half,
            };
            self.until = now + RECOVERY;
        }
    }

    /// How much may be sent now.
    pub(super) fn thrift(&self, now: Time) -> Thrift {
        if now < self.until { self.thrift } else { Thrift::Full }
    }

    fn forget(&mut self, now: Time) {
        self.rate *= (-now.since(self.rate_at).as_secs_f64()).exp();
        self.rate_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 600;

    fn at(frame: u64) -> Time {
        Time::from_micros(frame * 40_000)
    }

    /// A line on which a face has spoken for four seconds, and the estimate that its receiver would have told.
    fn speaking() -> Line {
        let mut line = Line::new(BYTES as f64, 25);
        (0..100).for_each(|frame| line.sent(at(frame), BYTES));
        line.estimated(at(100), 200_000);
        line
    }

    #[test]
    fn an_estimate_that_follows_what_is_sent_changes_nothing() {
        let mut line = Line::new(BYTES as f64, 25);
        for frame in 0..1000 {
            if frame % 25 == 0 {
                line.estimated(at(frame), 45_000 + frame * 20);
            }
            if frame > 500 {
                line.sent(at(frame), BYTES);
            }
            assert_eq!(line.thrift(at(frame)), Thrift::Full);
        }
    }

    #[test]
    fn a_fall_while_speaking_is_overuse() {
        let mut line = speaking();
        line.estimated(at(101), 90_000);
        assert_eq!(line.thrift(at(101)), Thrift::Changes);
        let mut line = speaking();
        line.estimated(at(101), 40_000);
        assert_eq!(line.thrift(at(101)), Thrift::Coarse);
        let mut line = speaking();
        line.estimated(at(101), 20_000);
        assert_eq!(line.thrift(at(101)), Thrift::Half);
    }

    #[test]
    fn a_fall_in_silence_says_nothing() {
        let mut line = speaking();
        line.estimated(at(200), 40_000);
        assert_eq!(line.thrift(at(200)), Thrift::Full);
    }

    #[test]
    fn thrift_ends_ten_seconds_after_the_last_fall() {
        let mut line = speaking();
        line.estimated(at(101), 90_000);
        assert_eq!(line.thrift(at(101 + 249)), Thrift::Changes);
        assert_eq!(line.thrift(at(101 + 250)), Thrift::Full);
    }
}
