//! Checks whether audio frames arrive in time, by their RTP timestamps.

/// Maximum lateness of a frame, in s: an ordinary playout buffer covers it.
pub(crate) const ALLOWED: f64 = 0.06;
/// Samples per second.
const RATE: f64 = 48_000.0;
/// Samples of a missing frame: 20 ms.
const STEP: i64 = 960;

/// Lateness of one stream's frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Late {
    /// Number of frames, delivered or missing.
    pub(crate) frames: u64,
    /// Number of frames over [`PLAYOUT_DELAY`] late, or missing.
    pub(crate) late: u64,
    /// Audio that the playout had to conceal, in s.
    pub(crate) concealed: f64,
    /// Start and end of the newest frame, as RTP timestamps.
    newest: Option<(i64, i64)>,
    /// When timestamp 0 is due. With [`Lateness::record_packet`]: the minimum over all frames so
    /// far.
    base: Option<f64>,
}

impl Late {
    /// A stream whose timestamp 0 is due at `base`.
    #[must_use]
    pub(crate) fn from(base: f64) -> Self {
        Self { base: Some(base), ..Self::default() }
    }

    /// A stream whose clock is set by the fastest frame so far.
    #[must_use]
    pub(crate) fn by_the_fastest() -> Self {
        Self::default()
    }

    /// Records a frame of `samples` samples with this timestamp (48 kHz, unwrapped), delivered at
    /// `at` (s). Returns the number of missing frames before it; `None` if the frame had been given
    /// up.
    pub(crate) fn frame(&mut self, at: f64, timestamp: i64, samples: i64) -> Option<u64> {
        let missing = match self.newest {
            // counted as late when a newer one arrived
            Some((newest, _)) if timestamp <= newest => return None,
            Some((_, end)) => (timestamp - end).max(0),
            None => 0,
        };
        let lost = (missing as u64).div_ceil(STEP as u64);
        self.newest = Some((timestamp, timestamp + samples));
        let needed = timestamp as f64 / RATE;
        let base = match self.base {
            Some(base) => base,
            None => at - needed,
        };
        let late = at - needed - base > ALLOWED;
        self.frames += lost + 1;
        self.late += lost + u64::from(late);
        self.concealed += (missing + if late { samples } else { 0 }) as f64 / RATE;
        Some(lost)
    }

    /// Ends the stream at `at` (s). Frames that were due by then and did not arrive are late.
    /// Returns their duration, in s.
    pub(crate) fn end(&mut self, at: f64) -> f64 {
        let (Some(base), Some((_, end))) = (self.base, self.newest) else { return 0.0 };
        let missing = ((at - ALLOWED - base) * RATE).round() as i64 - end;
        if missing <= 0 {
            return 0.0;
        }
        let lost = (missing as u64).div_ceil(STEP as u64);
        self.frames += lost;
        self.late += lost;
        self.concealed += missing as f64 / RATE;
        missing as f64 / RATE
    }

    /// As [`Lateness::record_frame`], but the fastest frame sets the clock.
    pub(crate) fn packet(&mut self, at: f64, timestamp: i64, samples: i64) -> Option<u64> {
        let told = at - timestamp as f64 / RATE;
        self.base = Some(self.base.map_or(told, |base| base.min(told)));
        self.frame(at, timestamp, samples)
    }
}

/// Extends 32-bit timestamps that wrap around to 64 bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unwrap(Option<i64>);

impl Unwrap {
    /// The next timestamp, less than half the range from the previous one.
    pub(crate) fn next(&mut self, timestamp: u32) -> i64 {
        let whole = match self.0 {
            None => i64::from(timestamp),
            Some(last) => last + i64::from(timestamp.wrapping_sub(last as u32) as i32),
        };
        self.0 = Some(whole);
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_late_by_its_own_clock() {
        let mut late = Late::from(10.0);
        assert_eq!(late.frame(10.0, 0, 960), Some(0));
        late.frame(10.079, 960, 960); // 59 ms late
        late.frame(10.11, 1920, 960); // 70 ms late
        assert_eq!((late.frames, late.late), (3, 1));
        assert_eq!(late.frame(10.12, 4800, 960), Some(2));
        assert_eq!((late.frames, late.late), (6, 3));
        assert!((late.concealed - 0.06).abs() < 1e-9);
    }

    #[test]
    fn sound_that_ends_before_its_time_is_late_to_the_end() {
        let mut late = Late::from(10.0);
        late.frame(10.0, 0, 960);
        assert!(late.end(10.07) == 0.0, "nothing is due yet");
        assert!((late.end(10.12) - 0.04).abs() < 1e-6);
        assert_eq!((late.frames, late.late), (3, 2));
        assert!(Late::by_the_fastest().end(5.0) == 0.0, "it never began");
    }

    #[test]
    fn short_frames_behind_long_ones_are_no_gap() {
        let mut late = Late::from(0.0);
        for (at, timestamp, samples) in
            [(0.0, 0, 960), (0.02, 960, 480), (0.03, 1440, 480), (0.04, 1920, 960)]
        {
            assert_eq!(late.frame(at, timestamp, samples), Some(0));
        }
        assert_eq!(late.frame(0.07, 3360, 480), Some(1), "10 ms are missing");
        assert_eq!((late.frames, late.late), (6, 1));
        assert!((late.concealed - 0.01).abs() < 1e-9, "{}", late.concealed);
    }

    #[test]
    fn the_fastest_packet_sets_the_clock() {
        let mut late = Late::by_the_fastest();
        late.packet(5.05, 48_000, 960);
        late.packet(5.02, 48_960, 960); // on time; the first one was 50 ms slow
        late.packet(5.101, 49_920, 960); // 61 ms behind the fastest
        assert_eq!((late.frames, late.late), (3, 1));
        assert_eq!(late.packet(5.2, 48_960, 960), None, "an old one");
        assert_eq!(late.frames, 3);
    }

    #[test]
    fn time_stamps_go_round() {
        let mut unwrap = Unwrap::default();
        let first = unwrap.next(u32::MAX - 959);
        assert_eq!(unwrap.next(0), first + 960);
        assert_eq!(unwrap.next(u32::MAX - 959), first);
    }
}
