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
use tokio::sync::watch;

use crate::clock;
use crate::state::AppState;
use crate::store;
use crate::store::fairness;
use crate::store::kb::{self, Body, Meant};

/// Maximum number of texts in one request.
const BATCH: usize = 64;
/// Timeout of a batch.
const PATIENCE: Duration = Duration::from_secs(60);
/// Delay before a failed server is tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// The embeddings stored with a document, one for each chunk; empty if there are none for these
/// chunks.
pub(crate) fn kept_with(body: &Body) -> Vec<Option<Embedding>> {
    let Some(bytes) = body.directions.as_deref().and_then(|text| STANDARD.decode(text).ok()) else {
        return Vec::new();
    };
    if bytes.is_empty() { Vec::new() } else { split(&bytes, knowledge::chunks(&body.body).len()) }
}

/// Decodes the stored format: the bytes of all chunks' embeddings in sequence. The number of chunks
/// determines their length. A chunk without an embedding is all zeros.
fn split(bytes: &[u8], chunks: usize) -> Vec<Option<Embedding>> {
    let length = bytes.len().checked_div(chunks).unwrap_or(0);
    if length == 0 || bytes.len() != length * chunks {
        return Vec::new();
    }
    bytes
        .chunks(length)
        .map(|part| Embedding::from_bytes(part.iter().map(|b| b.cast_signed()).collect()))
        .collect()
}

/// Encodes a document's embeddings in the stored format; all have the same length.
fn joined(directions: &[Vec<f32>]) -> Vec<u8> {
    let length = directions.first().map_or(0, Vec::len);
    let bytes = directions.iter().flat_map(|vector| match Embedding::from_vector(vector) {
        Some(direction) => direction.bytes().iter().map(|b| b.cast_unsigned()).collect(),
        None => vec![0; length],
    });
    bytes.collect()
}

/// Requests missing embeddings until `stop`: after the start, and whenever a document was
/// extracted.
pub(crate) async fn run(shared: Arc<AppState>, mut stop: watch::Receiver<bool>) {
    let Some(meaning) = shared.meaning.clone() else { return };
    loop {
        let work = async {
            match all(&shared, &meaning.server).await {
                Ok(()) => shared.read.notified().await,
                Err(()) => tokio::time::sleep(AGAIN).await,
            }
        };
        tokio::select! {
            () = work => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Requests the embeddings of all documents that have none of this model. An error has been logged;
/// a later attempt may succeed.
async fn all(shared: &AppState, server: &EmbeddingClient) -> Result<(), ()> {
    loop {
        let meant = shared.store.without_directions(server.model()).await;
        let meant =
            meant.map_err(|error| tracing::error!(%error, "cannot list the documents without embeddings"))?;
        let Some(Meant { id, workspace, kb, body }) = meant else { return Ok(()) };
        let bytes = match asked(server, &body).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind().is_retryable() => {
                tracing::warn!(document = %id, %error, "embedding a document failed; retrying in 30 seconds");
                return Err(());
            }
            Err(error) => {
                // This document is searched by words only; the others are not affected.
                tracing::warn!(document = %id, %error, "embedding a document failed; it is searched by keywords only");
                Vec::new()
            }
        };
        let kept = kept(shared, &workspace, &kb, &id, server.model(), &bytes).await;
        kept.map_err(|error| tracing::error!(%error, "cannot store the embeddings of a document"))?;
    }
}

async fn asked(server: &EmbeddingClient, body: &str) -> Result<Vec<u8>, models::Error> {
    let texts: Vec<String> = knowledge::chunks(body).into_iter().map(|chunk| chunk.text).collect();
    let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(texts.len());
    for batch in texts.chunks(BATCH) {
        vectors.extend(server.embed(batch, PATIENCE).await?);
    }
    let length = vectors.first().map_or(0, Vec::len);
    if vectors.iter().any(|vector| vector.len() != length) {
        return Err(models::Error::new(ErrorKind::Rejected, "the embeddings are not all of one length"));
    }
    Ok(joined(&vectors))
}

async fn kept(
    shared: &AppState,
    workspace: &str,
    base: &str,
    id: &str,
    model: &str,
    bytes: &[u8],
) -> store::Result<()> {
    let mut tx = shared.store.write().await?;
    fairness::had(&mut tx, fairness::MEANING, workspace).await?;
    kb::keep_directions(&mut tx, base, id, model, &STANDARD.encode(bytes), clock::now()).await?;
    tx.commit().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back() {
        let vectors = [vec![1.0, 0.5], vec![0.0, 0.0], vec![-0.2, 0.1]];
        let back = split(&joined(&vectors), 3);
        assert_eq!(back, vectors.iter().map(|v| Embedding::from_vector(v)).collect::<Vec<_>>());
        assert!(back[0].is_some() && back[1].is_none());
        assert!(
            split(&joined(&vectors), 4).is_empty() && split(&[], 3).is_empty() && split(&[1], 0).is_empty()
        );
    }
}
