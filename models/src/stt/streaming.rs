//! Hosted STT over a WebSocket: what all vendors share. A vendor is a [`Codec`].
//!
//! ```text
//! media thread ──commands──► task of the stream ──► codec ──► WebSocket
//!                              │  speech buffer        │
//!                              └──► fallback STT       └──► events
//! ```
//!
//! - The media side cuts the audio into chunks and puts them into a bounded channel. It never
//!   waits.
//! - One task per stream connects, sends, receives, and closes ([`session`]). It connects when the
//!   stream is opened, that is after the client of the call has connected.
//! - The audio of each utterance is stored until its final transcript ([`speech_buffer`]). After a
//!   reconnect it is sent again.
//! - A failure that a retry cannot repair ([`crate::hosted::failure`]) hands the call over to the fallback STT,
//!   with the audio of the current utterance ([`fallback`]).

mod fallback;
mod session;
mod speech_buffer;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::runtime::Handle as Runtime;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use self::session::Session;
use super::{Event, Stt, SttStream};
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

/// A message to the vendor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outgoing {
    Text(&'static str),
    Binary(Bytes),
}

/// What a message of the vendor, or a deadline, leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Transcript of the oldest utterance so far.
    Interim(String),
    /// Transcript of the oldest utterance, which has ended.
    Final(String),
    /// The vendor accepts audio, but sends nothing.
    Stalled,
}

/// The protocol of a vendor, for one connection at a time. It performs no I/O and reads no clock.
/// Utterances are transcribed in order, and each that has ended gets one [`Output::Final`].
pub(super) trait Codec: Send + 'static {
    /// A new connection is open: the utterances of the previous one are forgotten.
    fn reset(&mut self);
    /// An utterance begins.
    fn start_speech(&mut self, now: Instant);
    /// The message for the next audio of the utterance: at most [`CHUNK_BYTES`], never none.
    fn push_audio(&mut self, now: Instant, pcm: Bytes) -> Outgoing;
    /// The message that requests the final transcript.
    fn end_speech(&mut self, now: Instant) -> Outgoing;
    /// The message that keeps a connection without audio open, if the vendor has one.
    fn keep_alive(&self) -> Option<Outgoing>;
    /// The message that ends a stream, if the vendor has one.
    fn close_stream(&self) -> Option<Outgoing>;
    /// Reads a text message.
    fn receive(&mut self, now: Instant, text: &str, outputs: &mut Vec<Output>);
    /// When [`Codec::expire`] is due.
    fn deadline(&self) -> Option<Instant>;
    /// Handles the deadlines that are over.
    fn expire(&mut self, now: Instant, outputs: &mut Vec<Output>);
    /// Whether the current connection has sent a transcript, perhaps an empty one.
    fn has_answered(&self) -> bool;
    /// For the log: the vendor's id of the stream, and numbers of unusual messages.
    fn statistics(&self) -> String;
}

/// An STT that opens a connection per stream.
pub(super) struct HostedStt<F> {
    endpoint: Arc<Endpoint>,
    make_codec: F,
    fallback: Option<Arc<dyn Stt>>,
    runtime: Runtime,
}

impl<C: Codec, F: Fn() -> C + Send + Sync> HostedStt<F> {
    /// An STT at `endpoint` whose tasks run on `runtime`. `fallback` serves the rest of a call in
    /// which it fails.
    pub(super) fn new(
        endpoint: Endpoint,
        make_codec: F,
        fallback: Option<Arc<dyn Stt>>,
        runtime: Runtime,
    ) -> Self {
        Self { endpoint: Arc::new(endpoint), make_codec, fallback, runtime }
    }
}

impl<C: Codec, F: Fn() -> C + Send + Sync> Stt for HostedStt<F> {
    fn open(&self, sink: Sink<Event>) -> Result<Box<dyn SttStream>, Error> {
        let (commands, receiver) = mpsc::channel(MAX_QUEUED_COMMANDS);
        let (call_start, call_started) = oneshot::channel();
        let session = Session::new(
            Arc::clone(&self.endpoint),
            (self.make_codec)(),
            receiver,
            call_started,
            sink,
            self.fallback.clone(),
        );
        self.runtime.spawn(session.run());
        Ok(Box::new(HostedStream {
            commands,
            call_start: Some(call_start),
            buffer: BytesMut::new(),
            in_speech: false,
            dropped_bytes: 0,
        }))
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
}
