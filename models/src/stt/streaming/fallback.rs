//! The STT that serves the rest of a call after a hosted one has failed.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::shadow::Shadows;
use super::speech_buffer::SpeechBuffer;
use super::{Command, Transport};
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
    /// The hosted STT is skipped, and this stream is its probe, because no other STT can serve.
    is_probe: bool,
}

impl Fallback {
    /// An STT and its name for sentences, and the breaker of the hosted one.
    pub(crate) fn new(stt: Option<(String, Arc<dyn Stt>)>, breaker: Arc<Breaker>) -> Self {
        let (name, stt) = stt.unzip();
        Self { stt, name: name.unwrap_or_default(), breaker: Some(breaker), is_probe: false }
    }

    /// Whether a stream would now connect to a vendor: the hosted STT, or the fallback if that one
    /// is skipped.
    pub(super) fn connects_on_open(&self) -> bool {
        let breaker = self.breaker.as_ref();
        let is_skipped = breaker.is_some_and(|breaker| breaker.skip_reason().is_some());
        !is_skipped || self.stt.as_ref().is_none_or(|stt| stt.connects_on_open())
    }

    /// Whether another STT can serve after a failure.
    pub(super) fn is_available(&self) -> bool {
        self.stt.is_some()
    }

    pub(super) fn breaker(&self) -> Option<Arc<Breaker>> {
        self.breaker.clone()
    }

    /// A stream of the fallback instead of the hosted STT, while that one is skipped, and the
    /// sentence about it. A call does not risk its first words: also while a probe is due.
    pub(super) fn open_instead(
        &mut self,
        sink: &Sink<Event>,
    ) -> Option<(Box<dyn SttStream>, String)> {
        let reason = self.breaker.as_ref()?.skip_reason()?;
        if let Some(stt) = &self.stt {
            match stt.open(sink.clone()) {
                Ok(stream) => return Some((stream, self.sentence(&reason))),
                Err(error) => tracing::warn!(%error, "{} cannot replace a hosted STT", self.name),
            }
        }
        self.is_probe = self.breaker.as_ref()?.start_probe(Instant::now());
        None
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
    pub(super) fn note_failure(&mut self, error: &Error) {
        self.is_probe = false;
        self.breaker.iter().for_each(|breaker| breaker.failed(Instant::now(), error));
    }

    /// The hosted STT has answered.
    pub(super) fn note_answer(&self) {
        self.breaker.iter().for_each(|breaker| breaker.succeeded());
    }

    /// The stream ended before the hosted STT had anything to answer.
    pub(super) fn note_end(&self) {
        self.breaker.iter().filter(|_| self.is_probe).for_each(|breaker| breaker.abandoned());
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
/// its end. `warning` runs meanwhile. `shadows` probe the hosted STT with utterances that begin from
/// now on.
pub(super) async fn serve<T: Transport, F: Fn() -> T + Send + Sync + 'static>(
    mut stream: Box<dyn SttStream>,
    buffer: SpeechBuffer,
    mut commands: mpsc::Receiver<Command>,
    warning: impl Future<Output = ()>,
    mut shadows: Shadows<F>,
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
            command = commands.recv() => {
                let Some(command) = command else { return };
                shadows.forward(Instant::now(), &command);
                forward(&mut *stream, command);
            }
            () = shadows.close_ended() => {}
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
