//! Documents that still have to be read: one after the other, in the background, those of before the start too. Workspaces take turns.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::watch;

use super::child;
use crate::app::Shared;
use crate::clock;
use crate::store;
use crate::store::kb::{self, Waiting};

/// Reads what waits, until `stop`.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    if let Err(error) = again(&shared).await {
        tracing::error!(%error, "documents that were half read cannot be taken up again");
    }
    loop {
        let work = async {
            loop {
                match next(&shared).await {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => {
                        tracing::error!(%error, "documents cannot be read");
                        return;
                    }
                }
            }
        };
        tokio::select! {
            // A document that the stop cuts short is read after the next start.
            () = async { work.await; shared.uploads.notified().await } => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// What a stop cut short waits again.
async fn again(shared: &Shared) -> store::Result<()> {
    let mut tx = shared.store.write().await?;
    kb::requeue(&mut tx).await?;
    tx.commit().await
}

/// Reads the next document; false if none waits.
async fn next(shared: &Shared) -> store::Result<bool> {
    let mut tx = shared.store.write().await?;
    let waiting = kb::take_waiting(&mut tx).await?;
    tx.commit().await?;
    let Some(Waiting { id, kb: base, kind, source, .. }) = waiting else { return Ok(false) };
    let read = match STANDARD.decode(source.unwrap_or_default()) {
        Ok(bytes) => child::run(&shared.extractor, &kind, bytes).await,
        Err(_) => Err("the stored file is damaged".into()),
    };
    if let Err(why) = &read {
        tracing::warn!(document = %id, %why, "a document cannot be read");
    }
    let mut tx = shared.store.write().await?;
    kb::read_document(&mut tx, &base, &id, read.as_deref().map_err(String::as_str), clock::now()).await?;
    tx.commit().await?;
    shared.read.notify_one();
    Ok(true)
}
