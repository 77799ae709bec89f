//! The task of a stream: connects, sends the audio, receives transcripts, reconnects.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use egress::websocket::{Message, WebSocket};
use tokio::sync::{mpsc, oneshot};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument as _;

use super::speech_buffer::SpeechBuffer;
use super::{Codec, Command, Endpoint, Outgoing, Output, fallback};
use crate::hosted::connection::{self, PING_INTERVAL, SEND_TIMEOUT, wait_until};
use crate::hosted::failure::Failure;
use crate::stt::{Event, Stt};
use crate::{Error, Sink};

/// Time to connect while no audio waits.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The same while audio waits for a transcript.
const URGENT_CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Connections that fail, or end within [`STABLE_AFTER`], before the stream counts as failed.
const MAX_ATTEMPTS: u32 = 4;
/// Duration after which a connection counts as stable.
const STABLE_AFTER: Duration = Duration::from_secs(5);
/// Delay before the third attempt; it doubles with each further one. The second follows at once.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// Maximum delay that a vendor may request (`Retry-After`) before the stream counts as failed.
const MAX_REQUESTED_DELAY: Duration = Duration::from_secs(3);
/// Interval of keep-alive messages while no audio is sent.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// First and maximum pause between attempts after the stream has failed without a fallback.
const FAILED_PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));

/// The media side has dropped the stream.
struct Dropped;

/// State of the task.
pub(super) struct Session<C> {
    endpoint: Arc<Endpoint>,
    codec: C,
    commands: mpsc::Receiver<Command>,
    call_started: oneshot::Receiver<()>,
    sink: Sink<Event>,
    fallback: Option<Arc<dyn Stt>>,
    buffer: SpeechBuffer,
    /// Successive connections that failed or did not become stable.
    attempts: u32,
    /// A failure was reported, and no recovery yet.
    has_failed: bool,
    outputs: Vec<Output>,
}

impl<C: Codec> Session<C> {
    pub(super) fn new(
        endpoint: Arc<Endpoint>,
        codec: C,
        commands: mpsc::Receiver<Command>,
        call_started: oneshot::Receiver<()>,
        sink: Sink<Event>,
        fallback: Option<Arc<dyn Stt>>,
    ) -> Self {
        Self {
            endpoint,
            codec,
            commands,
            call_started,
            sink,
            fallback,
            buffer: SpeechBuffer::default(),
            attempts: 0,
            has_failed: false,
            outputs: Vec::new(),
        }
    }

    /// Serves the stream until the media side drops it.
    pub(super) fn run(self) -> impl Future<Output = ()> + Send {
        self.serve().in_current_span()
    }

    async fn serve(mut self) {
        let mut pause = FAILED_PAUSE.0;
        loop {
            let failure = match self.serve_hosted().await {
                Ok(Dropped) => return,
                Err(failure) => failure,
            };
            let statistics = self.codec.statistics();
            let Failure { error, retry_after, .. } = failure;
            tracing::warn!(%error, statistics, "a hosted STT failed");
            if let Some(fallback) = self.fallback.take() {
                match fallback.open(self.sink.clone()) {
                    Ok(stream) => {
                        let text = format!("{error}; the built-in STT is used instead.");
                        let warning = fallback::warn(text, self.call_started, self.sink);
                        return fallback::serve(stream, self.buffer, self.commands, warning).await;
                    }
                    Err(error) => tracing::warn!(%error, "the built-in STT cannot replace it"),
                }
            }
            let retry_at = retry_after.map(|after| Instant::now() + after.max(pause));
            if self.wait_failed(error, retry_at).await.is_err() {
                return;
            }
            self.attempts = 0;
            pause = (pause * 2).min(FAILED_PAUSE.1);
        }
    }

    /// Reports the failure, now and for each utterance that ends until `retry_at`; `None` = never.
    async fn wait_failed(
        &mut self,
        error: Error,
        retry_at: Option<Instant>,
    ) -> Result<(), Dropped> {
        let (kind, message) = (error.kind(), error.to_string());
        self.has_failed = true;
        self.buffer.drop_ended(Instant::now());
        self.sink.send(Event::Failed(error));
        loop {
            tokio::select! {
                command = self.commands.recv() => {
                    let Some(command) = command else { return Err(Dropped) };
                    let now = Instant::now();
                    self.buffer.push(now, &command);
                    if command == Command::EndSpeech {
                        self.buffer.drop_ended(now);
                        self.sink.send(Event::Failed(Error::new(kind, message.clone())));
                    }
                }
                () = wait_until(retry_at) => return Ok(()),
            }
        }
    }

    /// Connects and streams until the media side drops the stream, or it fails for good.
    async fn serve_hosted(&mut self) -> Result<Dropped, Failure> {
        loop {
            let Some(mut socket) = self.connect().await? else { return Ok(Dropped) };
            let connected_at = Instant::now();
            match self.stream(&mut socket).await {
                Ok(Dropped) => {
                    close(&self.endpoint, socket, self.codec.close_stream()).await;
                    tracing::debug!(statistics = self.codec.statistics(), "a hosted STT is closed");
                    return Ok(Dropped);
                }
                Err(failure) => {
                    tracing::info!(error = %failure.error, "a hosted STT is reconnected");
                    if connected_at.elapsed() >= STABLE_AFTER {
                        self.attempts = 0;
                    }
                    self.note_failure(failure)?;
                }
            }
        }
    }

    /// Counts a failure, and returns it if no further attempt shall follow.
    fn note_failure(&mut self, failure: Failure) -> Result<(), Failure> {
        self.attempts += 1;
        let retry_soon = self.attempts < MAX_ATTEMPTS && !failure.is_urgent;
        match failure.retry_after {
            Some(after) if retry_soon && after <= MAX_REQUESTED_DELAY => Ok(()),
            _ => Err(failure),
        }
    }

    /// Delay before the next attempt.
    fn delay(&self) -> Duration {
        match self.attempts {
            0 | 1 => Duration::ZERO,
            n => {
                let delay = FIRST_DELAY * 2_u32.pow(n - 2);
                // Streams that failed together do not return together.
                delay.mul_f64(1.0 + jitter() / 4.0)
            }
        }
    }

    /// Opens a connection, with several attempts. Collects the commands meanwhile. `None` if the
    /// media side drops the stream.
    async fn connect(&mut self) -> Result<Option<WebSocket>, Failure> {
        let start = Instant::now();
        let mut requested_delay = Duration::ZERO;
        loop {
            let next_attempt = Instant::now() + self.delay().max(requested_delay);
            let endpoint = Arc::clone(&self.endpoint);
            let attempt = async move {
                sleep_until(next_attempt).await;
                connection::open(&endpoint, CONNECT_TIMEOUT).await
            };
            tokio::pin!(attempt);
            let result = loop {
                let urgent = self.buffer.filled_since().map(|since| since.max(start));
                let deadline = urgent.map_or(start + CONNECT_TIMEOUT, |since| {
                    (since + URGENT_CONNECT_TIMEOUT).min(start + CONNECT_TIMEOUT)
                });
                tokio::select! {
                    biased;
                    result = &mut attempt => break result,
                    () = sleep_until(deadline) => {
                        let what = "does not accept a connection in time";
                        return Err(Failure::timeout(&self.endpoint, what));
                    }
                    command = self.commands.recv() => match command {
                        Some(command) => self.buffer.push(Instant::now(), &command),
                        None => return Ok(None),
                    },
                }
            };
            match result {
                Ok(socket) => return Ok(Some(socket)),
                Err(failure) => {
                    requested_delay = failure.retry_after.unwrap_or_default();
                    self.note_failure(failure)?;
                }
            }
        }
    }

    /// Serves a connection until the media side drops the stream, or the connection fails.
    async fn stream(&mut self, socket: &mut WebSocket) -> Result<Dropped, Failure> {
        self.codec.reset();
        for message in self.replay() {
            send(&self.endpoint, socket, message).await?;
        }
        let mut keep_alive_at = Instant::now() + KEEP_ALIVE_INTERVAL;
        let mut ping_at = Instant::now() + PING_INTERVAL;
        loop {
            tokio::select! {
                command = self.commands.recv() => {
                    let Some(command) = command else { return Ok(Dropped) };
                    let now = Instant::now();
                    self.buffer.push(now, &command);
                    if let Some(message) = encode(&mut self.codec, now, command) {
                        send(&self.endpoint, socket, message).await?;
                        keep_alive_at = Instant::now() + KEEP_ALIVE_INTERVAL;
                    }
                }
                received = socket.receive() => {
                    self.receive(received)?;
                }
                () = wait_until(self.codec.deadline()) => {
                    self.codec.expire(Instant::now(), &mut self.outputs);
                }
                () = sleep_until(keep_alive_at) => {
                    keep_alive_at = Instant::now() + KEEP_ALIVE_INTERVAL;
                    if let Some(message) = self.codec.keep_alive() {
                        send(&self.endpoint, socket, message).await?;
                    }
                }
                () = sleep_until(ping_at) => {
                    ping_at = Instant::now() + PING_INTERVAL;
                    let sent = timeout(SEND_TIMEOUT, socket.ping()).await;
                    check_sent(&self.endpoint, sent)?;
                }
            }
            self.emit_outputs()?;
        }
    }

    /// The messages for the utterances that have no final transcript.
    fn replay(&mut self) -> Vec<Outgoing> {
        let now = Instant::now();
        let codec = &mut self.codec;
        let mut messages = Vec::new();
        for speech in self.buffer.utterances() {
            messages.extend(encode(codec, now, Command::StartSpeech));
            for chunk in &speech.audio {
                messages.extend(encode(codec, now, Command::Audio(chunk.clone())));
            }
            if speech.ended {
                messages.extend(encode(codec, now, Command::EndSpeech));
            }
        }
        messages
    }

    /// Handles what the connection delivered.
    fn receive(&mut self, received: Result<Option<Message>, egress::Error>) -> Result<(), Failure> {
        match received {
            Ok(Some(Message::Text(text))) => {
                self.codec.receive(Instant::now(), &text, &mut self.outputs);
                Ok(())
            }
            // No vendor of this module sends binary messages.
            Ok(Some(Message::Binary(_))) => Ok(()),
            Ok(Some(Message::Close { code, reason })) => {
                Err(Failure::from_close(&self.endpoint, code, &reason))
            }
            Ok(None) => Err(Failure::from_close(&self.endpoint, 1006, "")),
            Err(error) => Err(Failure::from_transport(&self.endpoint, &error)),
        }
    }

    /// Sends the events that the codec has produced.
    fn emit_outputs(&mut self) -> Result<(), Failure> {
        if self.has_failed && self.codec.has_answered() {
            self.has_failed = false;
            self.sink.send(Event::Recovered);
        }
        for output in self.outputs.drain(..) {
            match output {
                Output::Interim(text) => self.sink.send(Event::Interim(text)),
                Output::Final(text) => {
                    self.buffer.pop(Instant::now());
                    self.sink.send(Event::Final(text));
                }
                Output::Stalled => {
                    let what = "accepts the audio, but sends no transcript";
                    let mut failure = Failure::timeout(&self.endpoint, what);
                    // A connection that has worked may be broken. One that has not may be accepted
                    // by a server that does not work, and the user waits.
                    failure.is_urgent = !self.codec.has_answered();
                    return Err(failure);
                }
            }
        }
        Ok(())
    }
}

/// Ends the stream politely, with the vendor's own message if it has one.
async fn close(endpoint: &Endpoint, socket: WebSocket, close_stream: Option<Outgoing>) {
    connection::close(socket, async |socket| send(endpoint, socket, close_stream?).await.ok())
        .await;
}

async fn send(
    endpoint: &Endpoint,
    socket: &mut WebSocket,
    message: Outgoing,
) -> Result<(), Failure> {
    let sent = match message {
        Outgoing::Text(text) => timeout(SEND_TIMEOUT, socket.send_text(text)).await,
        Outgoing::Binary(bytes) => timeout(SEND_TIMEOUT, socket.send_binary(bytes)).await,
    };
    check_sent(endpoint, sent)
}

fn check_sent(
    endpoint: &Endpoint,
    sent: Result<Result<(), egress::Error>, Elapsed>,
) -> Result<(), Failure> {
    connection::check_sent(endpoint, sent, "does not read the audio")
}

/// The message for a command.
fn encode(codec: &mut impl Codec, now: Instant, command: Command) -> Option<Outgoing> {
    match command {
        Command::StartSpeech => {
            codec.start_speech(now);
            None
        }
        Command::Audio(chunk) => Some(codec.push_audio(now, chunk)),
        Command::EndSpeech => Some(codec.end_speech(now)),
    }
}

/// A random number in 0..1. Each hasher of the standard library has random keys.
fn jitter() -> f64 {
    (RandomState::new().build_hasher().finish() % 1_000) as f64 / 1_000.0
}
