//! Turn detection: the probability that the user's turn is over, by smart-turn v3.2 on ONNX Runtime
//! from the last seconds of the turn's audio.
//!
//! A turn model is used only after speech
//! ([`conversation::output::Output::RequestTurnProbability`]), because it takes silence for the end
//! of a turn. Its result only chooses between the shorter and the longer endpointing delay. The
//! conversation never waits for it: a result that arrives after the turn was decided changes
//! nothing.

mod features;
mod queue;
mod smart_turn;
#[cfg(test)]
#[path = "../../tests/common/sound.rs"]
mod sound;

use std::time::Duration;

pub use features::{BUFFER_SAMPLES, FRAMES, FeatureExtractor, MEL_BANDS};
pub use smart_turn::{Config, SmartTurn, measure_latency};

use crate::{Error, Handle, Sink};

/// Sample rate of [`TurnRequest::audio`], Hz.
pub const SAMPLE_RATE: u32 = 16_000;

/// The user's turn at the end of a speech segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnRequest {
    /// Audio of the turn so far, mono at [`SAMPLE_RATE`]. It starts shortly before the first speech
    /// and includes the silence that ended the segment. No longer than [`TurnModel::max_audio`].
    pub audio: Vec<i16>,
    /// Transcript of the turn so far. Its last words usually arrive later.
    pub transcript: String,
}

/// A model that predicts whether the user has finished. One for all calls. It uses the audio, the
/// transcript or both.
pub trait TurnModel: Send + Sync {
    /// Announces a call that will send requests. Starts slow loading in the background.
    ///
    /// # Errors
    /// If it is known that no request will be answered.
    fn prepare(&self) -> Result<(), Error>;

    /// Maximum audio that the model uses. Zero for a model of text only; no audio is recorded for
    /// it.
    fn max_audio(&self) -> Duration;

    /// Requests P(turn is over), from 0 to 1. Returns at once and never blocks. `answer` is called
    /// at most once. It is never called if the model is overloaded or fails. Dropping the handle
    /// cancels the request.
    fn predict(&self, question: TurnRequest, answer: Sink<f32>) -> Handle;
}
