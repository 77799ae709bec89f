//! Extraction of queued documents: one after the other, in the background, including those from
//! before the start. Workspaces take turns.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::watch;

use super::extractor;
use crate::clock;
use crate::state::AppState;
use crate::store;
use crate::store::kb::{self, Waiting};

/// Delay after a failure of the store.
const AGAIN: Duration = Duration::from_secs(5);

/// Extracts queued documents until `stop`.
pub(crate) async fn run(shared: Arc<AppState>, mut stop: watch::Receiver<bool>) {
    loop {
        let work = async {
            loop {
                match next(&shared).await {
                    Ok(true) => {}
                    Ok(false) => return shared.uploads.notified().await,
                    Err(error) => {
                        tracing::error!(%error, "cannot process the queue of documents");
                        return tokio::time::sleep(AGAIN).await;
                    }
                }
            }
        };
        tokio::select! {
            // A document that the stop interrupts is extracted after the next start.
            () = work => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Extracts the next document; false if none is queued.
async fn next(shared: &AppState) -> store::Result<bool> {
    // Most checks find no document and should not block writers.
    if !shared.store.document_waits(&shared.server, clock::now()).await? {
        return Ok(false);
    }
    let mut tx = shared.store.write().await?;
    let waiting = kb::take_waiting(&mut tx, &shared.server, clock::now()).await?;
    tx.commit().await?;
    let Some(Waiting { id, kb: base, kind, source, .. }) = waiting else { return Ok(false) };
    let read = match STANDARD.decode(source.unwrap_or_default()) {
        Ok(bytes) => extractor::run(&shared.extractor, &kind, bytes).await,
        Err(_) => Err("the stored file is damaged".into()),
    };
    if let Err(why) = &read {
        tracing::warn!(document = %id, reason = %why, "cannot extract the text of a document");
    }
    let mut tx = shared.store.write().await?;
    kb::read_document(&mut tx, &base, &id, read.as_deref().map_err(String::as_str), clock::now()).await?;
    tx.commit().await?;
    shared.read.notify_one();
    Ok(true)
}
