//! Speech rate and range of pitch of the voices.

use super::super::Voice;

/// Features of an utterance; `None` = the voice's own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prosody {
    /// Factor of all durations (`duration_stretch`).
    pub(super) duration_stretch: Option<f32>,
    /// Standard deviation of the fundamental frequency in Hz (`int_f0_target_stddev`).
    pub(super) f0_deviation: Option<f32>,
}

impl Prosody {
    /// The prosody of a voice; `docs/voices.md` describes how the values were found. The voice rms
    /// ignores the deviation.
    pub(super) fn of(voice: Voice) -> Self {
        let (duration_stretch, f0_deviation) = match voice {
            Voice::Rms => (Some(0.92), None),
            Voice::Awb => (None, Some(28.0)),
            Voice::Slt | Voice::Kal16 | Voice::Kal => (None, None),
        };
        Self { duration_stretch, f0_deviation }
    }
}
