//! Wakes the tasks that deliver, upload and delete recordings.

use std::sync::atomic::AtomicU64;

use tokio::sync::Notify;

/// The queue itself is in the store.
#[derive(Default)]
pub(crate) struct RecordingQueue {
    /// Notified when the file of a call is complete.
    pub(crate) captured: Notify,
    /// Notified when there is a file to upload, or a recording to delete.
    pub(crate) storage_work: Notify,
    /// Number of attempts to upload a recording that failed.
    pub(crate) failed_uploads: AtomicU64,
    /// Number of attempts to delete a recording that failed.
    pub(crate) failed_deletions: AtomicU64,
}
