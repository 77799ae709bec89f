//! The probe of a hosted STT that is skipped: a shadow stream, which gets the audio of one utterance
//! of a call that the fallback STT serves. Its transcripts are dropped.
//!
//! ```text
//! start of speech, and a probe is due ──► shadow stream ──► final with words:  works again
//!                                              │            failure:           skipped for longer
//!                                              │            no words, or the call ends:
//!                                              ▼                     the next utterance is a probe
//!                                        closed politely
//! ```
//!
//! The call stays with its fallback to its end, whatever the result is: the next call gets the
//! hosted STT. What a shadow uses is reported as that of the hosted STT, because it is billed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::Instrument as _;

use super::call::{Call, Dropped, Transport};
use super::speech_buffer::SpeechBuffer;
use super::{Command, Fallback, MAX_QUEUED_COMMANDS, Source};
use crate::Sink;
use crate::breaker::Breaker;
use crate::stt::Event;

/// Maximum age of a shadow stream. The breaker forgets a probe later.
const MAX_AGE: Duration = Duration::from_secs(60);

/// The shadow streams of a call, one at a time.
pub(super) struct Shadows<F> {
    source: Arc<Source<F>>,
    /// That of the hosted STT; `None` = it is never skipped.
    breaker: Option<Arc<Breaker>>,
    /// Receives the usage.
    sink: Sink<Event>,
    current: Option<Shadow>,
}

/// The call's side of a shadow stream.
struct Shadow {
    /// The task closes the connection when this is dropped.
    commands: mpsc::Sender<Command>,
    /// Whether the audio of the utterance is complete.
    has_utterance: bool,
    /// Receives something, or is closed, when the probe has its result.
    result: mpsc::Receiver<()>,
    closes_at: Instant,
}

impl<F> Shadows<F> {
    pub(super) fn new(
        source: &Arc<Source<F>>,
        breaker: Option<Arc<Breaker>>,
        sink: Sink<Event>,
    ) -> Self {
        Self { source: Arc::clone(source), breaker, sink, current: None }
    }

    /// Waits until the shadow stream has its result or is too old, and closes it.
    pub(super) async fn close_ended(&mut self) {
        match &mut self.current {
            Some(shadow) => tokio::select! {
                _ = shadow.result.recv() => {}
                () = sleep_until(shadow.closes_at) => {}
            },
            None => std::future::pending().await,
        }
        self.current = None;
    }
}

impl<T: Transport, F: Fn() -> T + Send + Sync + 'static> Shadows<F> {
    /// Handles a command of the call. An utterance that begins while a probe is due is the probe.
    pub(super) fn forward(&mut self, now: Instant, command: &Command) {
        if *command == Command::StartSpeech
            && self.current.is_none()
            && let Some(breaker) = self.breaker.as_ref().filter(|breaker| breaker.start_probe(now))
        {
            self.current = Some(self.open(now, breaker));
        }
        if let Some(shadow) = self.current.as_mut().filter(|shadow| !shadow.has_utterance) {
            // A full queue or a task that has ended: the probe fails, or has its result.
            let _ = shadow.commands.try_send(command.clone());
            shadow.has_utterance = *command == Command::EndSpeech;
        }
    }

    fn open(&self, now: Instant, breaker: &Arc<Breaker>) -> Shadow {
        let (commands, receiver) = mpsc::channel(MAX_QUEUED_COMMANDS);
        let (result_sender, result) = mpsc::channel(1);
        let probe = Arc::new(Probe {
            breaker: Arc::clone(breaker),
            has_result: AtomicBool::new(false),
            result: result_sender,
            usage: self.sink.clone(),
        });
        let source = &self.source;
        tracing::info!(vendor = source.endpoint.vendor, "a hosted STT that is skipped is probed");
        let sink = {
            let probe = Arc::clone(&probe);
            Sink::new(move |event| probe.receive(event))
        };
        let call = Call::new(
            Arc::clone(&source.endpoint),
            source.timeouts,
            receiver,
            sink,
            Fallback::default(),
            SpeechBuffer::new(T::MAX_BUFFERED_BYTES),
        );
        tokio::spawn(run(call, (source.make_transport)(), probe).in_current_span());
        Shadow { commands, has_utterance: false, result, closes_at: now + MAX_AGE }
    }
}

/// The task of a shadow stream.
async fn run(mut call: Call, mut transport: impl Transport, probe: Arc<Probe>) {
    let served = transport.serve(&mut call).await;
    call.meter.report(Instant::now(), &call.sink);
    let statistics = transport.statistics(&call.endpoint);
    match served {
        Ok(Dropped) => {
            tracing::debug!(statistics, "the probe of a hosted STT is closed");
            probe.end(Breaker::abandoned);
        }
        Err(failure) => {
            tracing::info!(error = %failure.error, statistics, "the probe of a hosted STT failed");
            probe.end(|breaker| breaker.failed(Instant::now(), &failure.error));
        }
    }
}

/// The result of a shadow stream.
struct Probe {
    breaker: Arc<Breaker>,
    has_result: AtomicBool,
    result: mpsc::Sender<()>,
    usage: Sink<Event>,
}

impl Probe {
    /// Handles an event of the shadow stream.
    fn receive(&self, event: Event) {
        match event {
            Event::Final(text) if text.trim().is_empty() => self.end(Breaker::abandoned),
            Event::Final(_) => self.end(Breaker::succeeded),
            event @ Event::Usage(_) => self.usage.send(event),
            _ => {}
        }
    }

    /// Reports the result, unless there is one already.
    fn end(&self, report: impl FnOnce(&Breaker)) {
        if !self.has_result.swap(true, Ordering::AcqRel) {
            report(&self.breaker);
            // The call may have ended.
            let _ = self.result.try_send(());
        }
    }
}
