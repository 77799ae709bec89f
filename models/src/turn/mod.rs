//! Is the user's turn over: smart-turn v3.2 by ONNX Runtime, which listens to the last seconds of the turn.
//!
//! A turn model is asked only after speech ([`conversation::output::Output::AskTurn`]): it takes silence for the end of a turn. What it
//! says only chooses between a shorter and a longer wait, and nobody waits for it: an answer that comes after its turn was decided is
//! late and changes nothing.

mod features;
mod queue;
mod smart_turn;
#[cfg(test)]
#[path = "../../tests/common/sound.rs"]
mod sound;

use std::time::Duration;

pub use features::{FRAMES, Features, MELS, SAMPLES};
pub use smart_turn::{Config, SHA256, SmartTurn, check};

use crate::{Error, Handle, Sink};

/// Samples a second of [`Question::sound`].
pub const SAMPLE_RATE: u32 = 16_000;

/// What is known of the user's turn as a stretch of speech has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// How the turn sounded until now, mono, the silence that ended it included; from a moment before its first speech, and no longer
    /// than [`TurnModel::span`].
    pub sound: Vec<i16>,
    /// What was understood of the turn until now; its last words mostly come later.
    pub words: String,
}

/// A model that tells whether somebody has finished. One for all calls; it listens, reads, or both.
pub trait TurnModel: Send + Sync {
    /// A call begins that will ask: loads what takes time, behind.
    ///
    /// # Errors
    /// It is known that no question will be answered.
    fn prepare(&self) -> Result<(), Error>;

    /// The most sound that it listens to; zero for one that only reads, and then none is kept for it.
    fn span(&self) -> Duration;

    /// Asks for P(turn is over), from 0 to 1. Returns at once and never blocks. `answer` is called once, or never: where there is more
    /// to answer than can be answered in time, or the model fails. Dropping the handle withdraws the question.
    fn ask(&self, question: Question, answer: Sink<f32>) -> Handle;
}
