//! The task of a stream: serves the call over a [`Transport`] until it fails for good, then by the
//! fallback STT.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::shadow::Shadows;
use super::speech_buffer::SpeechBuffer;
use super::usage::Meter;
use super::{BYTES_PER_SECOND, Command, Endpoint, Fallback, Timeouts, fallback};
use crate::hosted::connection::wait_until;
use crate::hosted::failure::Failure;
use crate::stt::Event;
use crate::{Error, Sink};

/// First and maximum pause between attempts after the stream has failed without a fallback.
const FAILED_PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));

/// The media side has dropped the stream.
pub(in crate::stt) struct Dropped;

/// How the audio of a call reaches a vendor.
pub(in crate::stt) trait Transport: Send + 'static {
    /// Maximum amount of audio that is stored for an utterance, in bytes.
    const MAX_BUFFERED_BYTES: usize = 30 * BYTES_PER_SECOND;

    /// Serves the call until the media side drops the stream, or the vendor fails for good.
    fn serve(&mut self, call: &mut Call) -> impl Future<Output = Result<Dropped, Failure>> + Send;

    /// For the log: the vendor's id of the stream, and numbers of unusual messages.
    fn statistics(&self, endpoint: &Endpoint) -> String;
}

/// State of a stream that does not depend on the transport.
pub(in crate::stt) struct Call {
    pub(in crate::stt) endpoint: Arc<Endpoint>,
    pub(in crate::stt) timeouts: Timeouts,
    pub(in crate::stt) commands: mpsc::Receiver<Command>,
    pub(in crate::stt) sink: Sink<Event>,
    fallback: Fallback,
    /// The utterances without a final transcript.
    pub(in crate::stt) buffer: SpeechBuffer,
    /// A failure was reported, and no recovery yet.
    has_failed: bool,
    /// The vendor has answered since the last failure.
    has_answered: bool,
    pub(in crate::stt) meter: Meter,
}

impl Call {
    pub(super) fn new(
        endpoint: Arc<Endpoint>,
        timeouts: Timeouts,
        commands: mpsc::Receiver<Command>,
        sink: Sink<Event>,
        fallback: Fallback,
        buffer: SpeechBuffer,
    ) -> Self {
        Self {
            endpoint,
            timeouts,
            commands,
            sink,
            fallback,
            buffer,
            has_failed: false,
            has_answered: false,
            meter: Meter::default(),
        }
    }

    /// Serves the stream until the media side drops it. `shadows` probe the vendor after it has
    /// failed.
    pub(super) fn run<T: Transport, F: Fn() -> T + Send + Sync + 'static>(
        self,
        transport: T,
        call_started: oneshot::Receiver<()>,
        shadows: Shadows<F>,
    ) -> impl Future<Output = ()> + Send {
        self.serve(transport, call_started, shadows).in_current_span()
    }

    async fn serve<T: Transport, F: Fn() -> T + Send + Sync + 'static>(
        mut self,
        mut transport: T,
        call_started: oneshot::Receiver<()>,
        shadows: Shadows<F>,
    ) {
        // `None` if the call is known to have started.
        let mut call_started = Some(call_started);
        let mut pause = FAILED_PAUSE.0;
        loop {
            let served = transport.serve(&mut self).await;
            self.meter.report(Instant::now(), &self.sink);
            let statistics = transport.statistics(&self.endpoint);
            let Failure { error, retry_after, .. } = match served {
                Ok(Dropped) => {
                    if !self.has_answered {
                        self.fallback.note_end();
                    }
                    tracing::debug!(statistics, "a hosted STT is closed");
                    return;
                }
                Err(failure) => failure,
            };
            tracing::warn!(%error, statistics, "a hosted STT failed");
            self.has_answered = false;
            self.fallback.note_failure(&error);
            if self.fallback.is_available() && self.wait_for_start(&mut call_started).await.is_err()
            {
                return;
            }
            if let Some((stream, text)) = self.fallback.open_after(&error, &self.sink) {
                let warning = fallback::warn(text, call_started, self.sink);
                return fallback::serve(stream, self.buffer, self.commands, warning, shadows).await;
            }
            let retry_at = retry_after.map(|after| Instant::now() + after.max(pause));
            if self.wait_failed(error, retry_at).await.is_err() {
                return;
            }
            pause = (pause * 2).min(FAILED_PAUSE.1);
        }
    }

    /// Waits until the call has started or its user speaks. Before that, the call may have no place
    /// on this server, and must not take a decoder for its fallback.
    async fn wait_for_start(
        &mut self,
        call_started: &mut Option<oneshot::Receiver<()>>,
    ) -> Result<(), Dropped> {
        let Some(start) = call_started.as_mut() else { return Ok(()) };
        if self.buffer.filled_since().is_some() {
            return Ok(());
        }
        tokio::select! {
            biased;
            started = start => {
                *call_started = None;
                started.map_err(|_| Dropped)
            }
            command = self.commands.recv() => {
                self.buffer.push(Instant::now(), &command.ok_or(Dropped)?);
                Ok(())
            }
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

    /// The vendor has answered: a failure that was reported is over.
    pub(in crate::stt) fn note_answer(&mut self) {
        if !std::mem::replace(&mut self.has_answered, true) {
            self.fallback.note_answer();
        }
        if std::mem::take(&mut self.has_failed) {
            self.sink.send(Event::Recovered);
        }
    }

    /// The oldest utterance has its final transcript.
    pub(in crate::stt) fn finish_utterance(&mut self, text: String) {
        self.buffer.pop(Instant::now());
        self.sink.send(Event::Final(text));
    }
}
