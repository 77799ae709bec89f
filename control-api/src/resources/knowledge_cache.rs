//! Knowledge of agents as indexes in memory: a cache of the documents in the store, one index for
//! each set of knowledge bases.

use std::sync::Arc;

use conversation::event::Snippet;
use engine_api::{BoxFuture, Knowledge};
use knowledge::{Hit, Index};

use crate::resources::knowledge::embeddings;
use crate::state::AppState;
use crate::state::knowledge_search::{QueryEmbedder, Version};
use crate::store;

/// Maximum number of cached indexes. When it is reached, all are dropped.
const MAX_CACHED_INDEXES: usize = 64;

/// Knowledge base and document.
type DocumentId = (Arc<str>, Arc<str>);

struct IndexedKnowledge {
    index: Index<DocumentId>,
    /// Embeds queries, if any chunk has an embedding.
    embedder: Option<Arc<QueryEmbedder>>,
}

fn to_snippet(hit: Hit<'_, DocumentId>) -> Snippet {
    Snippet {
        kb_id: hit.id.0.to_string(),
        doc_id: hit.id.1.to_string(),
        text: hit.text.to_owned(),
        score: hit.score,
    }
}

impl Knowledge for IndexedKnowledge {
    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Vec<Snippet>> {
        Box::pin(async move {
            let embedding = match &self.embedder {
                Some(embedder) => embedder.embed(query).await,
                None => None,
            };
            let hits = match embedding {
                Some(embedding) => self.index.hybrid_search(query, &embedding, limit),
                None => self.index.search(query, limit),
            };
            hits.into_iter().map(to_snippet).collect()
        })
    }

    fn passages<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Vec<Snippet>> {
        match self.index.all_chunks(limit) {
            Some(all) => {
                let all = all.into_iter().map(to_snippet).collect();
                Box::pin(core::future::ready(all))
            }
            None => self.search(query, limit),
        }
    }
}

/// The index of these knowledge bases; `None` if none of them exists any more or all are empty.
pub(crate) async fn find_or_build(
    state: &AppState,
    workspace: &str,
    kbs: &[String],
) -> store::Result<Option<Arc<dyn Knowledge>>> {
    let mut version: Version = state
        .store
        .kbs(workspace, kbs)
        .await?
        .into_iter()
        .map(|row| (row.id, row.updated_at, row.document_count))
        .collect();
    if version.iter().all(|(_, _, documents)| *documents == 0) {
        return Ok(None);
    }
    version.sort_unstable();
    let cache =
        || state.knowledge_cache.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(cached) = cache().get(&version) {
        return Ok(Some(Arc::clone(cached)));
    }
    let model = state.query_embedder.as_ref().map(|embedder| embedder.client.model());
    let bodies = state.store.kb_document_texts(workspace, kbs, model).await?;
    let index = tokio::task::spawn_blocking(move || {
        let mut index = Index::new();
        for body in bodies {
            let embeddings = embeddings::stored_embeddings(&body);
            index.insert_with_embeddings(
                &(Arc::from(body.kb), Arc::from(body.id)),
                &body.body,
                embeddings,
            );
        }
        index
    });
    let index = index.await.map_err(|e| store::Error::CorruptRow("kb_document", e.to_string()))?;
    let embedder = state.query_embedder.clone().filter(|_| index.has_embeddings());
    let cached: Arc<dyn Knowledge> = Arc::new(IndexedKnowledge { index, embedder });
    let mut cache = cache();
    if cache.len() >= MAX_CACHED_INDEXES {
        cache.clear();
    }
    cache.insert(version, Arc::clone(&cached));
    Ok(Some(cached))
}
