//! Speech to text.

pub mod deepgram;
pub mod moonshine;
pub mod pocketsphinx;
mod streaming;
mod transcript_cleanup;

pub use moonshine::{Moonshine, MoonshineConfig};
pub use pocketsphinx::{PocketSphinxConfig, PocketSphinxPool};

use crate::{Error, Sink};

/// Event of a stream.
#[derive(Debug)]
pub enum Event {
    /// Transcript since the last final, still subject to change.
    Interim(String),
    /// Transcript since the last final; empty if the speech contained no words.
    Final(String),
    /// The stream failed. It remains open, and [`Event::Recovered`] follows when it works again.
    Failed(Error),
    /// The stream works again.
    Recovered,
    /// Another STT serves the rest of the call: one sentence for the conversation's record. No
    /// transcript is lost.
    Warning(String),
}

/// A speech recognizer that opens streams.
pub trait Stt: Send + Sync {
    /// Opens a stream for one call. Called when the client of the call has connected, never for
    /// an offer alone: a stream may hold a connection whose duration is billed.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Busy`] if no decoder is available. The call is then rejected; it never
    /// runs without STT.
    fn open(&self, sink: Sink<Event>) -> Result<Box<dyn SttStream>, Error>;

    /// Why [`Stt::open`] would fail now; `None` if it would succeed, or if only an attempt can
    /// show.
    fn capacity_error(&self) -> Option<Error> {
        None
    }
}

/// The recognition stream of one call. Its methods never block. Dropping it releases the decoder or
/// closes the connection.
pub trait SttStream: Send {
    /// The call has started: events are received from now on. Called once, before any speech.
    fn start_call(&mut self) {}
    /// The user starts to speak: mono samples at 16 kHz follow, the pre-roll first.
    fn start_speech(&mut self);
    /// The next samples of the speech.
    fn push_audio(&mut self, pcm: &[i16]);
    /// The speech ended: all samples so far are decoded, and one [`Event::Final`] is sent for them.
    fn end_speech(&mut self);
}
