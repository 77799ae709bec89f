//! Videos in which an avatar speaks a text or an audio file, without a call.
//!
//! ```text
//! text ─► script ─► voice  ─┐
//! text ─► script ─► spool  ─┼─► segments ─► film ─► WebM
//! audio file ─► decoder    ─┘       └─────► captions ─► WebVTT
//! ```
//!
//! Nothing here reads a clock or draws a random number: the same pose set, speech, frame rate and
//! seed give the same bytes on machines of one type.

mod audio;
mod captions;
mod film;
mod sound;
mod spool;
mod synthesis;
mod voice;

#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use conversation::time::Position;
use engine::speak::manners::Manner;
use models::face::{PoseSet, webp};
use models::tts::Phone;

pub use audio::{AudioSource, Pcm};
pub use captions::Captions;
pub use film::{Options, Rendered, render};
pub use spool::SpoolSource;
pub use voice::VoiceSource;

/// Samples per second of all sound.
const SAMPLE_RATE: u64 = 48_000;

/// Why a video was not made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text or the audio cannot be used: a sentence for the user.
    #[error("{0}")]
    Input(String),
    /// A file cannot be written.
    #[error("the video cannot be written: {0}")]
    Write(#[source] io::Error),
    /// Another attempt may succeed.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// A failure for which another attempt may help.
    fn failed(reason: impl ToString) -> Self {
        Self::Failed(reason.to_string())
    }
}

/// What the avatar says, in segments.
pub trait SpeechSource {
    /// The next segment. `None`: the speech is over.
    ///
    /// # Errors
    /// See [`Error`].
    fn next_segment(&mut self) -> Result<Option<Spoken>, Error>;

    /// Share of the speech that [`Self::next_segment`] has returned, 0 to 1.
    fn done(&self) -> f32;

    /// Pause after the last segment.
    fn tail(&self) -> Duration;

    /// Sentences for the user, such as that another voice speaks. Complete at the end of the
    /// speech.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A segment with its sound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spoken {
    /// Pause before it.
    pub gap: Duration,
    /// Sound of the beginning of the pause, which is silent without it.
    pub gap_samples: Vec<i16>,
    /// How the avatar shows it.
    pub shown_as: Manner,
    /// Whether a tag of the text sets its expression.
    pub is_tagged: bool,
    /// Its sound: mono, at 48 kHz.
    pub samples: Vec<i16>,
    /// Its phones.
    pub phones: Vec<Phone>,
    /// Its words with the positions of their ends. A word without text is a pause.
    pub words: Vec<(String, Position)>,
    /// Its text. Empty: it is not known.
    pub text: String,
}

/// A picture of the avatar at rest: WebP, in the size of the video.
#[must_use]
pub fn poster(set: &PoseSet) -> Vec<u8> {
    webp::of_key_frame(set.key_frame())
}

/// Number of samples of a time.
fn samples(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).saturating_mul(SAMPLE_RATE) / 1_000_000
}

/// Time of a number of samples.
fn duration(samples: u64) -> Duration {
    Duration::from_micros(samples.saturating_mul(1_000_000) / SAMPLE_RATE)
}
