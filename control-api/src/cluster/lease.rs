//! Several servers on one database. Each renews its lease, and recovers what a server with an
//! expired lease left behind.
//!
//! ```text
//! (start) renew ---> alive
//! alive --- renew, 6 times per lease ---> alive
//! alive --- no renewal for a lease -----> dead: others adopt its deliveries, calls and jobs
//! alive --- release at shutdown --------> dead, with nothing left to recover
//! ```

use std::sync::Arc;

use tokio::sync::watch;

use crate::clock;
use crate::cluster::erasure;
use crate::events::ending;
use crate::state::AppState;
use crate::state::webhook_queue::OutboxMessage;
use crate::store::{self, delivery, server};

/// Number of renewals within a lease.
const RENEWALS_PER_LEASE: u32 = 6;

/// Renews this server's lease. True if deliveries of dead servers were adopted.
pub(crate) async fn renew(shared: &AppState) -> store::Result<bool> {
    let now = clock::now();
    let mut tx = shared.store.begin_write().await?;
    server::set_lease(
        &mut tx,
        &shared.server_id,
        now.saturating_add(clock::to_micros(shared.config.timeouts.lease)),
    )
    .await?;
    let adopted = delivery::adopt_orphans(&mut tx, &shared.server_id, now).await?;
    tx.commit().await?;
    Ok(adopted)
}

/// Renews the lease until `stop`.
pub(crate) async fn run(shared: Arc<AppState>, mut stop: watch::Receiver<bool>) {
    if !shared.store.is_shared() {
        // No other server uses the file: the lease from the start is enough.
        return;
    }
    loop {
        tokio::select! {
            () = tokio::time::sleep(shared.config.timeouts.lease / RENEWALS_PER_LEASE) => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
        if let Err(error) = renew_and_recover(&shared).await {
            tracing::error!(%error, "cannot renew this server's lease");
        }
    }
}

/// Releases the lease, so that no server waits for it to expire. Called only after the ends of this
/// server's calls are stored: other servers treat a call that is still open as left by a dead
/// server.
pub(crate) async fn release(shared: &AppState) {
    if !shared.store.is_shared() {
        return;
    }
    let end = async {
        let mut tx = shared.store.begin_write().await?;
        server::set_lease(&mut tx, &shared.server_id, 0).await?;
        tx.commit().await
    };
    if let Err(error) = end.await {
        tracing::error!(%error, "cannot release this server's lease");
    }
}

async fn renew_and_recover(shared: &AppState) -> store::Result<()> {
    if renew(shared).await? {
        // The dispatcher of deliveries lives as long as this task.
        let _ = shared.outbox.send(OutboxMessage::Rescan);
    }
    for id in shared.store.orphaned_conversations(&shared.server_id, clock::now()).await? {
        ending::recover_conversation(shared, &id).await?;
    }
    // Any server may claim the jobs of a dead one, and an idle server those that a busy one has
    // queued.
    shared.bake_queued.notify_one();
    shared.document_queued.notify_one();
    // Another server may have erased conversations whose files are here.
    erasure::remove_erased_files(shared).await?;
    Ok(())
}
