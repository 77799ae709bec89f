//! Voice activity detection: windows of audio, processed in one batch for all calls of a tick, and
//! a detector over their probabilities `p`.
//!
//! States of the detector (`models::vad::Detector`), and the events that this module derives:
//!
//! ```text
//! Silent ── p >= .5 ────────────────────────────────────────> Rising
//! Rising ── p >= .5 for min_speech_duration: Started ───────> Speaking
//! Rising ── p < .5, or a gap in the audio ──────────────────> Silent
//! Speaking ── p >= .35: Continued ──────────────────────────> Speaking
//! Speaking ── p < .35 for min_silence_duration: Stopped ────> Silent
//! Speaking ── gap in the audio: Stopped ────────────────────> Silent
//! ```
//!
//! If one window is as long as `min_speech_duration`, the detector goes from Silent to Speaking
//! directly.

use std::sync::Arc;
use std::time::Duration;

use conversation::spec;
use conversation::time::Time;
use models::vad::{Detector, Network, Scratch, VadEvent};
pub use models::vad::{NetworkState, WINDOW};

use super::loudness::LoudnessHistory;
pub use crate::model_factory::Vad;

/// `p` of a window from which speech continues; the lower threshold of the [`Detector`].
pub(crate) const CONTINUE_THRESHOLD: f32 = 0.35;
/// `p` of a window below which it is certainly noise.
const NOISE_THRESHOLD: f32 = 0.1;

/// Reports of the detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpeechEvent {
    /// Speech began.
    Started {
        /// Start of its first window at or above the threshold, refined by loudness.
        onset: Time,
        /// End of the window that confirmed the speech.
        window_end: Time,
    },
    /// Speech continues.
    Continued {
        /// End of the window.
        window_end: Time,
    },
    /// Speech ended.
    Stopped {
        /// End of its last window at or above the lower threshold, refined by loudness.
        end: Time,
    },
}

/// Cuts audio into windows and computes the time of their end.
pub struct VadFramer {
    samples: Box<[f32; WINDOW]>,
    filled: usize,
}

impl Default for VadFramer {
    fn default() -> Self {
        Self { samples: Box::new([0.0; WINDOW]), filled: 0 }
    }
}

impl VadFramer {
    /// Takes samples (16 kHz) that end at `end`; calls `on_window` with each full window and the
    /// time of its end.
    pub fn push(
        &mut self,
        pcm: &[i16],
        end: Time,
        mut on_window: impl FnMut(&[f32; WINDOW], Time),
    ) {
        let mut rest = pcm;
        while !rest.is_empty() {
            let n = rest.len().min(WINDOW - self.filled);
            for (to, from) in self.samples[self.filled..].iter_mut().zip(&rest[..n]) {
                *to = f32::from(*from) / 32768.0;
            }
            self.filled += n;
            rest = &rest[n..];
            if self.filled == WINDOW {
                self.filled = 0;
                on_window(&self.samples, end - samples_duration(rest.len()));
            }
        }
    }
}

/// Duration of `samples` at 16 kHz.
#[must_use]
pub fn samples_duration(samples: usize) -> Duration {
    Duration::from_nanos(samples as u64 * 62_500)
}

/// The network with buffers of one thread.
pub struct BatchedVad {
    network: Arc<Network>,
    scratch: Scratch,
}

impl BatchedVad {
    /// A VAD for one media thread.
    #[must_use]
    pub fn new(network: Arc<Network>) -> Self {
        let scratch = Scratch::new(&network);
        Self { network, scratch }
    }
}

impl Vad for BatchedVad {
    fn infer(
        &mut self,
        states: &mut [&mut NetworkState],
        windows: &[&[f32; WINDOW]],
        probabilities: &mut [f32],
    ) {
        self.network.run(&mut self.scratch, states, windows, probabilities);
    }
}

/// The detector of one call, in the call's time.
pub struct SpeechDetector {
    detector: Detector,
    loudness: LoudnessHistory,
}

impl SpeechDetector {
    /// A detector with the call's durations.
    #[must_use]
    pub fn new(times: spec::VadTiming) -> Self {
        Self { detector: Detector::new(times), loudness: LoudnessHistory::default() }
    }

    /// Processes the window that ended at `end`.
    pub fn push_window(
        &mut self,
        probability: f32,
        samples: &[f32; WINDOW],
        end: Time,
    ) -> Option<SpeechEvent> {
        self.loudness.push(samples, probability < NOISE_THRESHOLD && !self.is_speaking());
        match self.detector.on_probability(probability) {
            Some(report) => Some(self.to_event(report, end)),
            None => (self.is_speaking() && probability >= CONTINUE_THRESHOLD)
                .then_some(SpeechEvent::Continued { window_end: end }),
        }
    }

    /// The audio has a gap: an active speech segment ended with its last speech window. `end` is
    /// the end of the last window.
    pub fn end_on_gap(&mut self, end: Time) -> Option<SpeechEvent> {
        let report = self.detector.interrupt()?;
        Some(self.to_event(report, end))
    }

    /// Whether the detector reports speech.
    #[must_use]
    pub fn is_speaking(&self) -> bool {
        self.detector.is_speaking()
    }

    /// Positions count back from the end of the last window. The drift between the sender's clock
    /// and ours is thus limited to that of one speech segment.
    fn to_event(&self, report: VadEvent, end: Time) -> SpeechEvent {
        let ago = |position: u64| self.detector.position() - position;
        let at = |ago: u64| end - samples_duration(ago as usize);
        match report {
            VadEvent::Start { onset } => SpeechEvent::Started {
                onset: at(self.loudness.refine_onset(ago(onset))),
                window_end: end,
            },
            VadEvent::End { end, .. } => {
                SpeechEvent::Stopped { end: at(self.loudness.refine_end(ago(end))) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_micros(ms * 1000)
    }

    #[test]
    fn speech_is_reported_with_its_true_ends() {
        let mut detector = SpeechDetector::new(spec::VadTiming {
            min_speech_duration: Duration::from_millis(50),
            min_silence_duration: Duration::from_millis(250),
        });
        let probabilities = [0.1; 4].into_iter().chain([0.9; 20]).chain([0.1; 10]);
        // The user's first window ended 1 s into the call.
        let events: Vec<_> = probabilities
            .enumerate()
            .filter_map(|(i, probabilities)| {
                detector
                    .push_window(probabilities, &[0.0; WINDOW], ms(1000 + i as u64 * 32))
                    .map(|c| (i, c))
            })
            .collect();
        assert_eq!(events.len(), 1 + 18 + 1);
        assert_eq!(events[0], (5, SpeechEvent::Started { onset: ms(1096), window_end: ms(1160) }));
        assert_eq!(events[18], (23, SpeechEvent::Continued { window_end: ms(1736) }));
        assert_eq!(events[19], (31, SpeechEvent::Stopped { end: ms(1736) }));
    }

    #[test]
    fn windows_are_cut_and_dated_to_the_sample() {
        let mut framer = VadFramer::default();
        let mut ends = Vec::new();
        for i in 1..=8u64 {
            framer.push(&[16_384; 320], Time::from_micros(i * 20_000), |w, end| {
                assert!(w.iter().all(|s| (*s - 0.5).abs() < 1e-6));
                ends.push(end.as_micros());
            });
        }
        assert_eq!(ends, [32_000, 64_000, 96_000, 128_000, 160_000]);
    }
}
