//! The STT that serves the rest of a call after a hosted one has failed.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Command;
use super::speech_buffer::SpeechBuffer;
use crate::breaker::Breaker;
use crate::stt::{Event, Stt, SttStream};
use crate::{Error, Sink};

/// What serves a call, or the rest of it, if a hosted STT fails.
#[derive(Clone, Default)]
pub struct Fallback {
    stt: Option<Arc<dyn Stt>>,
    /// Name for sentences.
    name: String,
    /// Skips the hosted STT after failures.
    breaker: Option<Arc<Breaker>>,
}

impl From<Option<Arc<dyn Stt>>> for Fallback {
    /// The built-in STT.
    fn from(stt: Option<Arc<dyn Stt>>) -> Self {
        Self { stt, name: "the built-in STT".into(), breaker: None }
    }
}

impl Fallback {
    /// The STT `stt`, which sentences call `name`, and the breaker of the hosted one.
    pub(crate) fn new(stt: Option<Arc<dyn Stt>>, name: String, breaker: Arc<Breaker>) -> Self {
        Self { stt, name, breaker: Some(breaker) }
    }

    /// Whether a stream would now connect to a vendor: the hosted STT, or the fallback if that one
    /// is skipped.
    pub(super) fn connects_on_open(&self) -> bool {
        let breaker = self.breaker.as_ref();
        let is_skipped = breaker.is_some_and(|breaker| breaker.is_skipping(Instant::now()));
        !is_skipped || self.stt.as_ref().is_none_or(|stt| stt.connects_on_open())
    }

    /// Whether another STT can serve after a failure.
    pub(super) fn is_available(&self) -> bool {
        self.stt.is_some()
    }

    /// A stream of the fallback instead of the hosted STT, while that one is skipped.
    pub(super) fn open_instead(&self, sink: &Sink<Event>) -> Option<Box<dyn SttStream>> {
        let reason = self.breaker.as_ref()?.admit(Instant::now()).err()?;
        let stream = self.stt.as_ref()?.open(sink.clone());
        let stream = stream.inspect_err(|error| {
            tracing::warn!(%error, "{} cannot replace a hosted STT", self.name);
        });
        let (stream, sink) = (stream.ok()?, sink.clone());
        Some(Box::new(WarningStream { stream, warning: Some((self.sentence(&reason), sink)) }))
    }

    /// A stream of the fallback after a failure, and the sentence about it. It can be opened once.
    pub(super) fn open_after(
        &mut self,
        error: &Error,
        sink: &Sink<Event>,
    ) -> Option<(Box<dyn SttStream>, String)> {
        match self.stt.take()?.open(sink.clone()) {
            Ok(stream) => Some((stream, self.sentence(&error.to_string()))),
            Err(error) => {
                tracing::warn!(%error, "{} cannot replace a hosted STT", self.name);
                None
            }
        }
    }

    fn sentence(&self, reason: &str) -> String {
        format!("{}; {} is used instead.", reason.trim_end_matches('.'), self.name)
    }

    /// The hosted STT has failed.
    pub(super) fn note_failure(&self, error: &Error) {
        self.breaker.iter().for_each(|breaker| breaker.failed(Instant::now(), error));
    }

    /// The hosted STT has answered.
    pub(super) fn note_answer(&self) {
        self.breaker.iter().for_each(|breaker| breaker.succeeded());
    }

    /// The stream ended before the hosted STT had anything to answer.
    pub(super) fn note_end(&self) {
        self.breaker.iter().for_each(|breaker| breaker.abandoned());
    }
}

/// A stream that sends a sentence when the call has started: earlier events are lost.
struct WarningStream {
    stream: Box<dyn SttStream>,
    warning: Option<(String, Sink<Event>)>,
}

impl SttStream for WarningStream {
    fn start_call(&mut self) {
        if let Some((text, sink)) = self.warning.take() {
            sink.send(Event::Warning(text));
        }
        self.stream.start_call();
    }

    fn start_speech(&mut self) {
        self.stream.start_speech();
    }

    fn push_audio(&mut self, pcm: &[i16]) {
        self.stream.push_audio(pcm);
    }

    fn end_speech(&mut self) {
        self.stream.end_speech();
    }

    fn reports_usage(&self) -> bool {
        self.stream.reports_usage()
    }
}

/// Sends the sentence that tells of the change when the call has started: earlier events are lost.
/// `call_started`: `None` if it has.
pub(super) async fn warn(
    text: String,
    call_started: Option<oneshot::Receiver<()>>,
    sink: Sink<Event>,
) {
    let has_started = match call_started {
        Some(call_started) => call_started.await.is_ok(),
        None => true,
    };
    if has_started {
        sink.send(Event::Warning(text));
    }
}

/// Gives `stream` the utterances that have no final transcript, then the commands of the call until
/// its end. `warning` runs meanwhile.
pub(super) async fn serve(
    mut stream: Box<dyn SttStream>,
    buffer: SpeechBuffer,
    mut commands: mpsc::Receiver<Command>,
    warning: impl Future<Output = ()>,
) {
    let mut pcm = Vec::new();
    let mut forward = |stream: &mut dyn SttStream, command: Command| match command {
        Command::StartSpeech => stream.start_speech(),
        Command::Audio(chunk) => stream.push_audio(decode(&chunk, &mut pcm)),
        Command::EndSpeech => stream.end_speech(),
    };
    let mut warning = std::pin::pin!(warning);
    // The warning comes before the first transcript if the call has started.
    let mut has_started = is_ready(warning.as_mut()).await;
    if has_started {
        stream.start_call();
    }
    buffer.commands().for_each(|command| forward(&mut *stream, command));
    drop(buffer);
    loop {
        tokio::select! {
            biased;
            () = warning.as_mut(), if !has_started => {
                has_started = true;
                stream.start_call();
            }
            command = commands.recv() => match command {
                Some(command) => forward(&mut *stream, command),
                None => return,
            },
        }
    }
}

/// Whether `future` is complete now. It is polled once.
async fn is_ready(mut future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
    std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context).is_ready()))
        .await
}

/// The samples of a chunk, in `pcm`.
fn decode<'a>(chunk: &Bytes, pcm: &'a mut Vec<i16>) -> &'a [i16] {
    pcm.clear();
    pcm.extend(chunk.as_chunks::<2>().0.iter().map(|pair| i16::from_le_bytes(*pair)));
    pcm
}
