//! Decides when video frames are due.

use std::time::Duration;

use conversation::time::Time;

/// Clock rate of video timestamps, ticks per second (RFC 7741).
pub const CLOCK_RATE: u64 = 90_000;

/// A steady frame clock without drift. Frames missed in a stall are skipped.
#[derive(Clone, Debug)]
pub struct FrameClock {
    frame_rate: u64,
    start: Time,
    /// Number of the next frame since `start`.
    next_frame: u64,
}

impl FrameClock {
    /// `frame_rate` is in frames per second (0 counts as 25); the first frame is due at `start`.
    #[must_use]
    pub fn new(frame_rate: u32, start: Time) -> Self {
        Self {
            frame_rate: if frame_rate == 0 { 25 } else { frame_rate.into() },
            start,
            next_frame: 0,
        }
    }

    /// When the next frame is due.
    #[must_use]
    pub fn next_due(&self) -> Time {
        self.due_time(self.next_frame)
    }

    /// If a frame is due at `now`, consumes it and returns its timestamp in units of [`CLOCK_RATE`]
    /// since `start`. If several are due, only the last one is consumed.
    pub fn take_due(&mut self, now: Time) -> Option<u64> {
        if now < self.next_due() {
            return None;
        }
        let elapsed = now.since(self.start).as_micros() as u64;
        let last = elapsed * self.frame_rate / 1_000_000;
        let frame = last.max(self.next_frame);
        self.next_frame = frame + 1;
        Some(frame * CLOCK_RATE / self.frame_rate)
    }

    /// Rounded up to 1 µs, so that a frame is never early.
    fn due_time(&self, frame: u64) -> Time {
        self.start + Duration::from_micros((frame * 1_000_000).div_ceil(self.frame_rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_frames_a_second_do_not_drift_in_an_hour() {
        let mut clock = FrameClock::new(30, Time::from_micros(777));
        let mut frames = 0u64;
        while clock.next_due() < Time::from_micros(777) + Duration::from_secs(3600) {
            let stamp = clock.take_due(clock.next_due()).unwrap();
            assert_eq!(stamp, frames * 3000);
            frames += 1;
        }
        assert_eq!(frames, 3600 * 30);
    }

    #[test]
    fn nothing_is_due_too_early_and_a_stall_gives_one_frame() {
        let mut clock = FrameClock::new(25, Time::ZERO);
        assert_eq!(clock.take_due(Time::ZERO), Some(0));
        assert_eq!(clock.take_due(Time::from_micros(39_999)), None);
        assert_eq!(clock.take_due(Time::from_micros(500_000)), Some(12 * 3600));
        assert_eq!(clock.take_due(Time::from_micros(510_000)), None);
        assert_eq!(clock.next_due(), Time::from_micros(520_000));
    }
}
