//! The files of recordings in the data folder. The folder is the queue of what must be delivered:
//! a file of an ended call is there even if the process was killed at any moment.

use std::io;
use std::path::{Path, PathBuf};

use conversation::id::ConversationId;

use crate::clock;
use crate::store::recording::{self as table, CAPTURED, CONVERTING, FAILED, FINISHED};
use crate::store::{self, Lock, Store};

/// Extension of a file that is being written.
const PARTIAL: &str = "part";
/// The formats of delivered files.
pub(super) const WEBM: &str = "webm";
pub(super) const MP4: &str = "mp4";

/// The folder of recordings.
#[derive(Clone)]
pub(crate) struct RecordingFolder(pub(crate) PathBuf);

impl RecordingFolder {
    /// The folder in a data folder.
    pub(crate) fn of(data: &Path) -> Self {
        Self(data.join(engine_api::RECORDINGS_FOLDER))
    }

    /// The file of a call that runs, or that the recorder has not completed yet.
    pub(super) fn capture(&self, id: ConversationId) -> PathBuf {
        self.0.join(engine_api::capture_name(id))
    }

    /// The file of a call that has ended.
    pub(super) fn recorded(&self, id: ConversationId) -> PathBuf {
        self.0.join(engine_api::recorded_name(id))
    }

    /// The delivered file, until it is in the storage.
    pub(super) fn delivered(&self, id: ConversationId, format: &str) -> PathBuf {
        self.0.join(format!("{id}.{format}"))
    }

    /// The delivered file while it is written.
    pub(super) fn partial(&self, id: ConversationId, format: &str) -> PathBuf {
        self.0.join(format!("{id}.{format}.{PARTIAL}"))
    }

    /// Removes all files of a recording except that of a running call.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub(crate) async fn remove_all(&self, id: ConversationId) -> io::Result<()> {
        for file in self.files(id) {
            remove(&file).await?;
        }
        Ok(())
    }

    /// All files of a recording except that of a running call.
    fn files(&self, id: ConversationId) -> [PathBuf; 6] {
        [
            self.recorded(id),
            self.delivered(id, WEBM),
            self.delivered(id, MP4),
            self.partial(id, WEBM),
            self.partial(id, MP4),
            // The child writes the partial file under this name first.
            self.0.join(format!("{id}.{WEBM}.{PARTIAL}.new")),
        ]
    }

    /// Adds the recordings of new files to the store, and removes files that nothing needs: those
    /// of erased conversations, of deleted and of refused recordings, and what a crash left. What
    /// cannot be removed is tried again at the next collection.
    pub(super) async fn collect(&self, store: &Store, server: &str) -> store::Result<()> {
        for (file, id) in self.list().await {
            if !self.is_needed(store, server, &file, id).await?
                && let Err(error) = remove(&file).await
            {
                tracing::error!(conversation = %id, %error, "cannot remove a recording's file");
            }
        }
        Ok(())
    }

    async fn is_needed(
        &self,
        store: &Store,
        server: &str,
        file: &Path,
        id: ConversationId,
    ) -> store::Result<bool> {
        let conversation = id.to_string();
        let (is_recorded, is_capture) = (file == self.recorded(id), file == self.capture(id));
        let mut row = store.recording(&conversation).await?;
        if row.is_none() && (is_recorded || is_capture) {
            if store.is_recording_refused(&conversation).await? {
                return Ok(false);
            }
            if is_capture {
                // Its first packet has not been sent yet, if the conversation still exists.
                return Ok(store.conversation_in_any_workspace(&conversation).await?.is_some());
            }
            let mut tx = store.begin_write(Lock::Rows).await?;
            table::insert(&mut tx, &conversation, server, CAPTURED, clock::now()).await?;
            tx.commit().await?;
            row = store.recording(&conversation).await?;
        }
        Ok(row.is_some_and(|row| match row.status.as_str() {
            CAPTURED => true,
            // The operator may want to know what is wrong with it.
            FAILED => is_recorded || is_capture,
            CONVERTING => file == self.delivered(id, WEBM) || file == self.partial(id, MP4),
            FINISHED => file == self.delivered(id, &row.format),
            _ => false,
        }))
    }

    /// The files of recordings.
    async fn list(&self) -> Vec<(PathBuf, ConversationId)> {
        let mut found = Vec::new();
        // Without the folder there are no recordings.
        let Ok(mut entries) = tokio::fs::read_dir(&self.0).await else { return found };
        while let Ok(Some(entry)) = entries.next_entry().await {
            let file = entry.path();
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(id) = name.split('.').next().and_then(|id| id.parse().ok()) else { continue };
            if file == self.capture(id) || self.files(id).contains(&file) {
                found.push((file, id));
            }
        }
        found
    }
}

/// Removes a file, if it exists.
pub(crate) async fn remove(file: &Path) -> io::Result<()> {
    match tokio::fs::remove_file(file).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
