//! What the deliveries and the conversions of recordings have in common: how a step ends.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conversation::id::ConversationId;

use super::child::{self, Failure};
use super::files::{self, RecordingFolder, WEBM};
use super::{POLL_INTERVAL, append_warning, give_up, retry_delay};
use crate::clock;
use crate::state::event_queue::EventQueue;
use crate::state::event_storage::EventStorage;
use crate::state::recording_queue::RecordingQueue;
use crate::store::agent::{Agent, Recording};
use crate::store::conversation::Row as Conversation;
use crate::store::fairness;
use crate::store::recording::{self as table, Delivered, FINISHED, Row};
use crate::store::{self, Lock, Store, json_record};

/// Failed attempts after which a recording is given up.
const MAX_ATTEMPTS: i64 = 5;
/// Attempts that wait for space, or for the file of the call, have the delay after this many failed
/// ones.
const WAITING_DELAY: i64 = 2;

/// Writes the files of recordings.
#[derive(Clone)]
pub(crate) struct Worker {
    /// Stores warnings.
    pub(crate) event_storage: EventStorage,
    /// Events that precede the warnings.
    pub(crate) events: EventQueue,
    pub(crate) folder: RecordingFolder,
    /// Program and arguments that write recordings.
    pub(crate) command: Vec<OsString>,
    pub(crate) ffmpeg: Option<PathBuf>,
    /// Free bytes of the disk below which nothing is written; 0 = no limit.
    pub(crate) min_free: u64,
    /// Delay before the first repetition.
    pub(crate) retry_delay: Duration,
    pub(crate) queue: Arc<RecordingQueue>,
}

/// What was written.
pub(super) struct Finished {
    /// Status of the recording from now on.
    pub(super) status: &'static str,
    pub(super) format: &'static str,
    pub(super) file: PathBuf,
    pub(super) duration_ms: i64,
    pub(super) bytes: i64,
    /// Why the recording is not what the agent asks for, each in one sentence.
    pub(super) warnings: Vec<String>,
}

impl Worker {
    pub(super) fn store(&self) -> &Store {
        &self.event_storage.store
    }

    /// Runs a step of a recording, and stores how it ends. The step ends at once, with its child
    /// process, if the recording is deleted meanwhile.
    pub(super) async fn run(
        &self,
        kind: &'static str,
        row: &Row,
        step: impl Future<Output = Result<(ConversationId, Finished), Failure>>,
    ) -> store::Result<()> {
        let mut tx = self.store().begin_write(Lock::Jobs(kind)).await?;
        fairness::record_turn(&mut tx, kind, &row.workspace).await?;
        tx.commit().await?;
        let result = tokio::select! {
            biased;
            result = step => result,
            () = self.deleted(row) => return Ok(()),
        };
        match result {
            Ok((id, finished)) => self.finish(row, id, finished).await,
            Err(failure) => self.fail(row, failure).await,
        }
    }

    /// Returns when the recording is not in the status of `row` any more.
    async fn deleted(&self, row: &Row) {
        loop {
            let notified = self.queue.deletions.notified();
            match self.store().recording(&row.conversation).await {
                Ok(now) if now.as_ref().is_none_or(|now| now.status != row.status) => return,
                // An error of the store is reported by what the step stores.
                _ => {}
            }
            // Another server, or the retention, deletes without a notification.
            let _ = tokio::time::timeout(POLL_INTERVAL, notified).await;
        }
    }

    /// The conversation, and how its agent wants recordings; `None` if it is erased.
    pub(super) async fn settings(
        &self,
        id: &str,
    ) -> store::Result<Option<(Conversation, Recording)>> {
        let row = self.store().conversation_in_any_workspace(id).await?;
        let Some(row) = row else { return Ok(None) };
        let agent: Agent = json_record::parse_document(&row.agent_document)?;
        Ok(Some((row, agent.settings.config.recording)))
    }

    /// Whether a file of about this size fits onto the disk.
    pub(super) fn check_space(&self, bytes: u64) -> Result<(), Failure> {
        check_space(&self.folder.0, bytes, self.min_free)
    }

    async fn finish(&self, row: &Row, id: ConversationId, finished: Finished) -> store::Result<()> {
        let delivered = Delivered {
            format: finished.format,
            bytes: finished.bytes,
            duration_ms: finished.duration_ms,
        };
        if !finished.warnings.is_empty() {
            self.events.flush(self.store()).await;
        }
        let mut tx = self.store().begin_write(Lock::Rows).await?;
        let now = clock::now();
        let exists = table::mark_written(&mut tx, row, finished.status, &delivered, now).await?;
        let mut appended = Vec::new();
        for text in finished.warnings.into_iter().filter(|_| exists) {
            let warning =
                append_warning(&self.event_storage, &mut tx, &row.conversation, text, now).await?;
            appended.extend(warning);
        }
        tx.commit().await?;
        for warning in appended {
            warning.publish(&self.event_storage);
        }
        // Without a row, or for a deleted one, the next collection removes all files.
        let leftover = [self.folder.recorded(id), self.folder.delivered(id, WEBM)];
        for file in leftover.iter().filter(|file| exists && **file != finished.file) {
            if let Err(error) = files::remove(file).await {
                tracing::error!(conversation = %id, %error, "cannot remove a recording's file");
            }
        }
        match finished.status {
            FINISHED => self.queue.storage_work.notify_one(),
            _ => self.queue.conversion_work.notify_one(),
        }
        Ok(())
    }

    async fn fail(&self, row: &Row, failure: Failure) -> store::Result<()> {
        let id = &row.conversation;
        let (reason, is_counted, is_final) = match failure {
            Failure::Permanent(reason) => (reason, true, true),
            Failure::Temporary(reason) => (reason, true, row.attempts + 1 >= MAX_ATTEMPTS),
            Failure::Waiting(reason) => (reason, false, false),
        };
        tracing::error!(conversation = %id, %reason, is_final, "cannot deliver a recording");
        if is_final {
            self.events.flush(self.store()).await;
            let warning = format!("The recording cannot be delivered: {reason}.");
            return give_up(&self.event_storage, id, &reason, warning).await;
        }
        let mut tx = self.store().begin_write(Lock::Rows).await?;
        let now = clock::now();
        let failed = if is_counted { row.attempts } else { WAITING_DELAY };
        let next = now + clock::to_micros(retry_delay(self.retry_delay, failed));
        if is_counted {
            table::retry_at(&mut tx, row, &reason, next, now).await?;
        } else {
            table::wait_until(&mut tx, row, &reason, next, now).await?;
        }
        tx.commit().await
    }
}

/// Whether a file of about this size fits into a folder. `min_free`: bytes that stay free on its
/// disk.
pub(crate) fn check_space(folder: &Path, bytes: u64, min_free: u64) -> Result<(), Failure> {
    let status =
        rustix::fs::statvfs(folder).map_err(|error| child::io_failure(&io::Error::from(error)))?;
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    if free < bytes {
        return Err(Failure::Waiting("the disk is full".into()));
    }
    if free < min_free {
        return Err(Failure::Waiting("the disk is almost full".into()));
    }
    Ok(())
}

/// Removes what an attempt that failed has left: a part of a file would take the space that others
/// wait for.
pub(super) async fn remove_part(part: &Path) {
    if let Err(error) = files::remove(part).await {
        tracing::error!(file = %part.display(), %error, "cannot remove a part of a recording");
    }
}
