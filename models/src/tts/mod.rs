//! Text to speech.

mod align;
mod band_extension;
mod biquad;
mod builtin;
pub mod cartesia;
mod character_timing;
#[cfg(test)]
mod contract;
pub mod deepgram;
pub mod elevenlabs;
pub mod flite;
pub mod hibari;
mod hosted;
pub mod openai;
mod pool;
mod queue;
mod stress;
mod text;
mod upsampler;
mod voice;

pub use align::Aligner;
pub use builtin::{BuiltinTts, default_voice};
pub use character_timing::words_from_characters;
pub use flite::Flite;
pub use hibari::Hibari;
pub use hosted::Timeouts;
pub use hosted::voices::{ListedVoice, VoicePage, VoiceQuery};
pub use upsampler::Upsampler;
pub use voice::{HEART, Voice, builtin_provider_has, check_builtin_voice, resolve_voice};

use std::sync::Arc;
use std::time::Duration;

use crate::{Error, Handle, Sink};

/// A text to speak.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The text, as written.
    pub text: String,
    /// Name of the voice; empty = the default voice.
    pub voice: String,
    /// Name of the avatar's voice: spoken by a TTS that lacks `voice`.
    pub avatar_voice: String,
    /// The reply that the text is a part of. Successive texts of one reply are spoken as one
    /// speech: the intonation continues.
    pub reply: u64,
    /// Language as a BCP 47 tag; `None` = the configured one. Voices of one language ignore it.
    pub language: Option<String>,
    /// Words with a special pronunciation: (as written, as it should sound).
    pub pronunciation: Vec<(String, String)>,
}

/// Events of a request. Marks come as soon as they are known (flite: before the first audio), audio
/// comes in chunks, and the end comes last.
#[derive(Debug)]
pub enum Event {
    /// Phones of the segment or of a part of it, in order, for the lips. If a voice reports none
    /// before its first audio, they are derived from its words ([`Aligner`]). If it reports no
    /// words either, they are recognized in the audio ([`crate::lips`]).
    Phones(Vec<Phone>),
    /// Words of the segment or of a part of it, in order. They determine the heard text, and the
    /// lips if there are no phones. They are most useful before their audio. Character times of a
    /// vendor become words by [`words_from_characters`].
    Words(Vec<Word>),
    /// Mono samples.
    Audio {
        /// The samples.
        pcm: Vec<i16>,
        /// Sample rate in Hz. It changes only where another voice goes on.
        sample_rate: u32,
    },
    /// The text was sent to a vendor, which bills it by its length.
    Usage {
        /// Name of the vendor; empty = the provider that sends what follows.
        provider: &'static str,
        /// Characters (Unicode code points) that were sent.
        characters: u32,
    },
    /// Another TTS speaks: one sentence for the conversation's record.
    Warning(String),
    /// The text was sent to this provider, which sends what follows, unless [`ServedBy`] names
    /// another one.
    ///
    /// [`ServedBy`]: Event::ServedBy
    Provider(&'static str),
    /// Of the providers that got the text, this one sends what follows.
    ServedBy(&'static str),
    /// All samples were sent.
    End,
    /// The request failed; no event follows.
    Failed(Error),
}

/// One phone.
#[derive(Clone, Debug, PartialEq)]
pub struct Phone {
    /// Name in the CMU phone set, lower case (`aa`, `p`, `pau` …).
    pub name: String,
    /// End, in seconds from the first sample of the segment.
    pub end: f32,
    /// Whether it is the vowel with the primary lexical stress of a content word. The vowels of
    /// function words, such as "the", are not stressed. In audio without a text, a long open vowel
    /// is.
    pub stress: bool,
}

impl Phone {
    /// A phone without stress.
    #[must_use]
    pub fn new(name: impl Into<String>, end: f32) -> Self {
        Self { name: name.into(), end, stress: false }
    }
}

/// One spoken word.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    /// As written, with its punctuation.
    pub text: String,
    /// Start, in seconds from the first sample of the segment, if the voice reports it. The time
    /// between the end of the previous word and this start is a pause. Without a start, the word
    /// begins at the end of the previous one, or after a pause of unknown length.
    pub begin: Option<f64>,
    /// End, in seconds from the first sample of the segment.
    pub end: f64,
}

/// A speech synthesizer.
pub trait Tts: Send + Sync {
    /// Starts to speak and returns at once. The sink is called only from other threads, never on
    /// the caller's thread within this method.
    ///
    /// # Errors
    /// If the request cannot start, because too many texts wait, for example. The sink was not
    /// called.
    fn speak(&self, request: Request, sink: Sink<Event>) -> Result<Handle, Error>;

    /// An instance for one call. It opens its connection at once, because a vendor needs some time
    /// for that, and closes it when it is dropped. `like`: a request of the call without a text.
    /// Some vendors bind a connection to the voice and the language of its first text. Called at the
    /// client's first authenticated STUN check, before the call has a place on this server: it takes
    /// none of the server's resources. `None`, the default: nothing has to be opened, and the
    /// synthesizer itself serves the call.
    fn open_call(&self, like: &Request) -> Option<Arc<dyn Tts>> {
        let _ = like;
        None
    }

    /// The reply is cut off: no more text of it follows. Its segments are cancelled by their
    /// handles; this closes what is open for the reply at a vendor.
    fn cancel_reply(&self, reply: u64) {
        let _ = reply;
    }

    /// Calls `report` with the name of each provider and the duration of its connections so far.
    /// The name is empty if only the registry knows it. For instances of
    /// [`open_call`](Tts::open_call).
    fn report_connected(&self, report: &mut dyn FnMut(&'static str, Duration)) {
        let _ = report;
    }

    /// Whether a voice of this name exists. The empty name is the default voice. An implementation
    /// without names of its own accepts any name.
    fn has_voice(&self, voice: &str) -> bool {
        let _ = voice;
        true
    }

    /// Why [`Tts::speak`] would fail now; `None` if it would succeed, or if only an attempt can
    /// show.
    fn capacity_error(&self) -> Option<Error> {
        None
    }
}
