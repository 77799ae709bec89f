//! Whether frames of sound come in time, by their own time stamps.

/// A frame may be so late, in s: what a playout buffer of the usual size covers.
pub(crate) const ALLOWED: f64 = 0.06;
/// Samples a second.
const RATE: f64 = 48_000.0;
/// Samples of the frames that are taken to be missing: 20 ms.
const STEP: i64 = 960;

/// One stream's frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Late {
    /// Handed out, and those that never were.
    pub(crate) frames: u64,
    /// Over [`ALLOWED`] late, or never handed out.
    pub(crate) late: u64,
    /// s that a playout had to make up.
    pub(crate) concealed: f64,
    /// Time stamps of the newest frame and of its end.
    newest: Option<(i64, i64)>,
    /// When a time stamp of zero was needed: the least that a frame told.
    base: Option<f64>,
}

impl Late {
    /// Frames whose time stamp 0 is needed at `base`.
    #[must_use]
    pub(crate) fn from(base: f64) -> Self {
        Self { base: Some(base), ..Self::default() }
    }

    /// Frames of which the fastest so far sets the clock.
    #[must_use]
    pub(crate) fn by_the_fastest() -> Self {
        Self::default()
    }

    /// A frame of so many samples with this time stamp (48 kHz, unwrapped) was handed out at `at` (s). How many frames before it never came;
    /// `None` if it is one of those that were given up.
    pub(crate) fn frame(&mut self, at: f64, timestamp: i64, samples: i64) -> Option<u64> {
        let missing = match self.newest {
            Some((newest, _)) if timestamp <= newest => return None, // told late when the newer one came
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

    /// Nothing came until `at` (s) but what came: what was needed by then and is missing, in s, is late.
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

    /// As [`Late::frame`], where the fastest frame sets the clock.
    pub(crate) fn packet(&mut self, at: f64, timestamp: i64, samples: i64) -> Option<u64> {
        let told = at - timestamp as f64 / RATE;
        self.base = Some(self.base.map_or(told, |base| base.min(told)));
        self.frame(at, timestamp, samples)
    }
}

/// Makes 64 bits of a time stamp of 32 that goes round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unwrap(Option<i64>);

impl Unwrap {
    /// The next one, less than half a round from the last.
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
