//! PocketSphinx: English, offline, no model to choose. One word in five to ten is wrong in clear
//! speech.
//!
//! A decoder serves one call at a time and takes 80 MiB, because two that share a language model
//! race. The decoders therefore form a pool, which loads in the background after start-up. A call
//! leases one decoder for its lifetime. Each lease starts from the decoder's initial estimate of
//! the channel; otherwise the microphone of one speaker would degrade the recognition of the next.
//!
//! ```text
//! STATE_LOADING ──loaded──► STATE_FREE ──open()───► STATE_TAKEN
//!       │                    │  ▲                        │
//!       │ load failed        │  └── lease dropped ───────┤
//!       └──► STATE_FAILED ◄──┴────── thread failed ──────┘
//! ```

mod decoder_thread;
mod ffi;

use crate::thread;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_channel::{Receiver, Sender};

use self::decoder_thread::Command;
use super::{Event, Stt, SttStream};
use crate::panic_isolation::restart_on_panic;
use crate::{Error, ErrorKind, Sink, paths};

/// Maximum number of queued commands of a decoder: 40 s of audio in frames of 20 ms.
const MAX_QUEUED_COMMANDS: usize = 2048;
/// Queue entries that audio may not use, so that starts and ends of speech always pass.
const RESERVED_COMMANDS: usize = 64;

/// Location of the models, and number of decoders.
#[derive(Clone, Debug)]
pub struct Config {
    /// The models' directory, see [`paths::models_dir`].
    pub dir: PathBuf,
    /// Number of decoders, which is the number of calls with STT at a time. At least one.
    pub decoders: usize,
}

/// Pool of decoders, each on a thread of its own.
pub struct DecoderPool {
    slots: Vec<Arc<Slot>>,
}

/// State that a decoder's thread shares with the pool and with its stream.
struct Slot {
    state: AtomicU8,
    /// The current lease. Commands of an older one are skipped.
    lease: AtomicU64,
    failure: OnceLock<String>,
    commands: Sender<Command>,
    /// Used buffers return here.
    spare_buffers: Receiver<Vec<i16>>,
}

const STATE_LOADING: u8 = 0;
const STATE_FREE: u8 = 1;
const STATE_TAKEN: u8 = 2;
const STATE_FAILED: u8 = 3;

impl DecoderPool {
    /// Starts the decoders' threads and returns at once. They load one after the other, .4 s each.
    #[must_use]
    pub fn start(config: Config) -> Self {
        let dir = paths::pocketsphinx(&config.dir);
        Self { slots: (0..config.decoders.max(1)).map(|n| Slot::start(n, dir.clone())).collect() }
    }

    /// Number of all decoders.
    #[must_use]
    pub fn size(&self) -> usize {
        self.slots.len()
    }

    /// Number of loaded decoders, free or taken.
    #[must_use]
    pub fn loaded_count(&self) -> usize {
        self.count(STATE_FREE) + self.count(STATE_TAKEN)
    }

    /// Number of decoders that are available to a new call.
    #[must_use]
    pub fn free_count(&self) -> usize {
        self.count(STATE_FREE)
    }

    /// Whether any decoder is still loading.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.count(STATE_LOADING) > 0
    }

    /// Why a decoder failed, if one did.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.slots.iter().find_map(|slot| slot.failure.get().cloned())
    }

    /// Number of commands that wait for their decoders, and the maximum. Most of them are 20 ms of
    /// audio each. Near zero unless the machine is overloaded.
    #[must_use]
    pub fn queue_usage(&self) -> (usize, usize) {
        (self.slots.iter().map(|slot| slot.commands.len()).sum(), self.slots.len() * MAX_QUEUED_COMMANDS)
    }

    /// Why no decoder is available while none is free.
    fn unavailable_error(&self) -> Error {
        if self.is_loading() {
            Error::new(ErrorKind::Busy, "the speech recogniser is still loading, try again in a second")
        } else if self.loaded_count() > 0 {
            Error::new(ErrorKind::Busy, format!("all {} speech decoders are taken", self.loaded_count()))
        } else {
            Error::new(
                ErrorKind::NotAvailable,
                self.failure().unwrap_or_else(|| "the STT decoders failed".to_owned()),
            )
        }
    }

    fn count(&self, state: u8) -> usize {
        self.slots.iter().filter(|slot| slot.state.load(Ordering::Acquire) == state).count()
    }
}

/// Checks that all files of a decoder are installed. Does not load them.
///
/// # Errors
/// One sentence that says what to do.
pub fn check_installed(dir: &Path) -> Result<(), String> {
    ffi::check_files(&paths::pocketsphinx(dir))
}

impl Stt for DecoderPool {
    fn open(&self, sink: Sink<Event>) -> Result<Box<dyn SttStream>, Error> {
        for slot in &self.slots {
            if slot
                .state
                .compare_exchange(STATE_FREE, STATE_TAKEN, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
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
                // The decoder's thread has ended.
                slot.state.store(STATE_FAILED, Ordering::Release);
            }
        }
        Err(self.unavailable_error())
    }

    fn capacity_error(&self) -> Option<Error> {
        (self.free_count() == 0).then(|| self.unavailable_error())
    }
}

impl Slot {
    fn start(n: usize, dir: PathBuf) -> Arc<Self> {
        let (commands, received) = crossbeam_channel::bounded(MAX_QUEUED_COMMANDS);
        let (used_buffers, spare) = crossbeam_channel::bounded(MAX_QUEUED_COMMANDS);
        let slot = Arc::new(Self {
            state: AtomicU8::new(STATE_LOADING),
            lease: AtomicU64::new(0),
            failure: OnceLock::new(),
            commands,
            spare_buffers: spare,
        });
        // The thread must not hold its own channel open: it ends when the pool and the streams are
        // dropped.
        let shared = Arc::downgrade(&slot);
        let started = thread::spawn_low_priority(format!("model-stt-{n}"), move || {
            let mut call = None;
            restart_on_panic(|| match ffi::Decoder::load(&dir) {
                Ok(decoder) => {
                    if let Some(slot) = shared.upgrade() {
                        // After a panic the state may be taken: the call continues with the new
                        // decoder.
                        let _ = slot.state.compare_exchange(
                            STATE_LOADING,
                            STATE_FREE,
                            Ordering::AcqRel,
                            Ordering::Relaxed,
                        );
                    }
                    decoder_thread::run_decoder(decoder, &shared, &received, &used_buffers, &mut call);
                }
                Err(reason) => {
                    if let Some(slot) = shared.upgrade() {
                        slot.fail(reason);
                    }
                }
            });
            // The pool or a stream still exists, so the thread has failed.
            if let Some(slot) = shared.upgrade() {
                slot.fail("the STT decoder failed".into());
            }
        });
        if let Err(e) = started {
            slot.fail(format!("cannot start an STT thread: {e}"));
        }
        slot
    }

    fn fail(&self, reason: String) {
        tracing::error!(reason, "an STT decoder is unavailable");
        // Only the first reason is stored.
        let _ = self.failure.set(reason);
        self.state.store(STATE_FAILED, Ordering::Release);
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
            self.sink
                .send(Event::Failed(Error::new(ErrorKind::Failed, "the speech decoder does not answer")));
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
                tracing::warn!(samples = self.dropped_samples, "STT is too slow: audio was dropped");
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
        let _ =
            self.slot.state.compare_exchange(STATE_TAKEN, STATE_FREE, Ordering::AcqRel, Ordering::Relaxed);
    }
}
