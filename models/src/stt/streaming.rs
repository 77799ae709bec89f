//! Hosted STT: what all vendors share. A vendor with a WebSocket is a [`Codec`]; one with requests
//! is a [`Transport`] of its own.
//!
//! ```text
//! media thread ──commands──► task of the stream ──► codec ──► WebSocket
//!                              │  speech buffer        │
//!                              └──► fallback STT       └──► events
//! ```
//!
//! - The media side cuts the audio into chunks and puts them into a bounded channel. It never
//!   waits.
//! - One task per stream ([`call`]) serves it over a [`Transport`]. That of a WebSocket connects,
//!   sends, receives, and closes ([`session`]). It connects when the stream is opened, that is
//!   at the first authenticated STUN check of the call's client.
//! - The audio of each utterance is stored until its final transcript ([`speech_buffer`]). After a
//!   reconnect it is sent again, at the speed that the vendor accepts ([`pacing`]).
//! - A failure that a retry cannot repair ([`crate::hosted::failure`]) hands the call over to the
//!   fallback STT, with the audio of the current utterance ([`fallback`]).
//! - While the vendor is skipped because of failures, its recovery is found by the audio of one
//!   utterance, which the fallback serves ([`shadow`]).

mod audio_messages;
mod call;
mod config;
mod fallback;
mod options;
mod pacing;
mod session;
mod shadow;
mod speech_buffer;
#[cfg(test)]
pub(super) mod test_support;
mod turns;
mod usage;
mod utterances;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use egress::websocket::Utf8Bytes;
use serde::Deserialize;
use tokio::runtime::Handle as Runtime;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::Instrument as _;

pub use self::config::{HostedConfig, Timeouts};
pub use self::fallback::Fallback;
pub use self::options::HostedOptions;

pub(super) use self::audio_messages::AudioMessages;
pub(super) use self::call::{Call, Dropped, Transport};
pub(super) use self::options::{Kind, Table};
pub(super) use self::session::MAX_REQUESTED_DELAY;
pub(super) use self::turns::{TurnUpdate, Turns, Word};
pub(super) use self::usage::TokenUsage;
#[cfg(test)]
pub(super) use self::utterances::{Counts, MAX_TEXT_BYTES};
pub(super) use self::utterances::{Limits, Utterance, Utterances};
pub(super) use crate::hosted::failure::{Failure, Fault};

use self::session::Session;
use self::shadow::Shadows;
use self::speech_buffer::SpeechBuffer;
use super::{Event, Stt, SttStream, TurnHint};
pub(super) use crate::hosted::Endpoint;
use crate::{Error, Sink};

/// Samples per second.
pub(super) const SAMPLE_RATE: u32 = 16_000;
/// Bytes per second: 16-bit samples, little-endian.
pub(super) const BYTES_PER_SECOND: usize = SAMPLE_RATE as usize * 2;
/// Size of a chunk: 50 ms.
pub(super) const CHUNK_BYTES: usize = BYTES_PER_SECOND / 20;
/// Memory that is allocated at a time: 1 s of audio.
const BLOCK_BYTES: usize = BYTES_PER_SECOND;
/// Maximum number of queued commands: 48 s of audio and [`RESERVED_COMMANDS`].
const MAX_QUEUED_COMMANDS: usize = 1_024;
/// Queue entries that audio may not use, so that starts and ends of speech always pass.
const RESERVED_COMMANDS: usize = 64;

/// Duration of mono audio in 16-bit samples at [`SAMPLE_RATE`].
pub(super) fn duration_of(bytes: usize) -> Duration {
    Duration::from_micros(bytes as u64 * 1_000_000 / BYTES_PER_SECOND as u64)
}

/// Maximum size of a message that is read.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// A message to the vendor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outgoing {
    Text(Utf8Bytes),
    Binary(Bytes),
}

impl Outgoing {
    /// A message that is always the same.
    pub(super) fn text(text: &'static str) -> Self {
        Self::Text(Utf8Bytes::from_static(text))
    }
}

/// What a message of the vendor, or a deadline, leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Transcript of the oldest utterance so far.
    Interim(String),
    /// The next [`Output::Final`] lacks its end, because it is too long.
    Cut,
    /// Transcript of the oldest utterance, which has ended.
    Final(String),
    /// The vendor's opinion about the current turn.
    Turn(TurnHint),
    /// Tokens that the vendor bills.
    Tokens(TokenUsage),
    /// The vendor reports that it cannot go on, in its own words.
    Failed(Fault, String),
    /// The vendor accepts audio, but sends nothing.
    Stalled,
}

/// The protocol of a vendor, for one connection at a time. It performs no I/O and reads no clock.
/// Utterances are transcribed in order, and each that has ended gets one [`Output::Final`].
pub(super) trait Codec: Send + 'static {
    /// Maximum speed of the audio, as a multiple of real time, beyond the first second; `None` =
    /// any.
    const MAX_SPEED: Option<f64> = None;
    /// Age at which a connection is replaced, as soon as no audio waits; `None` = never.
    const MAX_AGE: Option<Duration> = None;

    /// A new connection is open: the utterances of the previous one are forgotten. Adds the
    /// messages that begin a stream.
    fn reset(&mut self, messages: &mut Vec<Outgoing>);
    /// The utterances of the connection.
    fn utterances(&self) -> &Utterances;
    fn utterances_mut(&mut self) -> &mut Utterances;
    /// Adds the message for the next audio of the utterance: at most [`CHUNK_BYTES`], never none.
    /// Only the last chunk of an utterance is smaller.
    fn push_audio(&mut self, now: Instant, pcm: Bytes, messages: &mut Vec<Outgoing>);
    /// Adds the messages that request the final transcript.
    fn end_speech(&mut self, now: Instant, messages: &mut Vec<Outgoing>);
    /// Time without audio after which [`Codec::keep_alive`] is due.
    fn keep_alive_interval(&self) -> Duration {
        Duration::from_secs(5)
    }
    /// Adds the message that keeps a connection without audio open, if the vendor has one.
    fn keep_alive(&mut self, messages: &mut Vec<Outgoing>) {
        let _ = messages;
    }
    /// Adds the message that ends a stream, if the vendor has one.
    fn close_stream(&mut self, messages: &mut Vec<Outgoing>) {
        let _ = messages;
    }
    /// Reads a text message.
    fn receive(&mut self, now: Instant, text: &str, outputs: &mut Vec<Output>);
    /// Handles the deadlines that are over.
    fn expire(&mut self, now: Instant, outputs: &mut Vec<Output>) {
        while let Some(given_up) = self.utterances_mut().expire(now, outputs) {
            self.give_up(now, &given_up);
        }
    }
    /// The end mark of an utterance was not answered in time. It has its final transcript.
    fn give_up(&mut self, now: Instant, utterance: &Utterance) {
        let _ = (now, utterance);
    }
    /// For the log: the vendor's id of the stream.
    fn stream_id(&self) -> &str;
}

/// The type of a vendor's message.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, rename = "type", alias = "message_type")]
    kind: Cow<'a, str>,
}

/// The type of a message; `None` if it cannot be read.
pub(super) fn message_type(text: &str) -> Option<Cow<'_, str>> {
    parse::<Envelope<'_>>(text).map(|envelope| envelope.kind)
}

/// A message as JSON; `None` if it cannot be read.
pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    if text.len() > MAX_MESSAGE_BYTES { None } else { serde_json::from_str(text).ok() }
}

/// A vendor's id of a stream, for the log.
pub(super) fn stream_id(id: &str) -> String {
    id.chars().take(64).collect()
}

/// How streams reach a vendor.
struct Source<F> {
    endpoint: Arc<Endpoint>,
    timeouts: Timeouts,
    make_transport: F,
}

/// An STT that opens a [`Transport`] per stream.
struct HostedStt<F> {
    source: Arc<Source<F>>,
    fallback: Fallback,
    runtime: Runtime,
}

/// An STT at `endpoint` whose tasks run on `runtime`. `fallback` serves the rest of a call in which
/// it fails.
pub(super) fn hosted_stt<T: Transport>(
    endpoint: Endpoint,
    timeouts: Timeouts,
    make_transport: impl Fn() -> T + Send + Sync + 'static,
    fallback: Fallback,
    runtime: Runtime,
) -> Arc<dyn Stt> {
    let source = Source { endpoint: Arc::new(endpoint), timeouts, make_transport };
    Arc::new(HostedStt { source: Arc::new(source), fallback, runtime })
}

/// The same for a vendor with a WebSocket.
pub(super) fn socket_stt<C: Codec>(
    endpoint: Endpoint,
    timeouts: Timeouts,
    make_codec: impl Fn() -> C + Send + Sync + 'static,
    fallback: Fallback,
    runtime: Runtime,
) -> Arc<dyn Stt> {
    hosted_stt(endpoint, timeouts, move || Session::new(make_codec()), fallback, runtime)
}

impl<T: Transport, F: Fn() -> T + Send + Sync + 'static> Stt for HostedStt<F> {
    fn open(&self, sink: Sink<Event>) -> Result<Box<dyn SttStream>, Error> {
        let (commands, receiver) = mpsc::channel(MAX_QUEUED_COMMANDS);
        let (call_start, call_started) = oneshot::channel();
        let mut fallback = self.fallback.clone();
        let shadows = Shadows::new(&self.source, fallback.breaker(), sink.clone());
        if let Some((stream, text)) = fallback.open_instead(&sink) {
            let warning = fallback::warn(text, Some(call_started), sink);
            let buffer = SpeechBuffer::new(0);
            let serve = fallback::serve(stream, buffer, receiver, warning, shadows);
            self.runtime.spawn(serve.in_current_span());
        } else {
            let buffer = SpeechBuffer::new(T::MAX_BUFFERED_BYTES);
            let (endpoint, timeouts) = (Arc::clone(&self.source.endpoint), self.source.timeouts);
            let call = Call::new(endpoint, timeouts, receiver, sink, fallback, buffer);
            let transport = (self.source.make_transport)();
            self.runtime.spawn(call.run(transport, call_started, shadows));
        }
        Ok(Box::new(HostedStream {
            commands,
            call_start: Some(call_start),
            buffer: BytesMut::new(),
            in_speech: false,
            dropped_bytes: 0,
        }))
    }

    fn connects_on_open(&self) -> bool {
        self.fallback.connects_on_open()
    }
}

/// From the media side to the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    StartSpeech,
    /// Samples as on the wire, at most [`CHUNK_BYTES`].
    Audio(Bytes),
    EndSpeech,
}

/// The media side of a stream.
struct HostedStream {
    commands: mpsc::Sender<Command>,
    /// Tells the task that the call has started.
    call_start: Option<oneshot::Sender<()>>,
    /// Samples of a chunk that is not full.
    buffer: BytesMut,
    in_speech: bool,
    dropped_bytes: usize,
}

impl HostedStream {
    fn send(&mut self, command: Command) {
        match self.commands.try_send(command) {
            // The task ends only with the stream, or by a panic, which is logged.
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(_)) => tracing::error!("the queue of a hosted STT is full"),
        }
    }

    /// Sends the samples so far.
    fn send_chunk(&mut self) {
        let chunk = self.buffer.split().freeze();
        if chunk.is_empty() {
            return;
        }
        if self.commands.capacity() <= RESERVED_COMMANDS {
            self.dropped_bytes += chunk.len();
            return;
        }
        self.send(Command::Audio(chunk));
    }
}

impl SttStream for HostedStream {
    fn start_call(&mut self) {
        if let Some(call_start) = self.call_start.take() {
            // The task may have ended.
            let _ = call_start.send(());
        }
    }

    fn start_speech(&mut self) {
        // Two starts without an end between them: no word is lost.
        self.end_speech();
        self.in_speech = true;
        self.dropped_bytes = 0;
        self.send(Command::StartSpeech);
    }

    fn push_audio(&mut self, pcm: &[i16]) {
        if !self.in_speech {
            return;
        }
        let mut rest = pcm;
        while !rest.is_empty() {
            if self.buffer.capacity() < CHUNK_BYTES {
                // The chunks of a block share its memory. A block is used again if no chunk of it
                // is left.
                self.buffer.reserve(BLOCK_BYTES);
            }
            let room = (CHUNK_BYTES - self.buffer.len()) / 2;
            let (now, later) = rest.split_at(room.min(rest.len()));
            let start = self.buffer.len();
            self.buffer.resize(start + 2 * now.len(), 0);
            let (bytes, _) = self.buffer[start..].as_chunks_mut::<2>();
            bytes.iter_mut().zip(now).for_each(|(pair, sample)| *pair = sample.to_le_bytes());
            rest = later;
            if self.buffer.len() >= CHUNK_BYTES {
                self.send_chunk();
            }
        }
    }

    fn end_speech(&mut self) {
        if std::mem::take(&mut self.in_speech) {
            self.send_chunk();
            if self.dropped_bytes > 0 {
                let seconds = duration_of(self.dropped_bytes).as_secs_f64();
                tracing::warn!(seconds, "a hosted STT is too slow: audio was dropped");
            }
            self.send(Command::EndSpeech);
        }
    }

    fn reports_usage(&self) -> bool {
        true
    }
}
