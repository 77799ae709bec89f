//! The task of a call: connects, sends the text, receives the sound, cancels, reconnects.
//!
//! One context of the vendor is spoken at a time. The segments of another reply wait in the queue
//! until it is idle.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use egress::websocket::{Message, WebSocket};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument as _;

use super::Timeouts;
use super::codec::{Codec, Incoming, Output, Text};
use super::context::{Context, Fault, Segment};
use crate::hosted::Endpoint;
use crate::hosted::connection::{self, ConnectedTime, PING_INTERVAL, SEND_TIMEOUT, wait_until};
use crate::hosted::failure::Failure;
use crate::tts::{Event, Request};
use crate::{Error, ErrorKind, Sink};

/// Time to connect while no segment waits.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Duration after which a connection that ends while it is idle is replaced at once.
const STABLE_AFTER: Duration = Duration::from_secs(5);
/// Time without a segment after which the context of a reply is closed.
const CONTEXT_IDLE: Duration = Duration::from_secs(5);

/// From the call to the task.
pub(super) enum Command {
    /// Speaks a segment that was requested at this time.
    Speak { id: u64, request: Box<Request>, sink: Sink<Event>, at: Instant },
    /// Cancels the segment with this id.
    Cancel(u64),
    /// Cancels the reply with this number.
    CancelReply(u64),
}

/// Why a connection is no longer served.
enum End {
    /// The call has ended.
    Dropped,
    /// Another connection is needed.
    Replace,
}

/// State of the task.
pub(super) struct Session<C> {
    endpoint: Endpoint,
    codec: C,
    timeouts: Timeouts,
    commands: mpsc::UnboundedReceiver<Command>,
    /// Segments that were not sent.
    queue: VecDeque<Segment>,
    context: Option<Context>,
    /// Voice and language of a connection that is opened while no segment waits: those of the
    /// latest segment, or of the call.
    voice: (String, Option<String>),
    has_marks: bool,
    /// Whether the current connection has delivered sound: its voice and its key are valid.
    has_served: bool,
    /// The failure that no attempt can repair.
    refused: Option<(ErrorKind, String)>,
    outputs: Vec<Output>,
    messages: Vec<String>,
    connected: Arc<ConnectedTime>,
}

impl<C: Codec> Session<C> {
    pub(super) fn new(
        endpoint: Endpoint,
        codec: C,
        timeouts: Timeouts,
        commands: mpsc::UnboundedReceiver<Command>,
        like: &Request,
    ) -> Self {
        Self {
            endpoint,
            codec,
            timeouts,
            commands,
            queue: VecDeque::new(),
            context: None,
            voice: (like.voice.clone(), like.language.clone()),
            has_marks: false,
            has_served: false,
            refused: None,
            outputs: Vec::new(),
            messages: Vec::new(),
            connected: Arc::default(),
        }
    }

    /// The duration of the connections, which continues to rise.
    pub(super) fn connected(&self) -> Arc<ConnectedTime> {
        Arc::clone(&self.connected)
    }

    /// Serves the call until it ends.
    pub(super) fn run(self) -> impl Future<Output = ()> + Send {
        self.serve().in_current_span()
    }

    async fn serve(mut self) {
        loop {
            let mut socket = match self.connect().await {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(failure) if self.codec.omit_refused(&failure.words) => continue,
                Err(failure) => {
                    self.fail(failure);
                    match self.wait_for_segment().await {
                        Some(()) => continue,
                        None => return,
                    }
                }
            };
            let connected_at = Instant::now();
            let goodbye = self.codec.goodbye();
            self.connected.start(connected_at);
            let ended = self.stream(&mut socket).await;
            self.connected.stop(Instant::now());
            match ended {
                Ok(End::Dropped) => return close(socket, goodbye).await,
                Ok(End::Replace) => drop(tokio::spawn(close(socket, goodbye))),
                Err(failure) => {
                    let is_stable = connected_at.elapsed() >= STABLE_AFTER;
                    tracing::info!(error = %failure.error, "a connection to a hosted TTS ended");
                    if self.codec.omit_refused(&failure.words) {
                        drop(self.requeue());
                        continue;
                    }
                    self.on_connection_failed(failure);
                    let waits = self.refused.is_some() || (self.queue.is_empty() && !is_stable);
                    if waits && self.wait_for_segment().await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Opens a connection. Collects the commands meanwhile. `None` if the call ends.
    async fn connect(&mut self) -> Result<Option<WebSocket>, Failure> {
        let start = Instant::now();
        self.endpoint.url = self.url_of(self.queue.front());
        let endpoint = self.endpoint.clone();
        let attempt = connection::open(&endpoint, CONNECT_TIMEOUT);
        tokio::pin!(attempt);
        loop {
            let urgent = self.queue.front().map(|segment| segment.queued_at.max(start));
            let deadline = urgent.map_or(start + CONNECT_TIMEOUT, |since| {
                (since + self.timeouts.connect).min(start + CONNECT_TIMEOUT)
            });
            tokio::select! {
                biased;
                result = &mut attempt => return result.map(Some),
                () = sleep_until(deadline) => {
                    let what = "does not accept a connection in time";
                    return Err(Failure::timeout(&endpoint, what));
                }
                command = self.commands.recv() => match command {
                    Some(command) => self.on_command(command),
                    None => return Ok(None),
                },
            }
        }
    }

    fn url_of(&self, segment: Option<&Segment>) -> String {
        let (voice, language) = segment
            .map_or((&self.voice.0, &self.voice.1), |segment| (&segment.voice, &segment.language));
        self.codec.url(voice, language.as_deref())
    }

    /// Waits for a segment that can be tried; `None` if the call ends.
    async fn wait_for_segment(&mut self) -> Option<()> {
        loop {
            if let Some((kind, message)) = &self.refused {
                for segment in self.queue.drain(..) {
                    segment.send(Event::Failed(Error::new(*kind, message.clone())));
                }
            }
            if !self.queue.is_empty() {
                return Some(());
            }
            let command = self.commands.recv().await?;
            self.on_command(command);
        }
    }

    /// Serves a connection until the call ends, or the connection fails.
    async fn stream(&mut self, socket: &mut WebSocket) -> Result<End, Failure> {
        self.codec.reset();
        self.has_served = false;
        // What was meant for the previous connection.
        self.messages.clear();
        let mut busy_at = Instant::now();
        let mut sent_at = busy_at;
        let mut ping_at = busy_at + PING_INTERVAL;
        let keep_alive = self.codec.keep_alive();
        loop {
            // Here, so that a vendor that never stops sending does not prevent it.
            self.expire()?;
            if self.start_segments() {
                return Ok(End::Replace);
            }
            if self.context.as_ref().is_some_and(|context| !context.is_idle()) {
                busy_at = Instant::now();
            }
            if !self.messages.is_empty() {
                sent_at = Instant::now();
                for message in std::mem::take(&mut self.messages) {
                    send(&self.endpoint, socket, message).await?;
                }
            }
            let context_idle = self.context.as_ref().filter(|context| context.is_idle());
            let close_at = context_idle.map(|context| context.last_activity() + CONTEXT_IDLE);
            let context_deadline =
                self.context.as_ref().and_then(|context| context.deadline(&self.timeouts));
            let ready_at = self.codec.ready_at().filter(|at| *at > Instant::now());
            let replace_at = self.codec.max_idle().map(|idle| busy_at + idle);
            tokio::select! {
                biased;
                command = self.commands.recv() => {
                    let Some(command) = command else { return Ok(End::Dropped) };
                    self.on_command(command);
                    // A reply is cancelled segment by segment.
                    while let Ok(command) = self.commands.try_recv() {
                        self.on_command(command);
                    }
                    self.cancel_context();
                }
                received = socket.receive() => {
                    self.receive(received)?;
                    self.apply_outputs()?;
                }
                () = wait_until(context_deadline) => {}
                () = wait_until(close_at) => {
                    self.context = None;
                    self.codec.close_context(&mut self.messages);
                }
                () = wait_until(ready_at) => {}
                () = wait_until(replace_at) => return Ok(End::Replace),
                () = wait_until(keep_alive.map(|(interval, _)| sent_at + interval)) => {
                    self.messages.extend(keep_alive.map(|(_, message)| message.to_owned()));
                }
                () = sleep_until(ping_at) => {
                    ping_at = Instant::now() + PING_INTERVAL;
                    let sent = timeout(SEND_TIMEOUT, socket.ping()).await;
                    connection::check_sent(&self.endpoint, sent, "does not read the text")?;
                }
            }
        }
    }

    /// Handles the deadline of the context if it is over.
    fn expire(&mut self) -> Result<(), Failure> {
        match &mut self.context {
            Some(context) => {
                let expired = context.expire(Instant::now(), &self.timeouts);
                expired.map_err(|fault| self.fault(fault))
            }
            None => Ok(()),
        }
    }

    /// Sends the queued segments whose turn it is. Returns true if they need another connection.
    fn start_segments(&mut self) -> bool {
        let now = Instant::now();
        while let Some(next) = self.queue.front() {
            let is_same_connection = self.url_of(Some(next)) == self.endpoint.url;
            let lifetime = self.codec.context_lifetime();
            let current = self.context.as_ref().filter(|context| {
                context.reply == next.reply
                    && is_same_connection
                    && !lifetime.is_some_and(|lifetime| context.is_expired(now, lifetime))
            });
            let starts = current.is_none();
            if starts {
                if self.context.as_ref().is_some_and(|context| !context.is_idle()) {
                    return false;
                }
                if self.context.take().is_some() {
                    self.codec.close_context(&mut self.messages);
                }
                if !is_same_connection || self.codec.is_full() {
                    // The old connection is closed with its contexts.
                    self.messages.clear();
                    return true;
                }
            }
            if self.codec.ready_at().is_some_and(|ready_at| ready_at > now) {
                return false;
            }
            let Some(segment) = self.queue.pop_front() else { return false };
            let text = Text {
                text: segment.text.sent(),
                voice: &segment.voice,
                language: segment.language.as_deref(),
            };
            self.codec.speak(now, &text, starts, &mut self.messages);
            let characters = segment.text.sent().chars().count();
            let characters = u32::try_from(characters).unwrap_or(u32::MAX);
            segment.send(Event::Usage { provider: "", characters });
            let has_marks = self.has_marks;
            self.context
                .get_or_insert_with(|| Context::new(now, segment.reply, has_marks))
                .push(now, segment);
        }
        false
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Speak { id, request, sink, at } => {
                self.voice = (request.voice.clone(), request.language.clone());
                let segment = Segment::new(id, *request, sink, at);
                if segment.text.is_silent() {
                    segment.send(Event::End);
                } else {
                    self.queue.push_back(segment);
                }
            }
            Command::Cancel(id) => {
                self.queue.retain(|segment| segment.id != id);
                if let Some(context) = &mut self.context {
                    context.cancel(id);
                }
            }
            Command::CancelReply(reply) => {
                self.queue.retain(|segment| segment.reply != reply);
                if let Some(context) = self.context.take_if(|context| context.reply == reply) {
                    if context.is_idle() {
                        self.codec.close_context(&mut self.messages);
                    } else {
                        self.codec.cancel(&mut self.messages);
                    }
                }
            }
        }
    }

    /// Cancels the context at the vendor if all of its segments were cancelled.
    fn cancel_context(&mut self) {
        if self.context.as_ref().is_some_and(Context::is_cancelled) {
            self.context = None;
            self.codec.cancel(&mut self.messages);
        }
    }

    /// Handles what the connection delivered.
    fn receive(&mut self, received: Result<Option<Message>, egress::Error>) -> Result<(), Failure> {
        let outputs = &mut self.outputs;
        match received {
            Ok(Some(Message::Text(text))) => self.codec.receive(&Incoming::Text(&text), outputs),
            Ok(Some(Message::Binary(bytes))) => {
                self.codec.receive(&Incoming::Binary(&bytes), outputs);
            }
            Ok(Some(Message::Close { code, reason })) => {
                return Err(Failure::from_close(&self.endpoint, code, &reason));
            }
            Ok(None) => return Err(Failure::from_close(&self.endpoint, 1006, "")),
            Err(error) => return Err(Failure::from_transport(&self.endpoint, &error)),
        }
        Ok(())
    }

    fn apply_outputs(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        for output in std::mem::take(&mut self.outputs) {
            // Nothing of a context that was cancelled is delivered.
            let Some(context) = &mut self.context else {
                match output {
                    Output::Closing(code, reason) => {
                        return Err(Failure::from_close(&self.endpoint, code, &reason));
                    }
                    _ => continue,
                }
            };
            match output {
                Output::Samples(pcm) => {
                    self.has_served = true;
                    context.push_samples(now, pcm).map_err(|fault| self.fault(fault))?;
                }
                Output::Words(words) => context.push_words(&words),
                Output::Mark => {
                    context.mark(now);
                    self.has_marks = context.has_marks();
                }
                Output::End => {
                    context.end_sounding(now);
                    let repeated = self.requeue();
                    self.fail_segments(repeated, &self.error("gave no sound for a text"));
                }
                Output::Refused(refusal) => {
                    let failure = Failure::from_refusal(&self.endpoint, &refusal);
                    let segments = self.context.take().map(Context::into_segments);
                    self.fail_segments(segments.unwrap_or_default(), &failure.error);
                }
                Output::Closing(code, reason) => {
                    return Err(Failure::from_close(&self.endpoint, code, &reason));
                }
            }
        }
        Ok(())
    }

    fn error(&self, what: &str) -> Error {
        Error::new(ErrorKind::Failed, format!("{} {what}", self.endpoint.vendor))
    }

    fn fault(&self, fault: Fault) -> Failure {
        match fault {
            Fault::Silent => Failure::timeout(&self.endpoint, "gave no sound in time"),
            Fault::Stopped => {
                Failure::timeout(&self.endpoint, "stopped in the middle of the speech")
            }
            Fault::Endless => Failure::endless(&self.endpoint),
        }
    }

    /// Puts the segments of the context back into the queue, if none of them has sounded. Returns
    /// those for which that was done before.
    fn requeue(&mut self) -> VecDeque<Segment> {
        let Some(context) = self.context.take() else { return VecDeque::new() };
        if context.has_sound() {
            return context.into_segments();
        }
        let segments = context.into_segments().into_iter();
        let (repeated, fresh): (VecDeque<_>, VecDeque<_>) = segments
            .filter(|segment| segment.sink.is_some())
            .partition(|segment| segment.was_repeated);
        for mut segment in fresh.into_iter().rev() {
            segment.was_repeated = true;
            segment.queued_at = Instant::now();
            self.queue.push_front(segment);
        }
        repeated
    }

    /// The connection ended. The segments of which nothing was heard go over the next one.
    fn on_connection_failed(&mut self, failure: Failure) {
        let may_repeat = failure.error.kind() == ErrorKind::Failed
            && failure.retry_after.is_some_and(|after| after.is_zero());
        if may_repeat {
            let failed = self.requeue();
            self.fail_segments(failed, &failure.error);
        } else {
            self.fail(failure);
        }
    }

    /// Fails all segments.
    fn fail(&mut self, failure: Failure) {
        let mut segments = self.context.take().map(Context::into_segments).unwrap_or_default();
        segments.append(&mut self.queue);
        self.fail_segments(segments, &failure.error);
        if failure.retry_after.is_none() && !self.has_served {
            self.refused = Some((failure.error.kind(), failure.error.to_string()));
        }
    }

    fn fail_segments(&self, segments: VecDeque<Segment>, error: &Error) {
        if !segments.is_empty() {
            tracing::warn!(%error, "a hosted TTS failed");
        }
        for segment in segments {
            segment.send(Event::Failed(Error::new(error.kind(), error.to_string())));
        }
    }
}

async fn send(endpoint: &Endpoint, socket: &mut WebSocket, message: String) -> Result<(), Failure> {
    let sent = timeout(SEND_TIMEOUT, socket.send_text(message)).await;
    connection::check_sent(endpoint, sent, "does not read the text")
}

/// Closes a connection politely, with the vendor's own message if it has one.
async fn close(socket: WebSocket, goodbye: Option<&'static str>) {
    connection::close(socket, async |socket| socket.send_text(goodbye?).await.ok()).await;
}
