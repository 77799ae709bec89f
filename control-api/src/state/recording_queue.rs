//! Wakes the tasks that deliver, upload and delete recordings.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::Notify;

/// The queue itself is in the store.
#[derive(Default)]
pub(crate) struct RecordingQueue {
    /// Notified when the file of a call is complete.
    pub(crate) captured: Notify,
    /// Notified when there is a file to convert.
    pub(crate) conversion_work: Notify,
    /// Wakes all that work at a recording: one is deleted.
    pub(crate) deletions: Notify,
    /// Notified when there is a file to upload, or a recording to delete.
    pub(crate) storage_work: Notify,
    /// Number of attempts to upload a recording that failed.
    pub(crate) failed_uploads: AtomicU64,
    /// Number of attempts to delete a recording that failed.
    pub(crate) failed_deletions: AtomicU64,
    /// What the child processes have written.
    pub(crate) deliveries: Deliveries,
}

impl RecordingQueue {
    /// A recording is to be deleted: work at it ends, and its files are removed.
    pub(crate) fn begin_deletion(&self) {
        self.deletions.notify_waiters();
        self.storage_work.notify_one();
    }
}

/// Totals of the deliveries of this process. A recording whose delivery is repeated counts again.
#[derive(Default)]
pub(crate) struct Deliveries {
    /// Number of files.
    pub(crate) count: AtomicU64,
    /// Duration of the recordings, in ms.
    pub(crate) duration_ms: AtomicU64,
    /// CPU time of the child processes, in µs, without conversions to MP4.
    pub(crate) cpu_us: AtomicU64,
}

impl Deliveries {
    /// Adds a file.
    pub(crate) fn add(&self, duration_ms: u64, cpu_us: u64) {
        self.duration_ms.fetch_add(duration_ms, Relaxed);
        self.cpu_us.fetch_add(cpu_us, Relaxed);
        // Last, so that a reader who sees the file usually sees its cost, too.
        self.count.fetch_add(1, Relaxed);
    }
}
