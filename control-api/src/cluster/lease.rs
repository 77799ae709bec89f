//! Several servers on one database. Each renews its lease, and recovers what a server with an
//! expired lease left behind.
//!
//! ```text
//! (start) renew ---> alive
//! alive --- renew, 6 times per lease ---> alive
//! alive --- no renewal for a lease -----> dead: others adopt its deliveries, calls and jobs
//! alive --- release at shutdown --------> dead, with nothing left to recover
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};

use crate::clock;
use crate::cluster::erasure;
use crate::events::ending;
use crate::state::event_storage::EventStorage;
use crate::state::supervise::BackgroundTask;
use crate::state::webhook_queue::OutboxMessage;
use crate::store::{self, Store, delivery, server};

/// Requests between servers are removed after this time. Their senders wait a few seconds.
const MESSAGE_LIFETIME: Duration = Duration::from_secs(60);
/// Number of renewals within a lease.
const RENEWALS_PER_LEASE: u32 = 6;

/// The task that renews this server's lease, and recovers what dead servers left behind.
pub(crate) struct LeaseTask {
    pub(crate) store: Store,
    pub(crate) server_id: Arc<str>,
    /// `timeouts.lease`
    pub(crate) duration: Duration,
    /// The data folder, whose files of erased conversations are removed.
    pub(crate) data: PathBuf,
    /// Stores the ends of the calls of dead servers.
    pub(crate) event_storage: EventStorage,
    /// Notified of adopted deliveries.
    pub(crate) outbox: mpsc::UnboundedSender<OutboxMessage>,
    /// Notified of drawing jobs that may be claimed.
    pub(crate) bake_queued: Arc<Notify>,
    /// Notified of documents that may be claimed.
    pub(crate) document_queued: Arc<Notify>,
}

impl BackgroundTask for LeaseTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.duration / RENEWALS_PER_LEASE) => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
            let renewed = if self.store.is_shared() {
                let renewed = self.renew_and_recover().await;
                if let Err(error) = &renewed {
                    tracing::error!(%error, "cannot renew this server's lease");
                }
                renewed.is_ok()
            } else {
                // No other server uses the file: the lease from the start is enough.
                false
            };
            if !renewed && self.store.health.failure_reason().is_none() {
                // A write shows an outage in `/readyz` before a call needs the store. The probe
                // reports the store's health itself.
                let _ = self.store.probe().await;
            }
        }
    }
}

impl LeaseTask {
    async fn renew_and_recover(&self) -> store::Result<()> {
        if renew(&self.store, &self.server_id, self.duration).await? {
            // The dispatcher of deliveries lives as long as this task.
            let _ = self.outbox.send(OutboxMessage::Rescan);
        }
        for id in self.store.orphaned_conversations(&self.server_id, clock::now()).await? {
            ending::recover_conversation(&self.event_storage, &id).await?;
        }
        // Any server may claim the jobs of a dead one, and an idle server those that a busy one has
        // queued.
        self.bake_queued.notify_one();
        self.document_queued.notify_one();
        let forgotten = clock::now() - clock::to_micros(MESSAGE_LIFETIME);
        self.store.remove_old_messages(forgotten).await?;
        // Another server may have erased conversations whose files are here.
        erasure::remove_erased_files(&self.store, &self.server_id, &self.data).await?;
        Ok(())
    }
}

/// Renews a server's lease. True if deliveries of dead servers were adopted.
pub(crate) async fn renew(
    store: &Store,
    server_id: &str,
    duration: Duration,
) -> store::Result<bool> {
    let now = clock::now();
    let mut tx = store.begin_write().await?;
    server::set_lease(&mut tx, server_id, now.saturating_add(clock::to_micros(duration))).await?;
    let adopted = delivery::adopt_orphans(&mut tx, server_id, now).await?;
    tx.commit().await?;
    Ok(adopted)
}

/// Releases a server's lease, so that no other server waits for it to expire. Called only after the
/// ends of the server's calls are stored: other servers treat a call that is still open as left by
/// a dead server.
pub(crate) async fn release(store: &Store, server_id: &str) {
    if !store.is_shared() {
        return;
    }
    let end = async {
        let mut tx = store.begin_write().await?;
        server::set_lease(&mut tx, server_id, 0).await?;
        tx.commit().await
    };
    if let Err(error) = end.await {
        tracing::error!(%error, "cannot release this server's lease");
    }
}
