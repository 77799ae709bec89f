//! A stream over a WebSocket: connects, sends the audio, receives transcripts, reconnects.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use egress::websocket::{Message, WebSocket};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep_until, timeout};

use super::call::{Call, Dropped, Transport};
use super::pacing::Backlog;
use super::utterances::MAX_TEXT_BYTES;
use super::{Codec, Command, Endpoint, Outgoing, Output};
use crate::hosted::connection::{self, PING_INTERVAL, SEND_TIMEOUT, wait_until};
use crate::hosted::failure::Failure;
use crate::stt::Event;

/// Minimum time to connect while no audio waits. [`Timeouts::connect`] is the limit otherwise.
///
/// [`Timeouts::connect`]: super::Timeouts::connect
const IDLE_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that fail, or end within [`STABLE_AFTER`], before the stream counts as failed.
const MAX_ATTEMPTS: u32 = 4;
/// Duration after which a connection counts as stable.
const STABLE_AFTER: Duration = Duration::from_secs(5);
/// Delay before the third attempt; it doubles with each further one. The second follows at once.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// Maximum delay that a vendor may request (`Retry-After`) before the stream counts as failed.
pub(in crate::stt) const MAX_REQUESTED_DELAY: Duration = Duration::from_secs(3);
/// Why a connection is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The media side has dropped the stream.
    Dropped,
    /// The connection is old, and no audio waits.
    Renewed,
}

/// The connections of a stream.
pub(super) struct Session<C> {
    codec: C,
    /// Successive connections that failed or did not become stable.
    attempts: u32,
    outputs: Vec<Output>,
    /// What the codec wants to send.
    messages: Vec<Outgoing>,
}

impl<C: Codec> Transport for Session<C> {
    async fn serve(&mut self, call: &mut Call) -> Result<Dropped, Failure> {
        self.attempts = 0;
        self.codec.utterances_mut().set_timeouts(&call.timeouts);
        loop {
            let Some(mut socket) = self.connect(call).await? else { return Ok(Dropped) };
            let connected_at = Instant::now();
            call.meter.connect(connected_at);
            let ended = self.stream(call, &mut socket).await;
            if ended.is_ok() {
                self.messages.clear();
                self.codec.close_stream(&mut self.messages);
                let last = std::mem::take(&mut self.messages);
                close(&call.endpoint, socket, last).await;
            }
            call.meter.disconnect(Instant::now());
            match ended {
                Ok(End::Dropped) => return Ok(Dropped),
                Ok(End::Renewed) => self.attempts = 0,
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

    fn statistics(&self, endpoint: &Endpoint) -> String {
        let id = endpoint.redact_id(self.codec.stream_id());
        format!("{id}, {:?}", self.codec.utterances().counts)
    }
}

impl<C: Codec> Session<C> {
    pub(super) fn new(codec: C) -> Self {
        Self { codec, attempts: 0, outputs: Vec::new(), messages: Vec::new() }
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
    async fn connect(&mut self, call: &mut Call) -> Result<Option<WebSocket>, Failure> {
        let start = Instant::now();
        let urgent_limit = call.timeouts.connect;
        let limit = IDLE_CONNECT_TIMEOUT.max(urgent_limit);
        let mut requested_delay = Duration::ZERO;
        loop {
            let next_attempt = Instant::now() + self.delay().max(requested_delay);
            let endpoint = Arc::clone(&call.endpoint);
            let attempt = async move {
                sleep_until(next_attempt).await;
                connection::open(&endpoint, limit).await
            };
            tokio::pin!(attempt);
            let result = loop {
                let urgent = call.buffer.filled_since().map(|since| since.max(start));
                let deadline =
                    urgent.map_or(start + limit, |since| (since + urgent_limit).min(start + limit));
                tokio::select! {
                    biased;
                    result = &mut attempt => break result,
                    () = sleep_until(deadline) => {
                        let what = "does not accept a connection in time";
                        return Err(Failure::timeout(&call.endpoint, what));
                    }
                    command = call.commands.recv() => match command {
                        Some(command) => call.buffer.push(Instant::now(), &command),
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

    /// Serves a connection until it shall be closed, or fails.
    async fn stream(&mut self, call: &mut Call, socket: &mut WebSocket) -> Result<End, Failure> {
        let opened_at = Instant::now();
        self.messages.clear();
        self.outputs.clear();
        self.codec.reset(&mut self.messages);
        let mut backlog = Backlog::new(opened_at, C::MAX_SPEED);
        call.buffer.commands().for_each(|command| backlog.push(command));
        let mut sent_at = opened_at;
        let mut ping_at = opened_at + PING_INTERVAL;
        loop {
            let now = Instant::now();
            while let Some(command) = backlog.pop(now) {
                self.encode(call, now, command);
            }
            if !self.messages.is_empty() {
                for message in self.messages.drain(..) {
                    send(&call.endpoint, socket, message).await?;
                }
                sent_at = Instant::now();
            }
            self.emit_outputs(call)?;
            if C::MAX_AGE.is_some_and(|age| opened_at.elapsed() >= age)
                && call.buffer.filled_since().is_none()
            {
                return Ok(End::Renewed);
            }
            tokio::select! {
                command = call.commands.recv() => {
                    let Some(command) = command else { return Ok(End::Dropped) };
                    call.buffer.push(Instant::now(), &command);
                    backlog.push(command);
                }
                received = socket.receive() => self.receive(call, received)?,
                () = wait_until(backlog.ready_at()) => {}
                () = wait_until(self.codec.utterances().deadline()) => {
                    self.codec.expire(Instant::now(), &mut self.outputs);
                }
                () = sleep_until(sent_at + self.codec.keep_alive_interval()) => {
                    sent_at = Instant::now();
                    self.codec.keep_alive(&mut self.messages);
                }
                () = sleep_until(ping_at) => {
                    ping_at = Instant::now() + PING_INTERVAL;
                    let sent = timeout(SEND_TIMEOUT, socket.ping()).await;
                    check_sent(&call.endpoint, sent)?;
                }
                () = wait_until(call.meter.report_at()) => {
                    call.meter.report(Instant::now(), &call.sink);
                }
            }
        }
    }

    /// Adds the messages for a command.
    fn encode(&mut self, call: &mut Call, now: Instant, command: Command) {
        match command {
            Command::StartSpeech => self.codec.utterances_mut().start(now),
            Command::Audio(chunk) => {
                call.meter.add_audio(now, chunk.len());
                self.codec.push_audio(now, chunk, &mut self.messages);
            }
            Command::EndSpeech => self.codec.end_speech(now, &mut self.messages),
        }
    }

    /// Handles what the connection delivered.
    fn receive(
        &mut self,
        call: &Call,
        received: Result<Option<Message>, egress::Error>,
    ) -> Result<(), Failure> {
        match received {
            Ok(Some(Message::Text(text))) => {
                self.codec.receive(Instant::now(), &text, &mut self.outputs);
                Ok(())
            }
            // No vendor of this module sends binary messages.
            Ok(Some(Message::Binary(_))) => Ok(()),
            Ok(Some(Message::Close { code, reason })) => {
                Err(Failure::from_close(&call.endpoint, code, &reason))
            }
            Ok(None) => Err(Failure::from_close(&call.endpoint, 1006, "")),
            Err(error) => Err(Failure::from_transport(&call.endpoint, &error)),
        }
    }

    /// Sends the events that the codec has produced.
    fn emit_outputs(&mut self, call: &mut Call) -> Result<(), Failure> {
        if self.codec.utterances().has_answered {
            call.note_answer();
        }
        for output in self.outputs.drain(..) {
            match output {
                Output::Interim(text) => call.sink.send(Event::Interim(text)),
                Output::Cut => {
                    let vendor = call.endpoint.vendor;
                    call.sink.send(Event::Warning(format!(
                        "{vendor} sent a transcript of more than {} KiB; its end was dropped.",
                        MAX_TEXT_BYTES >> 10
                    )));
                }
                Output::Final(text) => call.finish_utterance(text),
                Output::Turn(hint) => call.sink.send(Event::Turn(hint)),
                Output::Tokens(tokens) => call.meter.add_tokens(Instant::now(), tokens),
                Output::Failed(fault, words) => {
                    return Err(Failure::from_fault(&call.endpoint, fault, &words));
                }
                Output::Stalled => {
                    let utterances = self.codec.utterances();
                    let what = match utterances.misses_answers() && utterances.has_answered {
                        true => "sends no final transcript",
                        false => "accepts the audio, but sends no transcript",
                    };
                    let mut failure = Failure::timeout(&call.endpoint, what);
                    // A connection that has worked may be broken. One that has not may be accepted
                    // by a server that does not work, and the user waits.
                    failure.is_urgent = !utterances.has_answered || utterances.misses_answers();
                    return Err(failure);
                }
            }
        }
        Ok(())
    }
}

/// Ends the stream politely, with the vendor's own messages if it has some.
async fn close(endpoint: &Endpoint, socket: WebSocket, last: Vec<Outgoing>) {
    let say_goodbye = async |socket: &mut WebSocket| {
        let mut last = last.into_iter().peekable();
        last.peek()?;
        for message in last {
            send(endpoint, socket, message).await.ok()?;
        }
        Some(())
    };
    connection::close(socket, say_goodbye).await;
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

/// A random number in 0..1. Each hasher of the standard library has random keys.
fn jitter() -> f64 {
    (RandomState::new().build_hasher().finish() % 1_000) as f64 / 1_000.0
}
