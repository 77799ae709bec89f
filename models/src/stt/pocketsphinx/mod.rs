//! PocketSphinx: English, offline, no model to choose. One word in five to ten is wrong in clear
//! speech.
//!
//! A decoder serves one call at a time and takes 80 MiB, because two that share a language model
//! race. The decoders therefore form a pool, which loads in the background after start-up. A call
//! leases one decoder for its lifetime. Each lease starts from the decoder's initial estimate of
//! the channel; otherwise the microphone of one speaker would degrade the recognition of the next.
//!
//! ```text
//! loading ──loaded──► free ──open()───────► taken
//!    │                 ▲ └───◄─────────────┘
//!    │                 │    lease dropped
//!    └──load failed──► failed: tried again after a delay, for ever
//! ```
//!
//! A call may also lease a decoder that is still loading, if no other one is free. Its audio waits.
//!
//! A decoder that panics has failed until a new one is loaded. It is then not free, and a call that
//! holds its lease gets an error. The call is served again when the new decoder is there.

mod decoder_thread;
mod ffi;

use crate::thread;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

use self::decoder_thread::{Command, DecoderThread, Recognizer};
use super::{Event, Stt, SttStream};
use crate::thread_health::ThreadHealth;
use crate::{Error, ErrorKind, Sink, manifest, paths};

/// Maximum number of queued commands of a decoder: 40 s of audio in frames of 20 ms.
const MAX_QUEUED_COMMANDS: usize = 2048;
/// Queue entries that audio may not use, so that starts and ends of speech always pass.
const RESERVED_COMMANDS: usize = 64;

/// Location of the models, and number of decoders.
#[derive(Clone, Debug)]
pub struct PocketSphinxConfig {
    /// The models' directory, see [`paths::models_dir`].
    pub dir: PathBuf,
    /// Number of decoders, which is the number of calls with STT at a time. At least one.
    pub decoders: usize,
}

/// Pool of decoders, each on a thread of its own.
pub struct PocketSphinxPool {
    slots: Vec<Arc<Slot>>,
    health: Arc<ThreadHealth>,
}

/// State that a decoder's thread shares with the pool and with its stream.
struct Slot {
    number: usize,
    /// State of all threads of the pool.
    health: Arc<ThreadHealth>,
    /// The first decoder of this thread is still loading.
    is_loading: AtomicBool,
    /// A call holds the lease.
    is_taken: AtomicBool,
    /// The current lease. Commands of an older one are skipped.
    lease: AtomicU64,
    commands: Sender<Command>,
    /// Used buffers return here.
    spare_buffers: Receiver<Vec<i16>>,
}

impl PocketSphinxPool {
    /// Starts the decoders' threads and returns at once. They load one after the other, .4 s each.
    #[must_use]
    pub fn start(config: PocketSphinxConfig) -> Self {
        let dir = paths::pocketsphinx(&config.dir);
        Self::start_with(config.decoders, move || ffi::Decoder::load(&dir), |delay| delay)
    }

    /// Starts the threads. `load` loads a decoder; a thread waits for `wait(delay)` where a delay
    /// is due.
    fn start_with<D: Recognizer>(
        decoders: usize,
        load: impl Fn() -> Result<D, String> + Clone + Send + 'static,
        wait: impl Fn(Duration) -> Duration + Clone + Send + 'static,
    ) -> Self {
        let decoders = decoders.max(1);
        let health = Arc::new(ThreadHealth::new(decoders));
        let start = |n| Slot::start(n, &health, load.clone(), wait.clone());
        Self { slots: (0..decoders).map(start).collect(), health }
    }

    /// Number of all decoders.
    #[must_use]
    pub fn size(&self) -> usize {
        self.slots.len()
    }

    /// Number of decoders that work, free or taken.
    #[must_use]
    pub fn loaded_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.works()).count()
    }

    /// Number of decoders that are available to a new call.
    #[must_use]
    pub fn free_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.works() && !slot.is_taken()).count()
    }

    /// Number of decoders that work and serve a call.
    #[must_use]
    pub fn taken_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.works() && slot.is_taken()).count()
    }

    /// Number of decoders that have failed and are restarting.
    #[must_use]
    pub fn failed_count(&self) -> usize {
        self.health.failed_count()
    }

    /// Whether any decoder is still loading for the first time.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.slots.iter().any(|slot| slot.is_loading.load(Ordering::Acquire))
    }

    /// Why a decoder has failed, if one has.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.health.reason()
    }

    /// One sentence about the decoders that have failed; `None` if all work.
    #[must_use]
    pub fn failure_message(&self) -> Option<String> {
        self.health.message("STT decoders")
    }

    /// Number of commands that wait for their decoders, and the maximum. Most of them are 20 ms of
    /// audio each. Near zero unless the machine is overloaded.
    #[must_use]
    pub fn queue_usage(&self) -> (usize, usize) {
        (
            self.slots.iter().map(|slot| slot.commands.len()).sum(),
            self.slots.len() * MAX_QUEUED_COMMANDS,
        )
    }

    /// Why no decoder is available while none is free.
    fn unavailable_error(&self) -> Error {
        let waits = |slot: &Arc<Slot>| slot.is_loading.load(Ordering::Acquire) && !slot.is_taken();
        if self.slots.iter().any(waits) {
            Error::new(ErrorKind::Busy, "the STT is still loading; retry in a second")
        } else if let Some(reason) = self.health.total_failure() {
            Error::new(ErrorKind::NotAvailable, format!("the STT decoders have failed: {reason}"))
        } else {
            Error::new(
                ErrorKind::Busy,
                format!("all {} STT decoders are in use", self.size() - self.failed_count()),
            )
        }
    }
}

/// Checks that all files of a decoder are installed, and that none is damaged. Does not load them.
///
/// # Errors
/// One sentence that says what to do.
pub fn check_installed(dir: &Path) -> Result<(), String> {
    ffi::check_files(&paths::pocketsphinx(dir))?;
    let model = manifest::model("pocketsphinx");
    model.check_files(dir)?;
    model.check_built_files(dir)
}

impl Stt for PocketSphinxPool {
    fn open(&self, sink: Sink<Event>) -> Result<Box<dyn SttStream>, Error> {
        // A decoder that is still loading is the second choice: the audio waits in its queue.
        let working = self.slots.iter().filter(|slot| slot.works());
        let loading = self.slots.iter().filter(|slot| slot.is_loading.load(Ordering::Acquire));
        for slot in working.chain(loading) {
            if slot.is_taken.swap(true, Ordering::AcqRel) {
                continue;
            }
            let lease = slot.lease.load(Ordering::Acquire);
            let open = Command::Open { lease, sink: sink.clone() };
            if slot.commands.try_send(open).is_ok() {
                return Ok(Box::new(DecoderLease {
                    slot: Arc::clone(slot),
                    sink,
                    in_speech: false,
                    dropped_samples: 0,
                }));
            }
            // The queue is still full of the previous call's commands.
            slot.is_taken.store(false, Ordering::Release);
        }
        Err(self.unavailable_error())
    }

    fn capacity_error(&self) -> Option<Error> {
        (self.free_count() == 0).then(|| self.unavailable_error())
    }
}

impl Slot {
    fn start<D: Recognizer>(
        number: usize,
        health: &Arc<ThreadHealth>,
        load: impl Fn() -> Result<D, String> + Send + 'static,
        wait: impl Fn(Duration) -> Duration + Send + 'static,
    ) -> Arc<Self> {
        let (commands, received) = crossbeam_channel::bounded(MAX_QUEUED_COMMANDS);
        let (used_buffers, spare_buffers) = crossbeam_channel::bounded(MAX_QUEUED_COMMANDS);
        let slot = Arc::new(Self {
            number,
            health: Arc::clone(health),
            is_loading: AtomicBool::new(true),
            is_taken: AtomicBool::new(false),
            lease: AtomicU64::new(0),
            commands,
            spare_buffers,
        });
        // The thread must not hold its own channel open: it ends when the pool and the streams are
        // dropped.
        let thread =
            DecoderThread { slot: Arc::downgrade(&slot), commands: received, used_buffers };
        let started = thread::spawn_low_priority(format!("model-stt-{number}"), move || {
            thread.run(load, wait)
        });
        if let Err(error) = started {
            tracing::error!(%error, "cannot start an STT thread");
            slot.set_failed(&format!("it cannot be started: {error}"));
        }
        slot
    }

    /// Whether the decoder is loaded and has not failed.
    fn works(&self) -> bool {
        !self.is_loading.load(Ordering::Acquire) && !self.health.is_failed(self.number)
    }

    fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Acquire)
    }

    fn set_working(&self) {
        self.health.set_working(self.number);
        self.is_loading.store(false, Ordering::Release);
    }

    fn set_failed(&self, reason: &str) {
        // First, so that no other call takes the decoder in between.
        self.health.set_failed(self.number, reason);
        self.is_loading.store(false, Ordering::Release);
    }
}

/// A call's lease of a decoder.
struct DecoderLease {
    slot: Arc<Slot>,
    sink: Sink<Event>,
    in_speech: bool,
    /// Samples of this speech that were dropped because the queue was full.
    dropped_samples: usize,
}

impl DecoderLease {
    fn send(&mut self, command: Command) {
        if self.slot.commands.try_send(command).is_err() {
            self.sink.send(Event::Failed(Error::new(
                ErrorKind::Failed,
                "the STT's decoder does not respond",
            )));
        }
    }
}

impl SttStream for DecoderLease {
    fn start_speech(&mut self) {
        self.in_speech = true;
        self.dropped_samples = 0;
        self.send(Command::StartSpeech);
    }

    fn push_audio(&mut self, pcm: &[i16]) {
        if !self.in_speech || pcm.is_empty() {
            return;
        }
        if self.slot.commands.len() >= MAX_QUEUED_COMMANDS - RESERVED_COMMANDS {
            self.dropped_samples += pcm.len();
            return;
        }
        let mut buffer = self.slot.spare_buffers.try_recv().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(pcm);
        self.send(Command::Audio(buffer));
    }

    fn end_speech(&mut self) {
        if std::mem::take(&mut self.in_speech) {
            if self.dropped_samples > 0 {
                tracing::warn!(
                    samples = self.dropped_samples,
                    "STT is too slow: audio was dropped"
                );
            }
            self.send(Command::EndSpeech);
        }
    }
}

impl Drop for DecoderLease {
    fn drop(&mut self) {
        // The lease comes first, so that the thread skips queued commands. The state comes second,
        // so that the commands of the next call are queued after them.
        self.slot.lease.fetch_add(1, Ordering::AcqRel);
        let _ = self.slot.commands.try_send(Command::Close);
        self.slot.is_taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
