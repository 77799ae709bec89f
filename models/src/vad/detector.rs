//! From probabilities to speech.

use conversation::spec;

use super::{SAMPLE_RATE, WINDOW};

/// Speech begins with a window of at least this probability.
const START: f32 = 0.5;
/// Speech goes on while windows have at least this probability. Lower than [`START`], so that a soft syllable does not end it.
const STAY: f32 = 0.35;

/// News of a [`Detector`]. All positions are samples at [`SAMPLE_RATE`] since the first sample of its first window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Somebody has been speaking for as long as the rule asks.
    Start {
        /// Where the speech began: the start of its first window.
        onset: u64,
    },
    /// It has been silent for as long as the rule asks.
    End {
        /// Where the speech began.
        onset: u64,
        /// Where it ended: the end of its last window.
        end: u64,
    },
}

/// When speech starts and ends, from one probability per window; one detector per stream.
///
/// Speech starts when the probability was at least .5 for `start`, and ends when it was below .35 for `silence` (the times of
/// [`spec::Vad`], rounded up to whole windows of 32 ms). A report comes late by that hold and therefore says when it truly was.
#[derive(Clone, Debug)]
pub struct Detector {
    /// The holds, in samples.
    start: u64,
    silence: u64,
    /// Samples seen.
    position: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Silent,
    /// Loud since `onset`, not yet for long enough.
    Rising {
        onset: u64,
    },
    /// Reported; `end` is the end of the last window that was speech.
    Speaking {
        onset: u64,
        end: u64,
    },
}

impl Detector {
    /// A detector before its first window.
    #[must_use]
    pub fn new(times: spec::VadTiming) -> Self {
        let samples =
            |t: core::time::Duration| (t.as_micros() * u128::from(SAMPLE_RATE)).div_ceil(1_000_000) as u64;
        Self {
            start: samples(times.min_speech_duration),
            silence: samples(times.min_silence_duration),
            position: 0,
            stage: Stage::Silent,
        }
    }

    /// The next window's probability.
    pub fn window(&mut self, probability: f32) -> Option<Report> {
        let from = self.position;
        let to = from + WINDOW as u64;
        self.position = to;
        match self.stage {
            Stage::Silent | Stage::Rising { .. } if probability >= START => {
                let onset = if let Stage::Rising { onset } = self.stage { onset } else { from };
                if to - onset < self.start {
                    self.stage = Stage::Rising { onset };
                    return None;
                }
                self.stage = Stage::Speaking { onset, end: to };
                Some(Report::Start { onset })
            }
            Stage::Silent | Stage::Rising { .. } => {
                self.stage = Stage::Silent;
                None
            }
            Stage::Speaking { onset, .. } if probability >= STAY => {
                self.stage = Stage::Speaking { onset, end: to };
                None
            }
            Stage::Speaking { onset, end } => (to - end >= self.silence).then(|| {
                self.stage = Stage::Silent;
                Report::End { onset, end }
            }),
        }
    }

    /// Samples seen so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether a start was reported and no end yet.
    #[must_use]
    pub fn speaking(&self) -> bool {
        matches!(self.stage, Stage::Speaking { .. })
    }

    /// The stream has a gap and begins anew (a lost connection): speech under way ends with its last window. Positions go on.
    pub fn interrupt(&mut self) -> Option<Report> {
        match std::mem::replace(&mut self.stage, Stage::Silent) {
            Stage::Speaking { onset, end } => Some(Report::End { onset, end }),
            Stage::Silent | Stage::Rising { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    const W: u64 = WINDOW as u64;

    fn detector() -> Detector {
        Detector::new(spec::VadTiming {
            min_speech_duration: Duration::from_millis(50),
            min_silence_duration: Duration::from_millis(250),
        })
    }

    /// Every report with the number of the window that caused it.
    fn run(detector: &mut Detector, probabilities: &[(f32, usize)]) -> Vec<(u64, Report)> {
        let windows = probabilities.iter().flat_map(|&(p, n)| std::iter::repeat_n(p, n));
        windows.enumerate().filter_map(|(i, p)| Some((i as u64, detector.window(p)?))).collect()
    }

    #[test]
    fn a_start_is_reported_after_two_windows_and_says_where_the_first_began() {
        assert_eq!(run(&mut detector(), &[(0.1, 5), (0.5, 10)]), [(6, Report::Start { onset: 5 * W })]);
    }

    #[test]
    fn one_loud_window_is_not_speech() {
        assert_eq!(run(&mut detector(), &[(0.1, 5), (0.99, 1), (0.49, 1), (0.99, 1), (0.0, 20)]), []);
    }

    #[test]
    fn an_end_is_reported_after_eight_quiet_windows_and_says_where_the_speech_ended() {
        let reports = run(&mut detector(), &[(0.9, 10), (0.1, 20)]);
        assert_eq!(reports[1], (17, Report::End { onset: 0, end: 10 * W }));
        assert_eq!(reports.len(), 2);
    }

    #[test]
    fn a_pause_shorter_than_the_hold_does_not_end_speech() {
        let reports = run(&mut detector(), &[(0.9, 10), (0.1, 7), (0.4, 1), (0.1, 20)]);
        assert_eq!(
            reports[1],
            (25, Report::End { onset: 0, end: 18 * W }),
            "the soft window at .4 is speech still"
        );
    }

    #[test]
    fn a_probability_between_the_thresholds_keeps_speech_but_does_not_begin_it() {
        assert_eq!(run(&mut detector(), &[(0.4, 100)]), []);
        assert_eq!(run(&mut detector(), &[(0.6, 2), (0.4, 100)]), [(1, Report::Start { onset: 0 })]);
    }

    #[test]
    fn without_holds_every_change_is_reported_at_once() {
        let mut detector = Detector::new(spec::VadTiming {
            min_speech_duration: Duration::ZERO,
            min_silence_duration: Duration::ZERO,
        });
        let reports = run(&mut detector, &[(0.9, 1), (0.1, 2)]);
        assert_eq!(reports, [(0, Report::Start { onset: 0 }), (1, Report::End { onset: 0, end: W })]);
    }

    #[test]
    fn a_gap_in_the_stream_ends_speech_once() {
        let mut detector = detector();
        run(&mut detector, &[(0.9, 4)]);
        assert!(detector.speaking());
        assert_eq!(detector.interrupt(), Some(Report::End { onset: 0, end: 4 * W }));
        assert_eq!(detector.interrupt(), None);
        assert_eq!(detector.position(), 4 * W);
    }

    #[test]
    fn not_a_number_is_silence() {
        assert_eq!(run(&mut detector(), &[(f32::NAN, 10)]), []);
    }
}
