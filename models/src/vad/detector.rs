//! Turns speech probabilities into speech segments.
//!
//! ```text
//!              p ≥ .5            p ≥ .5 for start_hold: Start
//!     Silent ──────────► Rising ─────────────────────────────► Speaking ─┐
//!      ▲  ▲                │                                    │     ▲  │ p ≥ .35, or p < .35 for
//!      │  └─── p < .5 ─────┘ (or interrupt)                     │     └──┘ less than end_hold
//!      └─────────── p < .35 for end_hold, or interrupt: End ────┘
//! ```
//!
//! If one window is as long as `start_hold`, `Silent` goes to `Speaking` directly.

use conversation::spec;

use super::{SAMPLE_RATE, WINDOW};

/// Speech starts with a window of at least this probability.
const START_THRESHOLD: f32 = 0.5;
/// Speech continues while windows have at least this probability. It is lower than
/// [`START_THRESHOLD`], so that a soft syllable does not end the segment.
const END_THRESHOLD: f32 = 0.35;

/// Event of a [`DetectorTiming`]. All positions are samples at [`SAMPLE_RATE`], counted from the
/// first sample of the first window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VadEvent {
    /// Speech has lasted for the configured minimum.
    Start {
        /// Start of the speech: the start of its first window.
        onset: u64,
    },
    /// Silence has lasted for the configured minimum.
    End {
        /// Start of the speech.
        onset: u64,
        /// End of the speech: the end of its last window.
        end: u64,
    },
}

/// Detects starts and ends of speech from one probability per window; one detector per stream.
///
/// Speech starts when the probability was at least .5 for `start_hold`. It ends when the
/// probability was below .35 for `end_hold`. Both times come from [`spec::VadTiming`], rounded up
/// to whole windows of 32 ms. An event is late by that hold, and therefore contains the actual
/// position.
#[derive(Clone, Debug)]
pub struct Detector {
    /// Hold times in samples.
    start_hold: u64,
    end_hold: u64,
    /// Number of samples processed.
    position: u64,
    state: DetectorState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DetectorState {
    Silent,
    /// At least [`START_THRESHOLD`] since `onset`, but not yet for long enough.
    Rising {
        onset: u64,
    },
    /// The start is reported; `end` is the end of the last window with speech.
    Speaking {
        onset: u64,
        end: u64,
    },
}

impl Detector {
    /// A detector before its first window.
    #[must_use]
    pub fn new(times: spec::VadTiming) -> Self {
        let samples = |t: core::time::Duration| {
            (t.as_micros() * u128::from(SAMPLE_RATE)).div_ceil(1_000_000) as u64
        };
        Self {
            start_hold: samples(times.min_speech_duration),
            end_hold: samples(times.min_silence_duration),
            position: 0,
            state: DetectorState::Silent,
        }
    }

    /// Processes the probability of the next window.
    pub fn on_probability(&mut self, probability: f32) -> Option<VadEvent> {
        let from = self.position;
        let to = from + WINDOW as u64;
        self.position = to;
        match self.state {
            DetectorState::Silent | DetectorState::Rising { .. }
                if probability >= START_THRESHOLD =>
            {
                let onset =
                    if let DetectorState::Rising { onset } = self.state { onset } else { from };
                if to - onset < self.start_hold {
                    self.state = DetectorState::Rising { onset };
                    return None;
                }
                self.state = DetectorState::Speaking { onset, end: to };
                Some(VadEvent::Start { onset })
            }
            DetectorState::Silent | DetectorState::Rising { .. } => {
                self.state = DetectorState::Silent;
                None
            }
            DetectorState::Speaking { onset, .. } if probability >= END_THRESHOLD => {
                self.state = DetectorState::Speaking { onset, end: to };
                None
            }
            DetectorState::Speaking { onset, end } => (to - end >= self.end_hold).then(|| {
                self.state = DetectorState::Silent;
                VadEvent::End { onset, end }
            }),
        }
    }

    /// Number of samples processed.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether a start was reported and no end yet.
    #[must_use]
    pub fn is_speaking(&self) -> bool {
        matches!(self.state, DetectorState::Speaking { .. })
    }

    /// The stream has a gap and restarts (a lost connection). A running speech segment ends with
    /// its last window. Positions continue.
    pub fn interrupt(&mut self) -> Option<VadEvent> {
        match std::mem::replace(&mut self.state, DetectorState::Silent) {
            DetectorState::Speaking { onset, end } => Some(VadEvent::End { onset, end }),
            DetectorState::Silent | DetectorState::Rising { .. } => None,
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

    /// Every event with the index of the window that caused it.
    fn run(detector: &mut Detector, probabilities: &[(f32, usize)]) -> Vec<(u64, VadEvent)> {
        let windows = probabilities.iter().flat_map(|&(p, n)| std::iter::repeat_n(p, n));
        windows
            .enumerate()
            .filter_map(|(i, p)| Some((i as u64, detector.on_probability(p)?)))
            .collect()
    }

    #[test]
    fn a_start_is_reported_after_two_windows_and_says_where_the_first_began() {
        assert_eq!(
            run(&mut detector(), &[(0.1, 5), (0.5, 10)]),
            [(6, VadEvent::Start { onset: 5 * W })]
        );
    }

    #[test]
    fn one_loud_window_is_not_speech() {
        assert_eq!(
            run(&mut detector(), &[(0.1, 5), (0.99, 1), (0.49, 1), (0.99, 1), (0.0, 20)]),
            []
        );
    }

    #[test]
    fn an_end_is_reported_after_eight_quiet_windows_and_says_where_the_speech_ended() {
        let reports = run(&mut detector(), &[(0.9, 10), (0.1, 20)]);
        assert_eq!(reports[1], (17, VadEvent::End { onset: 0, end: 10 * W }));
        assert_eq!(reports.len(), 2);
    }

    #[test]
    fn a_pause_shorter_than_the_hold_does_not_end_speech() {
        let reports = run(&mut detector(), &[(0.9, 10), (0.1, 7), (0.4, 1), (0.1, 20)]);
        assert_eq!(
            reports[1],
            (25, VadEvent::End { onset: 0, end: 18 * W }),
            "the soft window at .4 is speech still"
        );
    }

    #[test]
    fn a_probability_between_the_thresholds_keeps_speech_but_does_not_begin_it() {
        assert_eq!(run(&mut detector(), &[(0.4, 100)]), []);
        assert_eq!(
            run(&mut detector(), &[(0.6, 2), (0.4, 100)]),
            [(1, VadEvent::Start { onset: 0 })]
        );
    }

    #[test]
    fn without_holds_every_change_is_reported_at_once() {
        let mut detector = Detector::new(spec::VadTiming {
            min_speech_duration: Duration::ZERO,
            min_silence_duration: Duration::ZERO,
        });
        let reports = run(&mut detector, &[(0.9, 1), (0.1, 2)]);
        assert_eq!(
            reports,
            [(0, VadEvent::Start { onset: 0 }), (1, VadEvent::End { onset: 0, end: W })]
        );
    }

    #[test]
    fn a_gap_in_the_stream_ends_speech_once() {
        let mut detector = detector();
        run(&mut detector, &[(0.9, 4)]);
        assert!(detector.is_speaking());
        assert_eq!(detector.interrupt(), Some(VadEvent::End { onset: 0, end: 4 * W }));
        assert_eq!(detector.interrupt(), None);
        assert_eq!(detector.position(), 4 * W);
    }

    #[test]
    fn not_a_number_is_silence() {
        assert_eq!(run(&mut detector(), &[(f32::NAN, 10)]), []);
    }
}
