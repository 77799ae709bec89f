//! Embeddings of documents: one for each chunk, requested in the background if the operator
//! configured an embedding server, and stored with the document. Search is by words only until they
//! are available, and while that server fails.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use knowledge::Embedding;
use models::ErrorKind;
use models::embeddings::EmbeddingClient;
use tokio::sync::{Notify, watch};

use crate::clock;
use crate::state::knowledge_search::QueryEmbedder;
use crate::state::supervise::BackgroundTask;
use crate::store::fairness;
use crate::store::knowledge_base::{self, DocumentText, DocumentToEmbed};
use crate::store::{self, Lock, Store};

/// Maximum number of texts in one request.
const BATCH_SIZE: usize = 64;
/// Timeout of a batch.
const BATCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Delay before a failed server is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// The embeddings stored with a document, one for each chunk; empty if there are none for these
/// chunks.
pub(crate) fn stored_embeddings(body: &DocumentText) -> Vec<Option<Embedding>> {
    let Some(bytes) = body.embeddings.as_deref().and_then(|text| STANDARD.decode(text).ok()) else {
        return Vec::new();
    };
    if bytes.is_empty() {
        Vec::new()
    } else {
        decode_embeddings(&bytes, knowledge::chunks(&body.body).len())
    }
}

/// Decodes the stored format: the bytes of all chunks' embeddings in sequence. The number of chunks
/// determines their length. A chunk without an embedding is all zeros.
fn decode_embeddings(bytes: &[u8], chunks: usize) -> Vec<Option<Embedding>> {
    let length = bytes.len().checked_div(chunks).unwrap_or(0);
    if length == 0 || bytes.len() != length * chunks {
        return Vec::new();
    }
    bytes
        .chunks(length)
        .map(|chunk_bytes| {
            Embedding::from_bytes(chunk_bytes.iter().map(|b| b.cast_signed()).collect())
        })
        .collect()
}

/// Encodes a document's embeddings in the stored format; all have the same length.
fn encode_embeddings(vectors: &[Vec<f32>]) -> Vec<u8> {
    let length = vectors.first().map_or(0, Vec::len);
    let bytes = vectors.iter().flat_map(|vector| match Embedding::from_vector(vector) {
        Some(direction) => direction.bytes().iter().map(|b| b.cast_unsigned()).collect(),
        None => vec![0; length],
    });
    bytes.collect()
}

/// The task that requests missing embeddings: after the start, and whenever a document was
/// extracted.
pub(crate) struct EmbeddingTask {
    pub(crate) store: Store,
    /// The embedding server, if the operator configured one.
    pub(crate) embedder: Option<Arc<QueryEmbedder>>,
    /// Notified when a document was extracted.
    pub(crate) document_read: Arc<Notify>,
}

impl BackgroundTask for EmbeddingTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        let Some(embedder) = &self.embedder else { return };
        loop {
            let embed_queued = async {
                match embed_missing(&self.store, &embedder.client).await {
                    Ok(()) => self.document_read.notified().await,
                    Err(()) => tokio::time::sleep(RETRY_DELAY).await,
                }
            };
            tokio::select! {
                () = embed_queued => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

/// Requests the embeddings of all documents that have none of this model. An error has been logged;
/// a later attempt may succeed.
async fn embed_missing(store: &Store, client: &EmbeddingClient) -> Result<(), ()> {
    loop {
        let meant = store.next_document_to_embed(client.model()).await;
        let meant = meant.map_err(
            |error| tracing::error!(%error, "cannot list the documents without embeddings"),
        )?;
        let Some(DocumentToEmbed { id, workspace, kb, body }) = meant else { return Ok(()) };
        let bytes = match embed_document(client, &body).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind().is_retryable() => {
                tracing::warn!(
                    document = %id,
                    %error,
                    "embedding a document failed; retrying in 30 seconds"
                );
                return Err(());
            }
            Err(error) => {
                // This document is searched by words only; the others are not affected.
                tracing::warn!(
                    document = %id,
                    %error,
                    "embedding a document failed; it is searched by keywords only"
                );
                Vec::new()
            }
        };
        let stored = store_embeddings(store, &workspace, &kb, &id, client.model(), &bytes).await;
        stored.map_err(
            |error| tracing::error!(%error, "cannot store the embeddings of a document"),
        )?;
    }
}

async fn embed_document(client: &EmbeddingClient, body: &str) -> Result<Vec<u8>, models::Error> {
    let texts: Vec<String> = knowledge::chunks(body).into_iter().map(|chunk| chunk.text).collect();
    let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(texts.len());
    for batch in texts.chunks(BATCH_SIZE) {
        vectors.extend(client.embed(batch, BATCH_TIMEOUT).await?);
    }
    let length = vectors.first().map_or(0, Vec::len);
    if vectors.iter().any(|vector| vector.len() != length) {
        return Err(models::Error::new(
            ErrorKind::Rejected,
            "the embeddings have different lengths",
        ));
    }
    Ok(encode_embeddings(&vectors))
}

async fn store_embeddings(
    store: &Store,
    workspace: &str,
    base: &str,
    id: &str,
    model: &str,
    bytes: &[u8],
) -> store::Result<()> {
    let mut tx = store.begin_write(Lock::Workspace(workspace)).await?;
    fairness::record_turn(&mut tx, fairness::EMBEDDING_JOBS, workspace).await?;
    knowledge_base::save_embeddings(
        &mut tx,
        base,
        id,
        model,
        &STANDARD.encode(bytes),
        clock::now(),
    )
    .await?;
    tx.commit().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_embeddings_are_read_back() {
        let vectors = [vec![1.0, 0.5], vec![0.0, 0.0], vec![-0.2, 0.1]];
        let decoded = decode_embeddings(&encode_embeddings(&vectors), 3);
        assert_eq!(decoded, vectors.iter().map(|v| Embedding::from_vector(v)).collect::<Vec<_>>());
        assert!(decoded[0].is_some() && decoded[1].is_none());
        assert!(
            decode_embeddings(&encode_embeddings(&vectors), 4).is_empty()
                && decode_embeddings(&[], 3).is_empty()
                && decode_embeddings(&[1], 0).is_empty()
        );
    }
}
