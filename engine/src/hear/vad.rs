//! When the user speaks: windows of sound, judged together for all calls of a tick, and the detector over their probabilities.

use std::sync::Arc;
use std::time::Duration;

use conversation::spec;
use conversation::time::Time;
use models::vad::{Detector, Network, Report, Scratch};
pub use models::vad::{State, WINDOW};

use super::loudness::LoudnessHistory;

/// p of a window at or over which speech goes on; the [`Detector`]'s own lower threshold.
pub(crate) const CONTINUE_THRESHOLD: f32 = 0.35;
/// p of a window below which it is noise for sure.
const NOISE_THRESHOLD: f32 = 0.1;

/// What the detector reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpeechEvent {
    /// Speech began.
    Started {
        /// Start of its first window at or over the threshold.
        onset: Time,
        /// End of the window that made it certain.
        window_end: Time,
    },
    /// Speech goes on.
    Continued {
        /// End of the window.
        window_end: Time,
    },
    /// Speech ended.
    Stopped {
        /// End of its last window at or over the (lower) threshold.
        end: Time,
    },
}

/// Makes windows of what comes, with the instants at which they began and ended.
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
    /// Takes samples (16 kHz), which end at `end`; calls `ready` with each full window and the instant of its end.
    pub fn push(&mut self, pcm: &[i16], end: Time, mut on_window: impl FnMut(&[f32; WINDOW], Time)) {
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

/// How long `samples` at 16 kHz last.
#[must_use]
pub fn samples_duration(samples: usize) -> Duration {
    Duration::from_nanos(samples as u64 * 62_500)
}

/// Who judges windows of sound: the network, or a test's double.
pub trait Vad: Send {
    /// The next window of each stream: `probabilities[i]` becomes P(speech) in `windows[i]`.
    fn infer(&mut self, states: &mut [&mut State], windows: &[&[f32; WINDOW]], probabilities: &mut [f32]);
}

/// The network with a thread's own buffers.
pub struct Silero {
    network: Arc<Network>,
    scratch: Scratch,
}

impl Silero {
    /// One for a media thread.
    #[must_use]
    pub fn new(network: Arc<Network>) -> Self {
        let scratch = Scratch::new(&network);
        Self { network, scratch }
    }
}

impl Vad for Silero {
    fn infer(&mut self, states: &mut [&mut State], windows: &[&[f32; WINDOW]], probabilities: &mut [f32]) {
        self.network.run(&mut self.scratch, states, windows, probabilities);
    }
}

/// The detector of one call, on the call's time.
pub struct SpeechDetector {
    detector: Detector,
    loudness: LoudnessHistory,
}

impl SpeechDetector {
    /// One with the call's times.
    #[must_use]
    pub fn new(times: spec::VadTiming) -> Self {
        Self { detector: Detector::new(times), loudness: LoudnessHistory::default() }
    }

    /// Judges the window that ended at `end`.
    pub fn push_window(
        &mut self,
        probability: f32,
        samples: &[f32; WINDOW],
        end: Time,
    ) -> Option<SpeechEvent> {
        self.loudness.push(samples, probability < NOISE_THRESHOLD && !self.is_speaking());
        match self.detector.window(probability) {
            Some(report) => Some(self.to_event(report, end)),
            None => (self.is_speaking() && probability >= CONTINUE_THRESHOLD)
                .then_some(SpeechEvent::Continued { window_end: end }),
        }
    }

    /// The sound has a gap: speech under way ended with its last window. `now` is the end of the last window.
    pub fn end_on_gap(&mut self, end: Time) -> Option<SpeechEvent> {
        let report = self.detector.interrupt()?;
        Some(self.to_event(report, end))
    }

    /// Whether the user is heard.
    #[must_use]
    pub fn is_speaking(&self) -> bool {
        self.detector.speaking()
    }

    /// Positions count back from the end of the last window: the sender's clock and ours never drift apart by more than one stretch does.
    fn to_event(&self, report: Report, end: Time) -> SpeechEvent {
        let ago = |position: u64| self.detector.position() - position;
        let at = |ago: u64| end - samples_duration(ago as usize);
        match report {
            Report::Start { onset } => {
                SpeechEvent::Started { onset: at(self.loudness.refine_onset(ago(onset))), window_end: end }
            }
            Report::End { end, .. } => SpeechEvent::Stopped { end: at(self.loudness.refine_end(ago(end))) },
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
                detector.push_window(probabilities, &[0.0; WINDOW], ms(1000 + i as u64 * 32)).map(|c| (i, c))
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
