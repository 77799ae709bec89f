//! Recordings of calls, written by a thread of their own. [`recording::capture`] defines the file.
//!
//! ```text
//! media threads ── batches of packets ──► recorder ── a write per second ──► ID.capture
//!                                            │ at the end of the call
//!                                            └─► ID.recorded, and `on_complete`
//! ```
//!
//! A disk that is full or too slow ends the recording and never the call. A file named
//! `ID.capture` at the start of the process is one of a process that was killed: the rest of the
//! server completes it, see [`complete_old_captures`].

pub mod cost;
pub(crate) mod sample_encoder;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use conversation::id::ConversationId;
use crossbeam_channel::{Receiver, select, tick};
use models::panic_isolation::restart_forever;
use recording::capture::CaptureWriter;
use recording::{Packet, Size};

use self::cost::RecordingCost;
use crate::channel::{self, Sender};
use crate::thread;

/// Interval between two writes of each file.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// The reason of a server without a recorder.
pub const NO_RECORDER: &str = "This server does not record calls.";

/// How the recorder works.
#[derive(Clone)]
pub struct RecorderConfig {
    /// Folder of the files. It is created.
    pub folder: PathBuf,
    /// Free bytes of its file system below which all recordings end; 0 = no limit.
    pub min_free: u64,
    /// Called with each recording that is complete, or whose file is lost, on the recorder's thread. Must not block.
    pub on_complete: Arc<dyn Fn(ConversationId) + Send + Sync>,
}

impl std::fmt::Debug for RecorderConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { folder, min_free, .. } = self;
        f.debug_struct("RecorderConfig")
            .field("folder", folder)
            .field("min_free", min_free)
            .finish()
    }
}

/// Path of the recording of a call that has ended.
#[must_use]
pub fn recorded_path(folder: &Path, id: ConversationId) -> PathBuf {
    folder.join(engine_api::recorded_name(id))
}

fn capture_path(folder: &Path, id: ConversationId) -> PathBuf {
    folder.join(engine_api::capture_name(id))
}

/// Completes the files of a process that was killed. Returns all recordings that are complete. Call
/// it before the engine starts.
///
/// # Errors
/// The folder cannot be read.
pub fn complete_old_captures(folder: &Path) -> io::Result<Vec<ConversationId>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let file = entry?.path();
        let id = file.file_stem().and_then(|name| name.to_str()).and_then(|id| id.parse().ok());
        let Some(id) = id else { continue };
        let recorded = recorded_path(folder, id);
        if file == capture_path(folder, id) {
            fs::rename(&file, recorded)?;
        } else if file != recorded {
            continue;
        }
        if !found.contains(&id) {
            found.push(id);
        }
    }
    Ok(found)
}

/// A message to the recorder's thread.
pub enum RecorderMessage {
    /// A recording starts.
    Start {
        /// The call.
        id: ConversationId,
        /// Size of the video, if there is one.
        video: Option<Size>,
        /// Shared with the call. The call has ended if this is the only reference.
        state: Arc<RecordingState>,
    },
    /// Packets of a call.
    Packets(ConversationId, Vec<Packet>),
    /// The call has ended, and the recording is complete.
    End(ConversationId),
    /// The recording is deleted: the user does not want it. Its state says so, too
    /// ([`RecordingState::discard`]).
    Discard(ConversationId),
}

/// State of a recording.
#[derive(Debug, Default)]
pub struct RecordingState {
    failure: OnceLock<String>,
    is_refused: AtomicBool,
    is_discarded: AtomicBool,
}

impl RecordingState {
    /// Why the recording has ended before the call; `None` while it is written.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// The recording ends, because of this. Returns whether this is the first reason: only that one
    /// counts.
    pub fn fail(&self, reason: String) -> bool {
        self.failure.set(reason).is_ok()
    }

    /// The recording cannot begin, because of this.
    pub fn refuse(&self, reason: String) -> bool {
        // Before the reason: whoever reads the reason then sees this, too.
        self.is_refused.store(true, Relaxed);
        self.fail(reason)
    }

    /// Whether nothing is stored, because the recording could not begin. Meaningful after a failure.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Relaxed)
    }

    /// The recording is deleted instead of completed, even if no message says so.
    pub fn discard(&self) {
        self.is_discarded.store(true, Relaxed);
    }
}

/// Counters of the recorder.
#[derive(Debug, Default)]
pub struct RecorderStats {
    /// Recordings that ended before their call.
    pub failed: AtomicU64,
    /// Bytes written.
    pub bytes: AtomicU64,
    /// Packets that are in no file: the channel was full, or the recording had failed.
    pub dropped_packets: AtomicU64,
    /// CPU time while calls run.
    pub cost: RecordingCost,
}

/// The recorder, as calls see it.
#[derive(Clone)]
pub struct Recorder {
    /// Channel to its thread.
    pub sender: Sender<RecorderMessage>,
    /// Its counters.
    pub stats: Arc<RecorderStats>,
    config: Arc<RecorderConfig>,
}

impl Recorder {
    /// A recorder whose messages another thread takes, for tests.
    #[must_use]
    pub fn with_sender(sender: Sender<RecorderMessage>) -> Self {
        let folder = std::env::temp_dir();
        let config = RecorderConfig { folder, min_free: 0, on_complete: Arc::new(|_| {}) };
        Self { sender, stats: Arc::default(), config: Arc::new(config) }
    }
}

/// Why this server cannot record calls now, in one sentence. May block for a system call.
#[must_use]
pub fn unavailable_reason(recorder: Option<&Recorder>) -> Option<String> {
    let Some(Recorder { config, .. }) = recorder else { return Some(NO_RECORDER.into()) };
    let error = create_folder(&config.folder)
        .and_then(|()| is_writable(&config.folder))
        .and_then(|()| has_space(config))
        .err()?;
    let reason = engine_api::describe_disk_error(&error);
    Some(format!("This server cannot record calls now: {reason}."))
}

/// Whether files can be created in a folder.
fn is_writable(folder: &Path) -> io::Result<()> {
    use rustix::fs::Access;
    Ok(rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
}

fn has_space(config: &RecorderConfig) -> io::Result<()> {
    if config.min_free == 0 {
        return Ok(());
    }
    let status = rustix::fs::statvfs(&config.folder)?;
    if status.f_bavail.saturating_mul(status.f_frsize) >= config.min_free {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is almost full"))
}

/// Starts the recorder's thread. It ends when the last sender is dropped.
///
/// # Errors
/// The folder cannot be created, or no thread can be started.
pub fn start(config: RecorderConfig) -> io::Result<Recorder> {
    start_with_interval(config, WRITE_INTERVAL)
}

fn start_with_interval(config: RecorderConfig, interval: Duration) -> io::Result<Recorder> {
    create_folder(&config.folder)?;
    let (sender, messages) = channel::open(&channel::RECORDER, None);
    let stats = Arc::<RecorderStats>::default();
    let config = Arc::new(config);
    let (shared, folder) = (Arc::clone(&stats), Arc::clone(&config));
    thread::spawn("recorder", move || {
        restart_forever(|| record(&folder, &messages, &shared, interval));
    })?;
    Ok(Recorder { sender, stats, config })
}

fn create_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn record(
    config: &RecorderConfig,
    messages: &Receiver<RecorderMessage>,
    stats: &RecorderStats,
    interval: Duration,
) {
    let mut files = Files { config, stats, open: HashMap::new() };
    let write = tick(interval);
    loop {
        if files.open.is_empty() {
            stats.cost.update_disk();
            let Ok(message) = messages.recv() else { return };
            files.handle(message);
            continue;
        }
        select! {
            recv(messages) -> message => match message {
                Ok(message) => files.handle(message),
                Err(_) => break,
            },
            recv(write) -> _ => {
                // The end of a call does not fit into a full channel.
                let ended = files.ended();
                messages.try_iter().for_each(|message| files.handle(message));
                ended.into_iter().for_each(|id| files.end(id));
                files.write();
                stats.cost.update_disk();
            }
        }
    }
    let ids: Vec<_> = files.open.keys().copied().collect();
    ids.into_iter().for_each(|id| files.end(id));
}

/// A file that is being written.
struct OpenFile {
    /// `None` after a failure. The file then waits for the end of the call, until which the user may
    /// discard it.
    writer: Option<CaptureWriter<File>>,
    state: Arc<RecordingState>,
}

struct Files<'a> {
    config: &'a RecorderConfig,
    stats: &'a RecorderStats,
    open: HashMap<ConversationId, OpenFile>,
}

impl Files<'_> {
    fn handle(&mut self, message: RecorderMessage) {
        match message {
            RecorderMessage::Start { id, video, state } => {
                // Somebody may have removed the folder.
                let prepared =
                    create_folder(&self.config.folder).and_then(|()| has_space(self.config));
                match prepared.and_then(|()| self.create(id, video)) {
                    Ok(writer) => {
                        self.open.insert(id, OpenFile { writer: Some(writer), state });
                    }
                    Err(error) => {
                        tracing::warn!(conversation = %id, %error, "cannot record a call");
                        self.stats.failed.fetch_add(1, Relaxed);
                        state.refuse(engine_api::describe_disk_error(&error));
                    }
                }
            }
            RecorderMessage::Packets(id, packets) => {
                let mut packets = packets.into_iter();
                let write = |writer: &mut CaptureWriter<File>| {
                    packets.try_for_each(|packet| writer.push(packet))
                };
                let written = self.with_writer(id, write);
                self.stats.dropped_packets.fetch_add(packets.len() as u64, Relaxed);
                self.fail_on_error(id, written);
            }
            RecorderMessage::End(id) => self.end(id),
            RecorderMessage::Discard(id) => {
                self.open.remove(&id);
                self.delete(id);
            }
        }
    }

    /// Writes to a file that is open and has not failed.
    fn with_writer(
        &mut self,
        id: ConversationId,
        write: impl FnOnce(&mut CaptureWriter<File>) -> io::Result<()>,
    ) -> io::Result<()> {
        let file = self.open.get_mut(&id).and_then(|file| file.writer.as_mut());
        let Some(writer) = file else { return Ok(()) };
        let before = writer.bytes();
        let written = write(writer);
        self.stats.bytes.fetch_add(writer.bytes() - before, Relaxed);
        written
    }

    fn delete(&self, id: ConversationId) {
        match fs::remove_file(capture_path(&self.config.folder, id)) {
            // It was never created.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::error!(conversation = %id, %error, "cannot delete a recording");
            }
            Ok(()) => {}
        }
    }

    fn create(&self, id: ConversationId, video: Option<Size>) -> io::Result<CaptureWriter<File>> {
        let path = capture_path(&self.config.folder, id);
        // Only the owner may hear what was said.
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        CaptureWriter::new(file, video)
    }

    /// Recordings of calls that have ended.
    fn ended(&self) -> Vec<ConversationId> {
        let ended = self.open.iter().filter(|(_, file)| Arc::strong_count(&file.state) == 1);
        ended.map(|(id, _)| *id).collect()
    }

    /// Writes what is not written yet.
    fn write(&mut self) {
        let space = has_space(self.config);
        let ids: Vec<_> = self.open.keys().copied().collect();
        for id in ids {
            let written = self.with_writer(id, CaptureWriter::flush);
            let space = space.as_ref().map_err(|error| {
                io::Error::new(error.kind(), engine_api::describe_disk_error(error))
            });
            self.fail_on_error(id, written.and(space.copied()));
        }
    }

    /// Completes a file, or deletes it if it is discarded.
    fn end(&mut self, id: ConversationId) {
        let Some(file) = self.open.remove(&id) else { return };
        if file.state.is_discarded.load(Relaxed) {
            return self.delete(id);
        }
        let flushed = file.writer.map_or(Ok(()), |mut writer| writer.flush());
        let ended = flushed.and_then(|()| {
            fs::rename(
                capture_path(&self.config.folder, id),
                recorded_path(&self.config.folder, id),
            )
        });
        match ended {
            Ok(()) => (self.config.on_complete)(id),
            Err(error) => {
                self.report_failure(id, &file.state, &error);
                // The rest of the server reports the loss.
                (self.config.on_complete)(id);
            }
        }
    }

    /// Ends a recording that cannot be written. What was written remains, and is delivered after the
    /// call.
    fn fail_on_error(&mut self, id: ConversationId, written: io::Result<()>) {
        let Err(error) = written else { return };
        let Some(file) = self.open.get_mut(&id) else { return };
        if file.writer.take().is_some() {
            let state = Arc::clone(&file.state);
            self.report_failure(id, &state, &error);
        }
    }

    fn report_failure(&self, id: ConversationId, state: &RecordingState, error: &io::Error) {
        tracing::warn!(conversation = %id, %error, "cannot record a call any more");
        // A call whose packets waited for too long has reported a failure before.
        if state.fail(engine_api::describe_disk_error(error)) {
            self.stats.failed.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
