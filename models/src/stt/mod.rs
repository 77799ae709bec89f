//! Speech to text.

pub mod assemblyai;
#[cfg(test)]
mod contract;
pub mod deepgram;
pub mod elevenlabs;
pub mod moonshine;
pub mod openai;
pub mod openai_realtime;
pub mod pocketsphinx;
mod streaming;
mod transcript_cleanup;
pub mod transcriptions;

pub use streaming::{Fallback, HostedConfig, HostedOptions, Timeouts};

pub use moonshine::{Moonshine, MoonshineConfig};
pub use pocketsphinx::{PocketSphinxConfig, PocketSphinxPool};

use std::time::Duration;

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
    /// The vendor's opinion about the user's turn: advice, never a decision.
    Turn(TurnHint),
    /// What the stream used since the last report. Sent every 10 s, and when the stream ends or
    /// another STT replaces it.
    Usage(Usage),
    /// The provider whose transcripts follow. Sent before its first transcript.
    Provider(&'static str),
}

/// A vendor's opinion about the user's turn. The last interim transcript contains its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnHint {
    /// The user has probably finished: a reply may be prepared.
    EagerEnd,
    /// The user goes on after an [`TurnHint::EagerEnd`] or [`TurnHint::End`].
    Resumed,
    /// The user has finished.
    End,
}

/// What a hosted stream used. Which part is billed depends on the vendor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Name of the provider; empty until the registry's STT adds it.
    pub provider: &'static str,
    /// Duration of open connections.
    pub connected: Duration,
    /// Duration of the audio that was sent, repetitions included.
    pub audio: Duration,
    /// Requests, for vendors without a stream.
    pub requests: u32,
    /// Tokens of the audio and the prompt, if the vendor reports them.
    pub input_tokens: u32,
    /// Tokens of the transcripts, if the vendor reports them.
    pub output_tokens: u32,
}

/// A speech recognizer that opens streams.
pub trait Stt: Send + Sync {
    /// Opens a stream for one call. Called when the client of the call has connected, or earlier if
    /// [`connects_on_open`](Stt::connects_on_open). Never called for an offer alone: a stream may
    /// hold a connection whose duration is billed.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Busy`] if no decoder is available. The call is then rejected; it never
    /// runs without STT.
    fn open(&self, sink: Sink<Event>) -> Result<Box<dyn SttStream>, Error>;

    /// Whether a stream would now connect to a vendor and take no decoder of this server. It is
    /// then opened at the client's first authenticated STUN check, in parallel with DTLS.
    fn connects_on_open(&self) -> bool {
        false
    }

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
    /// Whether an [`Event::Usage`] follows after the stream was dropped. The sink is dropped after
    /// it.
    fn reports_usage(&self) -> bool {
        false
    }
}
