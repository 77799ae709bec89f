//! Uploads delivered recordings into the storage, and removes deleted ones from everywhere. What
//! fails is tried again from the store, with increasing delays and without an end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use conversation::event::Event;
use conversation::id::ConversationId;
use tokio::sync::watch;

use super::files::{self, RecordingFolder};
use super::{file_name, give_up, pause, retry_delay, storage_key};
use crate::clock;
use crate::events;
use crate::state::event_queue::EventQueue;
use crate::state::event_storage::EventStorage;
use crate::state::recording_queue::RecordingQueue;
use crate::state::supervise::BackgroundTask;
use crate::storage::{self, FileKind, Storage};
use crate::store::conversation::ENDED;
use crate::store::recording::{self as table, Row};
use crate::store::{self, Lock};

/// The task that uploads and deletes recordings.
pub(crate) struct StoringTask {
    /// Stores the events of recordings that are ready.
    pub(crate) event_storage: EventStorage,
    /// Events that precede them.
    pub(crate) events: EventQueue,
    pub(crate) folder: RecordingFolder,
    pub(crate) storage: Arc<Storage>,
    /// Delay before the first repetition.
    pub(crate) retry_delay: Duration,
    pub(crate) queue: Arc<RecordingQueue>,
}

impl BackgroundTask for StoringTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let work = async {
                let processed = self.process_due().await;
                pause("uploads", processed, self.retry_delay, &self.queue.storage_work).await;
            };
            tokio::select! {
                // An upload that the stop interrupts begins anew after the next start.
                () = work => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

impl StoringTask {
    /// Processes what is due. Returns whether more waits.
    async fn process_due(&self) -> store::Result<bool> {
        let (store, server) = (&self.event_storage.store, &*self.event_storage.server_id);
        loop {
            // Nobody may wait for the deletion of a recording longer than necessary.
            if let Some(row) = store.due_deletion(server, clock::now()).await? {
                self.delete(&row).await?;
            } else if let Some(row) = store.due_upload(server, clock::now()).await? {
                self.upload(&row).await?;
            } else {
                return store.has_recordings_to_move(server).await;
            }
        }
    }

    async fn upload(&self, row: &Row) -> store::Result<()> {
        let Ok(id) = row.conversation.parse::<ConversationId>() else {
            return self.fail(row, "its id is not valid").await;
        };
        let file = self.folder.delivered(id, &row.format);
        let key = storage_key(id, &row.format);
        let name = file_name(id, &row.format);
        let kind = FileKind { content_type: super::content_type(&row.format), name: &name };
        match self.storage.upload(&key, &file, &kind).await {
            Ok(()) => {}
            Err(storage::Error::File(_, error)) if error.kind() == io::ErrorKind::NotFound => {
                return self.fail(row, "the delivered file is missing").await;
            }
            Err(error) => {
                self.queue.failed_uploads.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    conversation = %id,
                    %error,
                    attempts = row.attempts + 1,
                    "cannot upload a recording; retrying"
                );
                return self.retry(row, error.describe()).await;
            }
        }
        let store = &self.event_storage.store;
        self.events.flush(store).await;
        let mut tx = store.begin_write(Lock::Rows).await?;
        let now = clock::now();
        // The storage works: those that wait for it are tried again without delay.
        table::hasten_uploads(&mut tx, &self.event_storage.server_id).await?;
        // A recording that was deleted during its upload is in the queue of deletions.
        let ready = if table::mark_stored(&mut tx, &row.conversation, &key, now).await? {
            let event = Event::RecordingReady {
                duration: row.duration_ms as f64 / 1_000.0,
                bytes: u64::try_from(row.bytes).unwrap_or(0),
                format: row.format.clone(),
            };
            let events = vec![(now, event)];
            events::append_in(&self.event_storage, &mut tx, &row.conversation, ENDED, events)
                .await?
        } else {
            None
        };
        tx.commit().await?;
        if let Some(ready) = ready {
            ready.publish(&self.event_storage);
        }
        if let Err(error) = files::remove(&file).await {
            tracing::error!(conversation = %id, %error, "cannot remove a recording's file");
        }
        Ok(())
    }

    /// Removes all copies that this server can reach.
    async fn delete(&self, row: &Row) -> store::Result<()> {
        let is_own = row.server == *self.event_storage.server_id;
        if let Err(error) = self.remove_copies(row, is_own).await {
            self.queue.failed_deletions.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                conversation = %row.conversation,
                %error,
                attempts = row.attempts + 1,
                "cannot delete a recording; retrying"
            );
            return self.retry(row, error.describe()).await;
        }
        let mut tx = self.event_storage.store.begin_write(Lock::Rows).await?;
        table::finish_deletion(&mut tx, &row.conversation, is_own, clock::now()).await?;
        tx.commit().await
    }

    async fn remove_copies(&self, row: &Row, is_own: bool) -> Result<(), storage::Error> {
        // An id that is not valid has no file.
        let Ok(id) = row.conversation.parse::<ConversationId>() else { return Ok(()) };
        if is_own {
            let removed = self.folder.remove_all(id).await;
            removed.map_err(|error| storage::Error::File(id.to_string(), error))?;
        }
        // An upload may have finished although the store does not know of it.
        if !row.format.is_empty() {
            self.storage.delete(&storage_key(id, &row.format)).await?;
        }
        Ok(())
    }

    async fn retry(&self, row: &Row, error: &str) -> store::Result<()> {
        let now = clock::now();
        let next = now + clock::to_micros(retry_delay(self.retry_delay, row.attempts));
        let mut tx = self.event_storage.store.begin_write(Lock::Rows).await?;
        table::retry_at(&mut tx, row, error, next, now).await?;
        tx.commit().await
    }

    async fn fail(&self, row: &Row, reason: &str) -> store::Result<()> {
        let id = &row.conversation;
        tracing::error!(conversation = %id, reason, "cannot upload a recording");
        self.events.flush(&self.event_storage.store).await;
        let warning = format!("The recording cannot be stored: {reason}.");
        give_up(&self.event_storage, id, reason, warning).await
    }
}
