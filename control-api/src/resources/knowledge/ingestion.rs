//! Extraction of queued documents: one after the other, in the background, including those from
//! before the start. Workspaces take turns.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::{Notify, watch};

use super::extractor;
use crate::clock;
use crate::state::supervise::BackgroundTask;
use crate::store::fairness::DOCUMENT_JOBS;
use crate::store::knowledge_base::{self, QueuedDocument};
use crate::store::{self, Lock, Store};

/// Delay after a failure of the store.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The task that extracts queued documents.
pub(crate) struct IngestionTask {
    pub(crate) store: Store,
    /// The server that claims the documents.
    pub(crate) server_id: Arc<str>,
    /// Program and arguments that extract a document's text.
    pub(crate) command: Vec<OsString>,
    /// Notified when a document is queued.
    pub(crate) queued: Arc<Notify>,
    /// Receives a notification when a document was extracted.
    pub(crate) document_read: Arc<Notify>,
}

impl BackgroundTask for IngestionTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let ingest_queued = async {
                loop {
                    match self.ingest_next().await {
                        Ok(true) => {}
                        Ok(false) => return self.queued.notified().await,
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
}

impl IngestionTask {
    /// Extracts the next document; false if none is queued.
    async fn ingest_next(&self) -> store::Result<bool> {
        // Most checks find no document and should not block writers.
        if !self.store.has_claimable_document(&self.server_id).await? {
            return Ok(false);
        }
        let mut tx = self.store.begin_write(Lock::Jobs(DOCUMENT_JOBS)).await?;
        let queued = knowledge_base::claim_document(&mut tx, &self.server_id).await?;
        tx.commit().await?;
        let Some(QueuedDocument { id, workspace, kb: base, kind, source }) = queued else {
            return Ok(false);
        };
        let extracted = match STANDARD.decode(source.unwrap_or_default()) {
            Ok(bytes) => extractor::extract_text(&self.command, &kind, bytes).await,
            Err(_) => Err("the stored file is damaged".into()),
        };
        if let Err(why) = &extracted {
            tracing::warn!(document = %id, reason = %why, "cannot extract the text of a document");
        }
        let text = extracted.as_deref().map_err(String::as_str);
        let mut tx = self.store.begin_write(Lock::Workspace(&workspace)).await?;
        knowledge_base::save_document_text(&mut tx, &base, &id, text, clock::now()).await?;
        tx.commit().await?;
        self.document_read.notify_one();
        Ok(true)
    }
}
