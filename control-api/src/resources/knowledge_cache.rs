//! Knowledge of agents as indexes in memory: a cache of the documents in the store, one index for
//! each set of knowledge bases.

use std::sync::Arc;

use conversation::event::Snippet;
use engine_api::{BoxFuture, Knowledge};
use knowledge::{Hit, Index};

use crate::resources::knowledge::embeddings;
use crate::state::AppState;
use crate::state::knowledge_search::{Meaning, Version};
use crate::store;

/// Maximum number of cached indexes. When it is reached, all are dropped.
const REMEMBERED: usize = 64;

/// Knowledge base and document.
type Id = (Arc<str>, Arc<str>);

struct Known {
    index: Index<Id>,
    /// Embeds queries, if any chunk has an embedding.
    meaning: Option<Arc<Meaning>>,
}

fn snippet(hit: Hit<'_, Id>) -> Snippet {
    Snippet {
        kb_id: hit.id.0.to_string(),
        doc_id: hit.id.1.to_string(),
        text: hit.text.to_owned(),
        score: hit.score,
    }
}

impl Knowledge for Known {
    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Vec<Snippet>> {
        Box::pin(async move {
            let direction = match &self.meaning {
                Some(meaning) => meaning.of(query).await,
                None => None,
            };
            let hits = match direction {
                Some(direction) => self.index.hybrid_search(query, &direction, limit),
                None => self.index.search(query, limit),
            };
            hits.into_iter().map(snippet).collect()
        })
    }
}

/// The index of these knowledge bases; `None` if none of them exists any more or all are empty.
pub(crate) async fn of(
    shared: &AppState,
    workspace: &str,
    kbs: &[String],
) -> store::Result<Option<Arc<dyn Knowledge>>> {
    let mut version: Version = shared
        .store
        .kbs(workspace, kbs)
        .await?
        .into_iter()
        .map(|row| (row.id, row.updated_at, row.no_of_rec))
        .collect();
    if version.iter().all(|(_, _, documents)| *documents == 0) {
        return Ok(None);
    }
    version.sort_unstable();
    let cache = || shared.knowledge.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(known) = cache().get(&version) {
        return Ok(Some(Arc::clone(known)));
    }
    let model = shared.meaning.as_ref().map(|meaning| meaning.server.model());
    let bodies = shared.store.kb_bodies(workspace, kbs, model).await?;
    let index = tokio::task::spawn_blocking(move || {
        let mut index = Index::new();
        for body in bodies {
            let directions = embeddings::kept_with(&body);
            index.insert_with_embeddings(&(Arc::from(body.kb), Arc::from(body.id)), &body.body, directions);
        }
        index
    });
    let index = index.await.map_err(|e| store::Error::Damaged("kb_document", e.to_string()))?;
    let meaning = shared.meaning.clone().filter(|_| index.has_embeddings());
    let known: Arc<dyn Knowledge> = Arc::new(Known { index, meaning });
    let mut cache = cache();
    if cache.len() >= REMEMBERED {
        cache.clear();
    }
    cache.insert(version, Arc::clone(&known));
    Ok(Some(known))
}
