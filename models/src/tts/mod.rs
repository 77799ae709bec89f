//! Text to speech.

pub mod flite;
mod text;
mod voice;

pub use flite::Flite;
pub use voice::{Voice, resolve};

use crate::{Error, Handle, Sink};

/// What is to be said.
#[derive(Clone, Debug)]
pub struct Request {
    /// The words, as written.
    pub text: String,
    /// The voice.
    pub voice: String,
    /// Words spoken otherwise than written: (as written, as it should sound).
    pub pronunciation: Vec<(String, String)>,
}

/// News of a request, in this order: marks as soon as they are known (flite: before the first audio), audio in chunks, the end.
#[derive(Debug)]
pub enum Event {
    /// Phones of (part of) the piece, in order: for the lips. From a voice that tells none before its first audio, the lips are read from
    /// the sound ([`crate::lips`]).
    Phones(Vec<Phone>),
    /// Words of the piece with the second of their end, in order: for what was heard.
    Words(Vec<(String, f64)>),
    /// Mono samples.
    Audio {
        /// The samples.
        pcm: Vec<i16>,
        /// Their rate in Hz; the same for all chunks of a request.
        sample_rate: u32,
    },
    /// All samples were given.
    End,
    /// It failed; nothing follows.
    Failed(Error),
}

/// One phone.
#[derive(Clone, Debug, PartialEq)]
pub struct Phone {
    /// In the CMU set, lower case (`aa`, `p`, `pau` …).
    pub name: String,
    /// Its end, in seconds from the piece's first sample.
    pub end: f32,
}

/// A voice engine.
pub trait Tts: Send + Sync {
    /// Begins to speak; returns at once. The sink is called from other threads only, never before this has returned on the caller's own.
    ///
    /// # Errors
    /// It cannot be begun (too many texts wait, say); the sink was not called.
    fn speak(&self, request: Request, sink: Sink<Event>) -> Result<Handle, Error>;

    /// Whether it has a voice of this name; empty is its default. One without names of its own takes any.
    fn knows(&self, voice: &str) -> bool {
        let _ = voice;
        true
    }
}
