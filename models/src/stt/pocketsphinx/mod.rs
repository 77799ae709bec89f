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

mod decode;
mod ffi;

use crate::thread;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_channel::{Receiver, Sender};

use self::decode::Command;
use super::{Event, Stream, Stt};
use crate::contain::restarting;
use crate::{Error, Kind, Sink, paths};

/// Maximum number of queued commands of a decoder: 40 s of audio in frames of 20 ms.
const QUEUE: usize = 2048;
/// Queue entries that audio may not use, so that starts and ends of speech always pass.
const RESERVED: usize = 64;

/// Location of the models, and number of decoders.
#[derive(Clone, Debug)]
pub struct Config {
    /// The models' directory, see [`paths::models_dir`].
    pub dir: PathBuf,
    /// Number of decoders, which is the number of calls with STT at a time. At least one.
    pub decoders: usize,
}

/// Pool of decoders, each on a thread of its own.
pub struct Pool {
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
    spare: Receiver<Vec<i16>>,
}

const LOADING: u8 = 0;
const FREE: u8 = 1;
const TAKEN: u8 = 2;
const FAILED: u8 = 3;

impl Pool {
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
    pub fn ready(&self) -> usize {
        self.count(FREE) + self.count(TAKEN)
    }

    /// Number of decoders that are available to a new call.
    #[must_use]
    pub fn free(&self) -> usize {
        self.count(FREE)
    }

    /// Whether any decoder is still loading.
    #[must_use]
    pub fn loading(&self) -> bool {
        self.count(LOADING) > 0
    }

    /// Why a decoder failed, if one did.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.slots.iter().find_map(|slot| slot.failure.get().cloned())
    }

    /// Number of commands that wait for their decoders, and the maximum. Most of them are 20 ms of
    /// audio each. Near zero unless the machine is overloaded.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        (self.slots.iter().map(|slot| slot.commands.len()).sum(), self.slots.len() * QUEUE)
    }

    /// Why no decoder is available while none is free.
    fn refusal(&self) -> Error {
        if self.loading() {
            Error::new(Kind::Busy, "the speech recogniser is still loading, try again in a second")
        } else if self.ready() > 0 {
            Error::new(Kind::Busy, format!("all {} speech decoders are taken", self.ready()))
        } else {
            Error::new(
                Kind::Missing,
                self.failure().unwrap_or_else(|| "the speech decoders broke down".to_owned()),
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
pub fn installed(dir: &Path) -> Result<(), String> {
    ffi::complete(&paths::pocketsphinx(dir))
}

impl Stt for Pool {
    fn open(&self, sink: Sink<Event>) -> Result<Box<dyn Stream>, Error> {
        for slot in &self.slots {
            if slot.state.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                let lease = slot.lease.load(Ordering::Acquire);
                let open = Command::Open { lease, sink: sink.clone() };
                if slot.commands.try_send(open).is_ok() {
                    return Ok(Box::new(Ear { slot: Arc::clone(slot), sink, begun: false, lost: 0 }));
                }
                // The decoder's thread has ended.
                slot.state.store(FAILED, Ordering::Release);
            }
        }
        Err(self.refusal())
    }

    fn full(&self) -> Option<Error> {
        (self.free() == 0).then(|| self.refusal())
    }
}

impl Slot {
    fn start(n: usize, dir: PathBuf) -> Arc<Self> {
        let (commands, received) = crossbeam_channel::bounded(QUEUE);
        let (used, spare) = crossbeam_channel::bounded(QUEUE);
        let slot = Arc::new(Self {
            state: AtomicU8::new(LOADING),
            lease: AtomicU64::new(0),
            failure: OnceLock::new(),
            commands,
            spare,
        });
        // The thread must not hold its own channel open: it ends when the pool and the streams are
        // dropped.
        let shared = Arc::downgrade(&slot);
        let started = thread::spawn(format!("model-stt-{n}"), move || {
            let mut call = None;
            restarting(|| match ffi::Decoder::load(&dir) {
                Ok(decoder) => {
                    if let Some(slot) = shared.upgrade() {
                        // After a panic the state may be taken: the call continues with the new
                        // decoder.
                        let _ =
                            slot.state.compare_exchange(LOADING, FREE, Ordering::AcqRel, Ordering::Relaxed);
                    }
                    decode::run(decoder, &shared, &received, &used, &mut call);
                }
                Err(reason) => {
                    if let Some(slot) = shared.upgrade() {
                        slot.fail(reason);
                    }
                }
            });
            // The pool or a stream still exists, so the thread has failed.
            if let Some(slot) = shared.upgrade() {
                slot.fail("the speech recogniser broke down".into());
            }
        });
        if let Err(e) = started {
            slot.fail(format!("a thread for speech recognition could not be started: {e}"));
        }
        slot
    }

    fn fail(&self, reason: String) {
        tracing::error!(reason, "a speech decoder could not be loaded");
        // Only the first reason is stored.
        let _ = self.failure.set(reason);
        self.state.store(FAILED, Ordering::Release);
    }
}

/// A call's lease of a decoder.
struct Ear {
    slot: Arc<Slot>,
    sink: Sink<Event>,
    begun: bool,
    /// Samples of this speech that were dropped because the queue was full.
    lost: usize,
}

impl Ear {
    fn send(&mut self, command: Command) {
        if self.slot.commands.try_send(command).is_err() {
            self.sink.send(Event::Failed(Error::new(Kind::Broken, "the speech decoder does not answer")));
        }
    }
}

impl Stream for Ear {
    fn begin(&mut self) {
        self.begun = true;
        self.lost = 0;
        self.send(Command::Begin);
    }

    fn audio(&mut self, pcm: &[i16]) {
        if !self.begun || pcm.is_empty() {
            return;
        }
        if self.slot.commands.len() >= QUEUE - RESERVED {
            self.lost += pcm.len();
            return;
        }
        let mut buffer = self.slot.spare.try_recv().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(pcm);
        self.send(Command::Audio(buffer));
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.begun) {
            if self.lost > 0 {
                tracing::warn!(
                    samples = self.lost,
                    "speech recognition is too slow here: sound was left out"
                );
            }
            self.send(Command::End);
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        // The lease comes first, so that the thread skips queued commands. The state comes second,
        // so that the commands of the next call are queued after them.
        self.slot.lease.fetch_add(1, Ordering::AcqRel);
        let _ = self.slot.commands.try_send(Command::Close);
        let _ = self.slot.state.compare_exchange(TAKEN, FREE, Ordering::AcqRel, Ordering::Relaxed);
    }
}
