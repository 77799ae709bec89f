//! Moonshine tiny-en: English, offline, with capitals and punctuation. One word in ten is wrong over
//! many synthetic voices, one in sixty with natural ones (`models/tests/wer`).
//!
//! The network transcribes a whole utterance at once, in 25 ms of CPU time per second of speech. A
//! stream has no network of its own: it collects samples, and asks for decodes of what it has.
//!
//! ```text
//! streams ──audio──► scheduler ──jobs──► workers, one network each
//!    ▲                 │   ▲               │
//!    └─────events──────┘   └────results────┘
//! ```
//!
//! - While the user speaks, the utterance so far is decoded twice a second: an interim transcript.
//! - After .1 s of silence it is decoded in advance ([`activity`]). If the detector then reports
//!   the end of speech, that transcript is the final one.
//! - A long utterance is decoded in parts, which are cut in pauses ([`utterance`]).
//! - Final transcripts go first. Interim ones take at most a share of the workers' time, and
//!   nothing is decoded in advance while other decodes wait ([`scheduler`]).
//!
//! A stream can be opened while final transcripts do not wait too long ([`load`]). The scheduler's
//! thread decides everything; it never decodes, and the callers' threads only send to it.

mod activity;
mod load;
mod model;
mod pool;
mod scheduler;
mod stream;
mod tokenizer;
mod transcript;
mod utterance;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use load::DecodeStats;
pub use model::check_installed;

use self::pool::PoolContext;
use self::scheduler::Command;
use super::{Event, Stt, SttStream};
use crate::{Error, ErrorKind, Sink};

/// Samples per second.
const SAMPLE_RATE: usize = 16_000;
/// Maximum number of queued commands. Of one call, 40 s of audio are 2,048 commands.
const MAX_QUEUED_COMMANDS: usize = 16_384;
/// Queue entries that audio may not use, so that starts and ends of speech always pass.
const RESERVED_COMMANDS: usize = 2_048;
/// Expected wait of a final transcript from which no stream is opened.
const MAX_EXPECTED_WAIT: Duration = Duration::from_secs(1);

/// Mean log probability below which a transcript is uncertain: one in eight of the word error rate
/// set.
const UNCERTAIN: f32 = -0.3;

/// Location of the model, and number of workers.
#[derive(Clone, Debug)]
pub struct MoonshineConfig {
    /// The models' directory, see [`crate::paths::models_dir`].
    pub dir: PathBuf,
    /// Number of decodes at a time, each on a thread and with a network of its own. At least one;
    /// [`default_workers`] of the machine's cores are enough.
    pub workers: usize,
}

/// Default number of workers on a machine with `cores` cores: one core is left for the calls.
#[must_use]
pub fn default_workers(cores: usize) -> usize {
    cores.saturating_sub(1).max(1)
}

/// What the network writes for some samples.
#[derive(Clone, Debug, PartialEq)]
struct Transcription {
    text: String,
    /// Mean of the natural logarithms of the tokens' probabilities.
    mean_log_probability: f32,
}

impl Transcription {
    /// Whether a second attempt may be better.
    fn is_uncertain(&self) -> bool {
        self.mean_log_probability < UNCERTAIN
    }
}

/// The network, or a test double.
trait SpeechDecoder {
    /// Transcribes `pcm`, mono at 16 kHz. With `careful`, an uncertain result may be tried a second
    /// time. Returns `None` if `cancelled` was set meanwhile.
    fn decode(
        &mut self,
        pcm: &[i16],
        careful: bool,
        cancelled: &std::sync::atomic::AtomicBool,
    ) -> Result<Option<Transcription>, String>;
}

/// Moonshine with its workers.
pub struct Moonshine {
    context: Arc<PoolContext>,
}

impl Moonshine {
    /// Checks that all files are installed and starts the threads. The workers then load the
    /// network in .3 s.
    ///
    /// # Errors
    /// One sentence that says what is missing or damaged, and what to do.
    pub fn start(config: MoonshineConfig) -> Result<Self, String> {
        let MoonshineConfig { dir, workers } = config;
        check_installed(&dir)?;
        let load = move || model::Network::load(&dir);
        Ok(Self { context: pool::start(workers.max(1), load, std::thread::sleep) })
    }

    /// Whether the network is still loading for the first time.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.context.is_loading()
    }

    /// One sentence about the workers that have failed; `None` if all work.
    #[must_use]
    pub fn failure_message(&self) -> Option<String> {
        self.context.health.message("STT workers")
    }

    /// Why a worker has failed, if one has.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.context.health.reason()
    }

    /// Number of decodes that wait for a worker.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.context.status.waiting.load(Ordering::Relaxed)
    }

    /// Smoothed time that a final transcript waits for a worker.
    #[must_use]
    pub fn expected_wait(&self) -> Duration {
        Duration::from_micros(self.context.status.expected_wait_us.load(Ordering::Relaxed))
    }

    /// Whether final transcripts wait too long, so that no stream is opened.
    #[must_use]
    pub fn is_overloaded(&self) -> bool {
        self.expected_wait() >= MAX_EXPECTED_WAIT
    }

    /// Counters of the decodes by purpose.
    #[must_use]
    pub fn stats(&self) -> [DecodeStats; 4] {
        self.context.counters.snapshot()
    }

    /// Number of commands that wait for the scheduler, and the maximum. Near zero unless the
    /// machine is overloaded.
    #[must_use]
    pub fn queue_usage(&self) -> (usize, usize) {
        (self.context.commands.len(), MAX_QUEUED_COMMANDS)
    }
}

impl Stt for Moonshine {
    fn open(&self, sink: Sink<Event>) -> Result<Box<dyn SttStream>, Error> {
        if let Some(error) = self.capacity_error() {
            return Err(error);
        }
        let id = self.context.next_stream.fetch_add(1, Ordering::Relaxed);
        let open = Command::Open { stream: id, sink: sink.clone() };
        if self.context.commands.try_send(open).is_err() {
            return Err(Error::new(ErrorKind::Busy, "the STT does not respond; retry later"));
        }
        Ok(Box::new(Stream {
            id,
            context: Arc::clone(&self.context),
            sink,
            in_speech: false,
            dropped_samples: 0,
        }))
    }

    fn capacity_error(&self) -> Option<Error> {
        if self.is_loading() {
            let message = "the STT is still loading; retry in a second";
            return Some(Error::new(ErrorKind::Busy, message));
        }
        if let Some(reason) = self.context.health.total_failure() {
            let message = format!("the STT workers have failed: {reason}");
            return Some(Error::new(ErrorKind::NotAvailable, message));
        }
        self.is_overloaded().then(|| {
            let message = format!(
                "the STT is overloaded: a transcript would wait {:.1} s; retry later",
                self.expected_wait().as_secs_f64()
            );
            Error::new(ErrorKind::Busy, message)
        })
    }
}

/// The stream of a call. Its state is in the scheduler's thread.
struct Stream {
    id: u64,
    context: Arc<PoolContext>,
    sink: Sink<Event>,
    in_speech: bool,
    /// Samples of this speech that were dropped because the queue was full.
    dropped_samples: usize,
}

impl Stream {
    fn send(&mut self, command: Command) {
        if self.context.commands.try_send(command).is_err() {
            let error = Error::new(ErrorKind::Failed, "the STT does not respond");
            self.sink.send(Event::Failed(error));
        }
    }
}

impl SttStream for Stream {
    fn start_speech(&mut self) {
        self.in_speech = true;
        self.dropped_samples = 0;
        self.send(Command::StartSpeech(self.id));
    }

    fn push_audio(&mut self, pcm: &[i16]) {
        if !self.in_speech || pcm.is_empty() {
            return;
        }
        if self.context.commands.len() >= MAX_QUEUED_COMMANDS - RESERVED_COMMANDS {
            self.dropped_samples += pcm.len();
            return;
        }
        let mut buffer = self.context.spare_buffers.try_recv().unwrap_or_default();
        buffer.extend_from_slice(pcm);
        self.send(Command::Audio(self.id, buffer));
    }

    fn end_speech(&mut self) {
        if std::mem::take(&mut self.in_speech) {
            if self.dropped_samples > 0 {
                tracing::warn!(
                    samples = self.dropped_samples,
                    "STT is too slow: audio was dropped"
                );
            }
            self.send(Command::EndSpeech(self.id));
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.context.commands.try_send(Command::Close(self.id));
    }
}

#[cfg(test)]
mod tests;
