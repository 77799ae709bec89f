//! Speech to text.

mod clean;
pub mod pocketsphinx;

pub use pocketsphinx::{Config, Pool};

use crate::{Error, Sink};

/// News of a stream.
#[derive(Debug)]
pub enum Event {
    /// Words since the last final, still changing.
    Interim(String),
    /// Words since the last final; empty if the speech had none.
    Final(String),
    /// The stream broke and is being repaired with the audio since the last final.
    Failed(Error),
    /// It works again.
    Recovered,
}

/// A speech recogniser that can open streams.
pub trait Stt: Send + Sync {
    /// Opens a stream for one call.
    ///
    /// # Errors
    /// [`crate::Kind::Busy`] if no decoder can be had: the call is refused, never deaf.
    fn open(&self, sink: Sink<Event>) -> Result<Box<dyn Stream>, Error>;

    /// Why [`Stt::open`] would fail now; `None` if it would not, or if only trying tells.
    fn full(&self) -> Option<Error> {
        None
    }
}

/// One call's ear. Its methods never block; dropping it gives the decoder back.
pub trait Stream: Send {
    /// Speech of the user begins: mono 16 kHz samples follow, the pre-roll first.
    fn begin(&mut self);
    /// More samples of it.
    fn audio(&mut self, pcm: &[i16]);
    /// The speech ended: everything given until now is to be understood, and one [`Event::Final`] told for it.
    fn end(&mut self);
}
