//! Whether writes to the store succeed. A full disk or an unreachable database must not lose an
//! event, and no event may be reported as stored that is not.
//!
//! ```text
//! writable -- report_failure, report_sql_error --> failing (with the first reason)
//! failing --- report_success (a COMMIT) ---------> writable
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use super::Error;

/// Result of the latest writes: the reason of a failure, or `None`.
pub(crate) struct WriteHealth {
    failure: watch::Sender<Option<String>>,
    /// Whether no later write can succeed.
    is_permanent: AtomicBool,
}

impl Default for WriteHealth {
    fn default() -> Self {
        Self { failure: watch::Sender::new(None), is_permanent: AtomicBool::new(false) }
    }
}

impl WriteHealth {
    /// Why writes fail now; `None` while they succeed.
    pub(crate) fn failure_reason(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Waits until writes fail.
    pub(crate) async fn wait_for_failure(&self) {
        // The sender lives as long as this value.
        let _ = self.failure.subscribe().wait_for(Option::is_some).await;
    }

    /// A receiver that is notified when writes start to fail, and when they succeed again.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<String>> {
        self.failure.subscribe()
    }

    /// Records that a write failed or is late, and that every other write would fail too. Only the
    /// first reason is stored and logged.
    pub(crate) fn report_failure(&self, reason: &str) {
        self.failure.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                tracing::error!(%reason, "the store accepts no writes");
                *known = Some(reason.to_owned());
            }
            first
        });
    }

    /// Records that this process may not write any more.
    pub(crate) fn report_permanent_failure(&self, reason: &str) {
        self.is_permanent.store(true, Ordering::Relaxed);
        self.report_failure(reason);
    }

    /// Records that a write could not start or finish.
    pub(super) fn report_sql_error(&self, error: &sqlx::Error) -> Error {
        let reason = error.to_string();
        self.report_failure(&reason);
        Error::Unwritable(reason)
    }

    /// Records that a write was committed.
    pub(super) fn report_success(&self) {
        if self.is_permanent.load(Ordering::Relaxed) {
            return;
        }
        self.failure.send_if_modified(|known| {
            let failed = known.take().is_some();
            if failed {
                tracing::info!("the store accepts writes again");
            }
            failed
        });
    }
}
