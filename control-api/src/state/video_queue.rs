//! Wakes the tasks that make, upload and delete videos, and what they report.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::recording_queue::Deliveries;

/// The queue itself is in the store.
#[derive(Default)]
pub(crate) struct VideoQueue {
    /// Notified when a video is queued.
    pub(crate) queued: Notify,
    /// Wakes all that work at a video: one is deleted.
    pub(crate) deletions: Notify,
    /// Notified when there are files to upload, or a video to delete.
    pub(crate) storage_work: Notify,
    /// Number of attempts to upload a video that failed.
    pub(crate) failed_uploads: AtomicU64,
    /// What the child processes have written.
    pub(crate) rendered: Deliveries,
    /// Whether this process serves no files, because it is a worker.
    pub(crate) serves_no_files: AtomicBool,
    /// Videos whose sound is being received: their folders have no row yet.
    incoming: Mutex<HashSet<String>>,
}

impl VideoQueue {
    /// A video is to be deleted: work at it ends, and its files are removed.
    pub(crate) fn begin_deletion(&self) {
        self.deletions.notify_waiters();
        self.storage_work.notify_one();
    }

    fn incoming(&self) -> MutexGuard<'_, HashSet<String>> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sound of a video is being received from now on.
    pub(crate) fn begin_receiving(&self, id: &str) {
        self.incoming().insert(id.to_owned());
    }

    /// The video has a row now, or there will be none.
    pub(crate) fn end_receiving(&self, id: &str) {
        self.incoming().remove(id);
    }

    /// Whether the sound of a video is being received.
    pub(crate) fn is_receiving(&self, id: &str) -> bool {
        self.incoming().contains(id)
    }
}
