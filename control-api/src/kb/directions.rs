//! Embeddings of documents: one for each chunk, requested in the background if the operator
//! configured an embedding server, and stored with the document. Search is by words only until they
//! are available, and while that server fails.
//!
//! Embeddings of queries stop for 10 s after a failure:
//!
//! ```text
//!              error, or no response in 250 ms
//!   enabled ------------------------------------> paused: search by words only
//!      ^                                             |
//!      +------------ FAILURE_BACKOFF_MICROS ---------+
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use knowledge::Embedding;
use models::ErrorKind;
use models::embeddings::EmbeddingClient;
use tokio::sync::watch;

use crate::app::Shared;
use crate::clock;
use crate::store;
use crate::store::kb::{self, Body, Meant};
use crate::store::turn;

/// Maximum number of texts in one request.
const BATCH: usize = 64;
/// Timeout of a batch.
const PATIENCE: Duration = Duration::from_secs(60);
/// Delay before a failed server is tried again.
const AGAIN: Duration = Duration::from_secs(30);
/// Timeout of a query's embedding: the user waits for it.
const QUESTION: Duration = Duration::from_millis(250);
/// How long queries are searched by words only after a failed or late embedding, in µs.
const REST: i64 = 10_000_000;

/// The embedding server, as queries use it.
pub(crate) struct Meaning {
    pub(crate) server: EmbeddingClient,
    /// Until when it is not used, in the time of [`clock::now`].
    rests_until: AtomicI64,
}

impl Meaning {
    pub(crate) fn new(server: EmbeddingClient) -> Self {
        Self { server, rests_until: AtomicI64::new(0) }
    }

    /// The embedding of a query; `None` if it is not available in time.
    pub(crate) async fn of(&self, question: &str) -> Option<Embedding> {
        if clock::now() < self.rests_until.load(Ordering::Relaxed) {
            return None;
        }
        match self.server.embed(&[question.to_owned()], QUESTION).await {
            Ok(vectors) => Embedding::from_vector(vectors.first()?),
            Err(error) => {
                self.rests_until.store(clock::now().saturating_add(REST), Ordering::Relaxed);
                tracing::warn!(%error, "a question's embedding is missing: for ten seconds knowledge is searched by words alone");
                None
            }
        }
    }
}

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
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
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
async fn all(shared: &Shared, server: &EmbeddingClient) -> Result<(), ()> {
    loop {
        let meant = shared.store.without_directions(server.model()).await;
        let meant =
            meant.map_err(|error| tracing::error!(%error, "documents without embeddings cannot be found"))?;
        let Some(Meant { id, workspace, kb, body }) = meant else { return Ok(()) };
        let bytes = match asked(server, &body).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind().is_retryable() => {
                tracing::warn!(document = %id, %error, "a document's embeddings are asked for again in half a minute");
                return Err(());
            }
            Err(error) => {
                // This document is searched by words only; the others are not affected.
                tracing::warn!(document = %id, %error, "a document has no embeddings");
                Vec::new()
            }
        };
        let kept = kept(shared, &workspace, &kb, &id, server.model(), &bytes).await;
        kept.map_err(|error| tracing::error!(%error, "a document's embeddings cannot be kept"))?;
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
    shared: &Shared,
    workspace: &str,
    base: &str,
    id: &str,
    model: &str,
    bytes: &[u8],
) -> store::Result<()> {
    let mut tx = shared.store.write().await?;
    turn::had(&mut tx, turn::MEANING, workspace).await?;
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
