//! Whether the store takes writes. A full disk or a database that is away is no reason to lose an event, and none to say that one was kept.

use tokio::sync::watch;

use super::Error;

/// What is known of it, by the writes so far.
pub(crate) struct Health(watch::Sender<Option<String>>);

impl Default for Health {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Health {
    /// Why no write is taken now; `None` while writes are.
    pub(crate) fn failing(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Waits until writes fail.
    pub(crate) async fn fails(&self) {
        // The sender lives as long as this.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }

    /// Told whenever writes begin to fail, and when they are taken again.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<String>> {
        self.0.subscribe()
    }

    /// A write failed or is late, and no other would have been taken either.
    pub(crate) fn note(&self, reason: &str) {
        self.0.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                tracing::error!(%reason, "the store takes no writes");
                *known = Some(reason.to_owned());
            }
            first
        });
    }

    /// No write could begin or end.
    pub(super) fn failed(&self, error: &sqlx::Error) -> Error {
        let reason = error.to_string();
        self.note(&reason);
        Error::Unwritable(reason)
    }

    /// A write was kept.
    pub(super) fn recovered(&self) {
        self.0.send_if_modified(|known| {
            let failed = known.take().is_some();
            if failed {
                tracing::info!("the store takes writes again");
            }
            failed
        });
    }
}
