//! What a search in knowledge uses: the embedding server of queries, and the indexes in memory.
//!
//! Embeddings of queries stop for 10 s after a failure:
//!
//! ```text
//!              error, or no response in 250 ms
//!   enabled ------------------------------------> paused: search by words only
//!      ^                                             |
//!      +------------ FAILURE_BACKOFF_MICROS ---------+
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine_api::Knowledge;
use knowledge::Embedding;
use models::embeddings::EmbeddingClient;

use crate::clock;

/// Timeout of a query's embedding: the user waits for it.
const QUERY_TIMEOUT: Duration = Duration::from_millis(250);

/// How long queries are searched by words only after a failed or late embedding, in µs.
const FAILURE_BACKOFF_MICROS: i64 = 10_000_000;

/// The embedding server, as queries use it.
pub(crate) struct QueryEmbedder {
    pub(crate) client: EmbeddingClient,
    /// Until when it is not used, in the time of [`clock::now`].
    paused_until: AtomicI64,
}

impl QueryEmbedder {
    pub(crate) fn new(server: EmbeddingClient) -> Self {
        Self { client: server, paused_until: AtomicI64::new(0) }
    }

    /// The embedding of a query; `None` if it is not available in time.
    pub(crate) async fn embed(&self, question: &str) -> Option<Embedding> {
        if clock::now() < self.paused_until.load(Ordering::Relaxed) {
            return None;
        }
        match self.client.embed(&[question.to_owned()], QUERY_TIMEOUT).await {
            Ok(vectors) => Embedding::from_vector(vectors.first()?),
            Err(error) => {
                self.paused_until
                    .store(clock::now().saturating_add(FAILURE_BACKOFF_MICROS), Ordering::Relaxed);
                tracing::warn!(
                    %error,
                    "embedding a query failed: searches use keywords only for ten seconds"
                );
                None
            }
        }
    }
}

/// Version of a set when it was indexed: each base's id, last change and number of documents.
pub(crate) type Version = Vec<(String, i64, i64)>;

/// Recently built indexes.
#[derive(Default)]
pub(crate) struct KnowledgeCache(pub(crate) Mutex<HashMap<Version, Arc<dyn Knowledge>>>);
