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
use crate::store::kb::{self, QueuedDocument};

/// Delay after a failure of the store.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Extracts queued documents until `stop`.
pub(crate) async fn run(shared: Arc<AppState>, mut stop: watch::Receiver<bool>) {
    loop {
        let ingest_queued = async {
            loop {
                match ingest_next(&shared).await {
                    Ok(true) => {}
                    Ok(false) => return shared.document_queued.notified().await,
                    Err(error) => {
                        tracing::error!(%error, "cannot process the queue of documents");
                        return tokio::time::sleep(RETRY_DELAY).await;
                    }
                }
            }
        };
        tokio::select! {
            // A document that the stop interrupts is extracted after the next start.
            () = ingest_queued => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Extracts the next document; false if none is queued.
async fn ingest_next(shared: &AppState) -> store::Result<bool> {
    // Most checks find no document and should not block writers.
    if !shared.store.has_claimable_document(&shared.server_id, clock::now()).await? {
        return Ok(false);
    }
    let mut tx = shared.store.begin_write().await?;
    let queued = kb::claim_document(&mut tx, &shared.server_id, clock::now()).await?;
    tx.commit().await?;
    let Some(QueuedDocument { id, kb: base, kind, source, .. }) = queued else { return Ok(false) };
    let extracted = match STANDARD.decode(source.unwrap_or_default()) {
        Ok(bytes) => extractor::extract_text(&shared.extract_command, &kind, bytes).await,
        Err(_) => Err("the stored file is damaged".into()),
    };
    if let Err(why) = &extracted {
        tracing::warn!(document = %id, reason = %why, "cannot extract the text of a document");
    }
    let mut tx = shared.store.begin_write().await?;
    kb::save_document_text(&mut tx, &base, &id, extracted.as_deref().map_err(String::as_str), clock::now())
        .await?;
    tx.commit().await?;
    shared.document_read.notify_one();
    Ok(true)
}
