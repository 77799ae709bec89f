//! Text to speech.

mod align;
mod characters;
pub mod flite;
mod text;
mod voice;

pub use align::Aligner;
pub use characters::words_of;
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
    /// Phones of (part of) the piece, in order: for the lips. For a voice that tells none before its first audio, they are made of its words
    /// ([`Aligner`]), and where it tells none of these either, read from the sound ([`crate::lips`]).
    Phones(Vec<Phone>),
    /// Words of (part of) the piece, in order: for what was heard, and for the lips where there are no phones. Those that come before their
    /// sound are of most use. A vendor's times of characters become words by [`words_of`].
    Words(Vec<Word>),
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

/// One word that is said.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    /// As written, with its marks.
    pub text: String,
    /// Its beginning, in seconds from the piece's first sample, where the voice tells it: what lies between the end of the word before and
    /// this is a pause. Without it, the word begins where the one before ends, or behind a pause of unknown length.
    pub begin: Option<f64>,
    /// Its end, in seconds from the piece's first sample.
    pub end: f64,
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
