//! What documents mean: each chunk's embedding, asked for in the background where the operator configured a server of embeddings, and kept
//! with the document. Search goes by words alone until they are there, and where that server fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use knowledge::Embedding;
use models::Kind;
use models::embeddings::Embeddings;
use tokio::sync::watch;

use crate::app::Shared;
use crate::clock;
use crate::store;
use crate::store::kb::{self, Body, Meant};
use crate::store::turn;

/// Texts in one request.
const BATCH: usize = 64;
/// Time that a batch has.
const PATIENCE: Duration = Duration::from_secs(60);
/// Wait before a server that failed is asked again.
const AGAIN: Duration = Duration::from_secs(30);
/// Time that a question's embedding has: the user waits for it.
const QUESTION: Duration = Duration::from_millis(250);
/// Time that questions go by words alone after an embedding that failed or was late, in microseconds.
const REST: i64 = 10_000_000;

/// The server of embeddings as questions use it.
pub(crate) struct Meaning {
    pub(crate) server: Embeddings,
    /// Until when it is not asked, as [`clock::now`] tells it.
    rests_until: AtomicI64,
}

impl Meaning {
    pub(crate) fn new(server: Embeddings) -> Self {
        Self { server, rests_until: AtomicI64::new(0) }
    }

    /// What a question means; `None` where that is not known in time.
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

/// The directions that are kept with a document, one for each chunk; none where there are none for these chunks.
pub(crate) fn kept_with(body: &Body) -> Vec<Option<Embedding>> {
    let Some(bytes) = body.directions.as_deref().and_then(|text| STANDARD.decode(text).ok()) else {
        return Vec::new();
    };
    if bytes.is_empty() { Vec::new() } else { split(&bytes, knowledge::chunks(&body.body).len()) }
}

/// Bytes of all chunks' directions, one after the other, as the store keeps them; the number of chunks tells their length. A chunk that has
/// none is all zeros.
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

/// The same for a document that was asked for: each chunk's bytes, all of one length.
fn joined(directions: &[Vec<f32>]) -> Vec<u8> {
    let length = directions.first().map_or(0, Vec::len);
    let bytes = directions.iter().flat_map(|vector| match Embedding::from_vector(vector) {
        Some(direction) => direction.bytes().iter().map(|b| b.cast_unsigned()).collect(),
        None => vec![0; length],
    });
    bytes.collect()
}

/// Asks for what is missing, until `stop`: after the start, and whenever a document was read.
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

/// Asks for all documents that have no vectors of this model. An error was logged, and the next try may go better.
async fn all(shared: &Shared, server: &Embeddings) -> Result<(), ()> {
    loop {
        let meant = shared.store.without_directions(server.model()).await;
        let meant =
            meant.map_err(|error| tracing::error!(%error, "documents without embeddings cannot be found"))?;
        let Some(Meant { id, workspace, kb, body }) = meant else { return Ok(()) };
        let bytes = match asked(server, &body).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind().retryable() => {
                tracing::warn!(document = %id, %error, "a document's embeddings are asked for again in half a minute");
                return Err(());
            }
            Err(error) => {
                // This document is searched by words alone; the others need not suffer for it.
                tracing::warn!(document = %id, %error, "a document has no embeddings");
                Vec::new()
            }
        };
        let kept = kept(shared, &workspace, &kb, &id, server.model(), &bytes).await;
        kept.map_err(|error| tracing::error!(%error, "a document's embeddings cannot be kept"))?;
    }
}

async fn asked(server: &Embeddings, body: &str) -> Result<Vec<u8>, models::Error> {
    let texts: Vec<String> = knowledge::chunks(body).into_iter().map(|chunk| chunk.text).collect();
    let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(texts.len());
    for batch in texts.chunks(BATCH) {
        vectors.extend(server.embed(batch, PATIENCE).await?);
    }
    let length = vectors.first().map_or(0, Vec::len);
    if vectors.iter().any(|vector| vector.len() != length) {
        return Err(models::Error::new(Kind::Refused, "the embeddings are not all of one length"));
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
