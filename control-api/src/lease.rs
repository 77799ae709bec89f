//! Several servers on one database: each tells that it lives, and takes over what one left behind that does so no more.

use std::sync::Arc;

use tokio::sync::watch;

use crate::app::Shared;
use crate::clock;
use crate::delivery::News;
use crate::store::{self, delivery, server};
use crate::{erasing, lifecycle};

/// A server tells so many times within its lease that it lives.
const RENEWALS: u32 = 6;

/// Tells that this server lives; whether anything was taken over of the outbox of dead ones.
pub(crate) async fn renew(shared: &Shared) -> store::Result<bool> {
    let now = clock::now();
    let mut tx = shared.store.write().await?;
    server::lease(&mut tx, &shared.server, now.saturating_add(clock::micros(shared.config.timeouts.lease)))
        .await?;
    let adopted = delivery::adopt(&mut tx, &shared.server, now).await?;
    tx.commit().await?;
    Ok(adopted)
}

/// Renews the lease until `stop`.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    if !shared.store.is_shared() {
        // Nobody else uses the file: the lease of the start is enough.
        return;
    }
    loop {
        tokio::select! {
            () = tokio::time::sleep(shared.config.timeouts.lease / RENEWALS) => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
        if let Err(error) = look(&shared).await {
            tracing::error!(%error, "this server's lease cannot be renewed");
        }
    }
}

/// Gives the lease up, so that nobody waits for it to run out. Only once the ends of this server's calls are written: whatever is open then
/// is taken for what a dead server left.
pub(crate) async fn give_up(shared: &Shared) {
    if !shared.store.is_shared() {
        return;
    }
    let end = async {
        let mut tx = shared.store.write().await?;
        server::lease(&mut tx, &shared.server, 0).await?;
        tx.commit().await
    };
    if let Err(error) = end.await {
        tracing::error!(%error, "this server's lease cannot be given up");
    }
}

async fn look(shared: &Shared) -> store::Result<()> {
    if renew(shared).await? {
        // The deliveries live as long as this task does.
        let _ = shared.outbox.send(News::Look);
    }
    for id in shared.store.orphans(&shared.server, clock::now()).await? {
        lifecycle::recover_one(shared, &id).await?;
    }
    // A dead server's drawings are anybody's, and a busy one's wait for whoever is free.
    shared.drawings.notify_one();
    shared.uploads.notify_one();
    // Another server may have erased what was held here.
    erasing::sweep(shared).await?;
    Ok(())
}
