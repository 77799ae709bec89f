//! Writes the delivered files of recordings, one after the other, each in a child process.
//!
//! ```text
//! ID.recorded --> child: ID.webm.part --> ID.webm (or ID.mp4) --> FINISHED
//!                   ^   |  killed, or failed
//!                   |   +------------------------> repeated, with increasing delays --> FAILED
//!                   |   |  the capture cannot be read
//!                   |   +------------------------> FAILED
//!                   +-- after a restart
//! ```

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conversation::id::ConversationId;
use tokio::sync::watch;

use super::child::{self, Failure};
use super::files::{self, MP4, RecordingFolder, WEBM};
use super::{append_warning, give_up, retry_delay};
use crate::clock;
use crate::state::event_queue::EventQueue;
use crate::state::event_storage::EventStorage;
use crate::state::recording_queue::RecordingQueue;
use crate::state::supervise::BackgroundTask;
use crate::store::agent::{Agent, Recording, RecordingFormat};
use crate::store::recording::{self as table, Delivered, Row};
use crate::store::{self, json_record};

/// Delay after a failure of the store.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(10);
/// Maximum interval between two looks at recordings that are not due yet.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between two looks at the folder without a notification.
const IDLE_INTERVAL: Duration = Duration::from_secs(30);
/// Delivery begins this long after the end of the call. The last events of a call follow its end by
/// up to 1.5 s.
const SETTLING_TIME: Duration = Duration::from_secs(3);
/// Failed attempts after which a recording is given up.
const MAX_ATTEMPTS: i64 = 5;

/// The task that delivers recordings.
pub(crate) struct DeliveryTask {
    /// Stores warnings.
    pub(crate) event_storage: EventStorage,
    /// Events that precede the warnings.
    pub(crate) events: EventQueue,
    pub(crate) folder: RecordingFolder,
    /// Program and arguments that write recordings.
    pub(crate) command: Vec<OsString>,
    pub(crate) ffmpeg: Option<PathBuf>,
    /// Delay before the first repetition.
    pub(crate) retry_delay: Duration,
    pub(crate) queue: Arc<RecordingQueue>,
}

impl BackgroundTask for DeliveryTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let work = async {
                let wait = match self.deliver_due().await {
                    Ok(true) => self.retry_delay.min(POLL_INTERVAL),
                    Ok(false) => IDLE_INTERVAL,
                    Err(error) => {
                        tracing::error!(%error, "cannot process the queue of recordings");
                        STORE_RETRY_DELAY
                    }
                };
                // A timeout is no failure.
                let _ = tokio::time::timeout(wait, self.queue.captured.notified()).await;
            };
            tokio::select! {
                // A delivery that the stop interrupts begins anew after the next start; the child is
                // killed when its handle is dropped.
                () = work => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

/// What is delivered.
struct Finished {
    format: &'static str,
    file: PathBuf,
    summary: child::Summary,
    /// Why the format is not the one that the agent asks for.
    warning: Option<String>,
}

impl DeliveryTask {
    /// Delivers what is due. Returns whether more recordings wait.
    async fn deliver_due(&self) -> store::Result<bool> {
        let (store, server) = (&self.event_storage.store, &*self.event_storage.server_id);
        self.folder.collect(store, server).await?;
        loop {
            let now = clock::now();
            let ended_before = now - clock::to_micros(SETTLING_TIME);
            let Some(row) = store.due_capture(server, ended_before, now).await? else {
                return store.has_recordings_to_deliver(server).await;
            };
            self.deliver(&row).await?;
        }
    }

    async fn deliver(&self, row: &Row) -> store::Result<()> {
        let result = match row.conversation.parse() {
            Ok(id) => match self.settings(&row.conversation).await? {
                Some(settings) => self.write_file(id, &settings).await.map(|file| (id, file)),
                // Erased meanwhile.
                None => return Ok(()),
            },
            Err(_) => Err(Failure::Permanent("its id is not valid".into())),
        };
        match result {
            Ok((id, finished)) => self.finish(row, id, finished).await,
            Err(failure) => self.fail(row, failure).await,
        }
    }

    /// How the agent wants its recordings; `None` if the conversation does not exist any more.
    async fn settings(&self, id: &str) -> store::Result<Option<Recording>> {
        let row = self.event_storage.store.conversation_in_any_workspace(id).await?;
        let Some(row) = row else { return Ok(None) };
        let agent: Agent = json_record::parse_document(&row.agent_document)?;
        Ok(Some(agent.settings.config.recording))
    }

    async fn write_file(
        &self,
        id: ConversationId,
        settings: &Recording,
    ) -> Result<Finished, Failure> {
        let failed = |error: io::Error| Failure::Temporary(error.to_string());
        let capture = self.folder.recorded(id);
        if !capture.exists() {
            return Err(Failure::Permanent("the file of the call is missing".into()));
        }
        let partial = self.folder.partial(id, WEBM);
        // A child of an earlier process may still have it open.
        files::remove(&partial).await.map_err(failed)?;
        let mut summary =
            child::deliver(&self.command, &capture, &partial, settings.channels).await?;
        let duration_ms = u64::try_from(summary.duration_ms).unwrap_or(0);
        self.queue.deliveries.add(duration_ms, summary.cpu_us);
        let webm = self.folder.delivered(id, WEBM);
        tokio::fs::rename(&partial, &webm).await.map_err(failed)?;
        let mut warning = None;
        if settings.format == RecordingFormat::Mp4 {
            match self.convert(id, &webm).await {
                Ok(file) => {
                    let size = tokio::fs::metadata(&file).await.map_err(failed)?.len();
                    summary.bytes = i64::try_from(size).unwrap_or(i64::MAX);
                    return Ok(Finished { format: MP4, file, summary, warning });
                }
                Err(reason) => warning = Some(format!("The recording is WebM, not MP4: {reason}.")),
            }
        }
        Ok(Finished { format: WEBM, file: webm, summary, warning })
    }

    /// Converts a file to MP4. The error says why there is none.
    async fn convert(&self, id: ConversationId, webm: &Path) -> Result<PathBuf, String> {
        let ffmpeg = self.ffmpeg.as_ref().ok_or("ffmpeg is not installed on the server")?;
        let (partial, file) = (self.folder.partial(id, MP4), self.folder.delivered(id, MP4));
        let failed = |error: io::Error| error.to_string();
        files::remove(&partial).await.map_err(failed)?;
        if let Err(Failure::Permanent(reason) | Failure::Temporary(reason)) =
            child::convert(&self.command, ffmpeg, webm, &partial).await
        {
            tracing::error!(conversation = %id, %reason, "ffmpeg cannot convert a recording");
            // The reason names files of the server.
            return Err("ffmpeg failed on the server".into());
        }
        tokio::fs::rename(&partial, &file).await.map_err(failed)?;
        Ok(file)
    }

    async fn finish(&self, row: &Row, id: ConversationId, finished: Finished) -> store::Result<()> {
        let delivered = Delivered {
            format: finished.format,
            bytes: finished.summary.bytes,
            duration_ms: finished.summary.duration_ms,
        };
        let store = &self.event_storage.store;
        if finished.warning.is_some() {
            self.events.flush(store).await;
        }
        let mut tx = store.begin_write().await?;
        let now = clock::now();
        let exists = table::mark_finished(&mut tx, &row.conversation, &delivered, now).await?;
        let warning = match finished.warning.filter(|_| exists) {
            Some(text) => {
                append_warning(&self.event_storage, &mut tx, &row.conversation, text, now).await?
            }
            None => None,
        };
        tx.commit().await?;
        if let Some(warning) = warning {
            warning.publish(&self.event_storage);
        }
        // Without a row, or for a deleted one, the next collection removes all files.
        let leftover = [self.folder.recorded(id), self.folder.delivered(id, WEBM)];
        for file in leftover.iter().filter(|file| exists && **file != finished.file) {
            if let Err(error) = files::remove(file).await {
                tracing::error!(conversation = %id, %error, "cannot remove a recording's file");
            }
        }
        self.queue.storage_work.notify_one();
        Ok(())
    }

    async fn fail(&self, row: &Row, failure: Failure) -> store::Result<()> {
        let store = &self.event_storage.store;
        let (reason, is_final) = match failure {
            Failure::Permanent(reason) => (reason, true),
            Failure::Temporary(reason) => (reason, row.attempts + 1 >= MAX_ATTEMPTS),
        };
        let id = &row.conversation;
        tracing::error!(conversation = %id, %reason, is_final, "cannot deliver a recording");
        if is_final {
            self.events.flush(store).await;
            let warning = format!("The recording cannot be delivered: {reason}.");
            return give_up(&self.event_storage, id, &reason, warning).await;
        }
        let mut tx = store.begin_write().await?;
        let now = clock::now();
        let next = now + clock::to_micros(retry_delay(self.retry_delay, row.attempts));
        table::retry_at(&mut tx, row, &reason, next, now).await?;
        tx.commit().await
    }
}
