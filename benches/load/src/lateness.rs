//! Checks whether audio frames arrive in time, by their RTP timestamps.

/// Maximum lateness of a frame, in s: an ordinary playout buffer covers it.
pub(crate) const PLAYOUT_DELAY: f64 = 0.06;
/// Samples per second.
const CLOCK_RATE: f64 = 48_000.0;
/// Samples of a missing frame: 20 ms at 48 kHz.
const FRAME_SAMPLES_48K: i64 = 960;

/// Lateness of one stream's frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lateness {
    /// Number of frames, delivered or missing.
    pub(crate) frames: u64,
    /// Number of frames over [`PLAYOUT_DELAY`] late, or missing.
    pub(crate) late_frames: u64,
    /// Audio that the playout had to conceal, in s.
    pub(crate) concealed_seconds: f64,
    /// Start and end of the newest frame, as RTP timestamps.
    last_frame: Option<(i64, i64)>,
    /// When timestamp 0 is due. With [`Lateness::record_packet`]: the minimum over all frames so
    /// far.
    playout_start: Option<f64>,
}

impl Lateness {
    /// A stream whose timestamp 0 is due at `base`.
    #[must_use]
    pub(crate) fn with_start(base: f64) -> Self {
        Self { playout_start: Some(base), ..Self::default() }
    }

    /// A stream whose clock is set by the fastest frame so far.
    #[must_use]
    pub(crate) fn from_fastest() -> Self {
        Self::default()
    }

    /// Records a frame of `samples` samples with this timestamp (48 kHz, unwrapped), delivered at
    /// `at` (s). Returns the number of missing frames before it; `None` if the frame had been given
    /// up.
    pub(crate) fn record_frame(&mut self, at: f64, timestamp: i64, samples: i64) -> Option<u64> {
        let missing = match self.last_frame {
            // counted as late when a newer one arrived
            Some((newest, _)) if timestamp <= newest => return None,
            Some((_, end)) => (timestamp - end).max(0),
            None => 0,
        };
        let lost = (missing as u64).div_ceil(FRAME_SAMPLES_48K as u64);
        self.last_frame = Some((timestamp, timestamp + samples));
        let needed = timestamp as f64 / CLOCK_RATE;
        let base = match self.playout_start {
            Some(base) => base,
            None => at - needed,
        };
        let late = at - needed - base > PLAYOUT_DELAY;
        self.frames += lost + 1;
        self.late_frames += lost + u64::from(late);
        self.concealed_seconds += (missing + if late { samples } else { 0 }) as f64 / CLOCK_RATE;
        Some(lost)
    }

    /// Ends the stream at `at` (s). Frames that were due by then and did not arrive are late.
    /// Returns their duration, in s.
    pub(crate) fn finish(&mut self, at: f64) -> f64 {
        let (Some(base), Some((_, end))) = (self.playout_start, self.last_frame) else {
            return 0.0;
        };
        let missing = ((at - PLAYOUT_DELAY - base) * CLOCK_RATE).round() as i64 - end;
        if missing <= 0 {
            return 0.0;
        }
        let lost = (missing as u64).div_ceil(FRAME_SAMPLES_48K as u64);
        self.frames += lost;
        self.late_frames += lost;
        self.concealed_seconds += missing as f64 / CLOCK_RATE;
        missing as f64 / CLOCK_RATE
    }

    /// As [`Lateness::record_frame`], but the fastest frame sets the clock.
    pub(crate) fn record_packet(&mut self, at: f64, timestamp: i64, samples: i64) -> Option<u64> {
        let offset = at - timestamp as f64 / CLOCK_RATE;
        self.playout_start = Some(self.playout_start.map_or(offset, |base| base.min(offset)));
        self.record_frame(at, timestamp, samples)
    }
}

/// Extends 32-bit timestamps that wrap around to 64 bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimestampUnwrapper(Option<i64>);

impl TimestampUnwrapper {
    /// The next timestamp, less than half the range from the previous one.
    pub(crate) fn unwrap_timestamp(&mut self, timestamp: u32) -> i64 {
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
        let mut late = Lateness::with_start(10.0);
        assert_eq!(late.record_frame(10.0, 0, 960), Some(0));
        late.record_frame(10.079, 960, 960); // 59 ms late
        late.record_frame(10.11, 1920, 960); // 70 ms late
        assert_eq!((late.frames, late.late_frames), (3, 1));
        assert_eq!(late.record_frame(10.12, 4800, 960), Some(2));
        assert_eq!((late.frames, late.late_frames), (6, 3));
        assert!((late.concealed_seconds - 0.06).abs() < 1e-9);
    }

    #[test]
    fn sound_that_ends_before_its_time_is_late_to_the_end() {
        let mut late = Lateness::with_start(10.0);
        late.record_frame(10.0, 0, 960);
        assert!(late.finish(10.07) == 0.0, "nothing is due yet");
        assert!((late.finish(10.12) - 0.04).abs() < 1e-6);
        assert_eq!((late.frames, late.late_frames), (3, 2));
        assert!(Lateness::from_fastest().finish(5.0) == 0.0, "it never began");
    }

    #[test]
    fn short_frames_behind_long_ones_are_no_gap() {
        let mut late = Lateness::with_start(0.0);
        for (at, timestamp, samples) in
            [(0.0, 0, 960), (0.02, 960, 480), (0.03, 1440, 480), (0.04, 1920, 960)]
        {
            assert_eq!(late.record_frame(at, timestamp, samples), Some(0));
        }
        assert_eq!(late.record_frame(0.07, 3360, 480), Some(1), "10 ms are missing");
        assert_eq!((late.frames, late.late_frames), (6, 1));
        assert!((late.concealed_seconds - 0.01).abs() < 1e-9, "{}", late.concealed_seconds);
    }

    #[test]
    fn the_fastest_packet_sets_the_clock() {
        let mut late = Lateness::from_fastest();
        late.record_packet(5.05, 48_000, 960);
        late.record_packet(5.02, 48_960, 960); // on time; the first one was 50 ms slow
        late.record_packet(5.101, 49_920, 960); // 61 ms behind the fastest
        assert_eq!((late.frames, late.late_frames), (3, 1));
        assert_eq!(late.record_packet(5.2, 48_960, 960), None, "an old one");
        assert_eq!(late.frames, 3);
    }

    #[test]
    fn timestamps_wrap_around() {
        let mut unwrap = TimestampUnwrapper::default();
        let first = unwrap.unwrap_timestamp(u32::MAX - 959);
        assert_eq!(unwrap.unwrap_timestamp(0), first + 960);
        assert_eq!(unwrap.unwrap_timestamp(u32::MAX - 959), first);
    }
}
