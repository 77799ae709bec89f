//! Uploads the files of videos into the storage, and removes deleted videos from everywhere. What
//! fails is tried again from the store, with increasing delays and without an end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;

use super::document::Document;
use super::files::{StoredFile, VideoFolder};
use super::webhook::{Outcome, VideoWebhooks};
use crate::clock;
use crate::resources::recordings::{pause, retry_delay};
use crate::state::supervise::BackgroundTask;
use crate::state::video_queue::VideoQueue;
use crate::storage::{self, FileKind, Storage};
use crate::store::video::{self, PROCESSING, Row, STORING};
use crate::store::video_job::{self as table, Rendered, Retry};
use crate::store::{self, Lock, Store, json_record};

const MISSING: &str = "a file of it is missing";

/// The task that uploads and deletes videos.
pub(crate) struct VideoStoringTask {
    pub(crate) store: Store,
    pub(crate) server_id: Arc<str>,
    pub(crate) folder: VideoFolder,
    pub(crate) storage: Arc<Storage>,
    /// Delay before the first repetition.
    pub(crate) retry_delay: Duration,
    pub(crate) queue: Arc<VideoQueue>,
    pub(crate) webhooks: VideoWebhooks,
}

impl BackgroundTask for VideoStoringTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let work = async {
                let processed = self.process_due().await;
                pause("video uploads", processed, self.retry_delay, &self.queue.storage_work).await;
            };
            tokio::select! {
                // An upload that the stop interrupts begins anew after the next start.
                () = work => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

impl VideoStoringTask {
    /// Processes what is due. Returns whether more waits.
    async fn process_due(&self) -> store::Result<bool> {
        let (store, server, is_local) = (&self.store, &self.server_id, self.storage.is_local());
        loop {
            let now = clock::now();
            // Nobody may wait for a deletion longer than necessary.
            if let Some(row) = store.due_video_deletion(server, is_local, now).await? {
                self.delete(&row).await?;
            } else if let Some(row) = store.due_video_upload(server, now).await? {
                self.upload(&row).await?;
            } else {
                return store.has_videos_to_move(server).await;
            }
        }
    }

    async fn upload(&self, row: &Row) -> store::Result<()> {
        let files = self.folder.files(&row.id);
        for file in StoredFile::all_of(row) {
            let name = file.name(&row.id);
            let kind = FileKind { content_type: file.content_type(), name: &name };
            let path = files.finished(file);
            match self.storage.upload(&file.key(&row.id), &path, &kind).await {
                Ok(()) => {}
                Err(storage::Error::File(_, error)) if error.kind() == io::ErrorKind::NotFound => {
                    // It is made again, at most as often as after other failures.
                    tracing::error!(video = %row.id, "the files of a video are missing");
                    return self.retry(row, PROCESSING, MISSING).await;
                }
                Err(error) => {
                    self.queue.failed_uploads.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(
                        video = %row.id,
                        %error,
                        attempts = row.attempts + 1,
                        "cannot upload a video; retrying"
                    );
                    return self.retry(row, STORING, error.describe()).await;
                }
            }
        }
        let document: Document = json_record::parse_document(&row.document)?;
        let rendered = Rendered {
            bytes: row.bytes,
            duration_ms: row.duration_ms,
            has_captions: row.has_captions == 1,
            warnings: row.warnings.clone(),
        };
        let (server, now) = (&self.server_id, clock::now());
        let mut tx = self.store.begin_write(Lock::Rows).await?;
        // The storage works: those that wait for it are tried again without delay.
        table::hasten_uploads(&mut tx, server).await?;
        // A video that was deleted during its upload is in the queue of deletions.
        let mut delivery = None;
        if table::mark_completed(&mut tx, server, &row.id, now).await? {
            let outcome = Outcome::Completed(&rendered);
            delivery = self.webhooks.insert(&mut tx, row, &document, &outcome, now).await?;
        }
        tx.commit().await?;
        self.webhooks.announce(delivery);
        if let Err(error) = files.remove().await {
            tracing::error!(video = %row.id, %error, "cannot remove the files of a video");
        }
        Ok(())
    }

    /// Removes all copies that this server can reach.
    async fn delete(&self, row: &Row) -> store::Result<()> {
        if let Err(error) = self.remove_copies(&row.id).await {
            tracing::warn!(
                video = %row.id,
                %error,
                attempts = row.attempts + 1,
                "cannot delete a video; retrying"
            );
            let now = clock::now();
            let next = now + clock::to_micros(retry_delay(self.retry_delay, row.attempts));
            let mut tx = self.store.begin_write(Lock::Rows).await?;
            table::retry_deletion(&mut tx, &row.id, error.describe(), next, now).await?;
            return tx.commit().await;
        }
        let mut tx = self.store.begin_write(Lock::Workspace(&row.workspace)).await?;
        video::finish_deletion(&mut tx, row).await?;
        tx.commit().await
    }

    async fn remove_copies(&self, id: &str) -> Result<(), storage::Error> {
        let removed = self.folder.files(id).remove().await;
        removed.map_err(|error| storage::Error::File(id.to_owned(), error))?;
        // An upload may have finished although the store does not know of it.
        for key in StoredFile::all_keys(id) {
            self.storage.delete(&key).await?;
        }
        Ok(())
    }

    async fn retry(&self, row: &Row, status: &str, reason: &str) -> store::Result<()> {
        let now = clock::now();
        let next = now + clock::to_micros(retry_delay(self.retry_delay, row.attempts));
        let retry = Retry { status, reason, is_counted: true, next };
        let mut tx = self.store.begin_write(Lock::Rows).await?;
        table::retry_at(&mut tx, row, &retry, now).await?;
        tx.commit().await
    }
}
