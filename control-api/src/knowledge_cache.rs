//! What agents know, as an index in memory: a cache of the documents in the store, one index for each set of knowledge bases.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use conversation::event::Snippet;
use conversation::host::Knowledge;
use knowledge::Index;

use crate::app::Shared;
use crate::store;

/// Sets that are remembered before all are forgotten.
const REMEMBERED: usize = 64;

/// Knowledge base and document.
type Id = (Arc<str>, Arc<str>);

struct Known(Index<Id>);

impl Knowledge for Known {
    fn search(&self, query: &str, limit: usize) -> Vec<Snippet> {
        let hits = self.0.search(query, limit);
        hits.into_iter()
            .map(|hit| Snippet {
                kb_id: hit.id.0.to_string(),
                doc_id: hit.id.1.to_string(),
                text: hit.text.to_owned(),
                score: hit.score,
            })
            .collect()
    }
}

/// What a set was when it was indexed: each base's id, last change and number of documents.
type Version = Vec<(String, i64, i64)>;

/// Indexes that were made lately.
#[derive(Default)]
pub(crate) struct Cache(Mutex<HashMap<Version, Arc<dyn Knowledge>>>);

/// The index of these knowledge bases; `None` where none of them is left or all are empty.
pub(crate) async fn of(
    shared: &Shared,
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
    let bodies = shared.store.kb_bodies(workspace, kbs).await?;
    let index = tokio::task::spawn_blocking(move || {
        let mut index = Index::new();
        for body in bodies {
            index.insert(&(Arc::from(body.kb), Arc::from(body.id)), &body.body);
        }
        index
    });
    let index = index.await.map_err(|e| store::Error::Damaged("kb_document", e.to_string()))?;
    let known: Arc<dyn Knowledge> = Arc::new(Known(index));
    let mut cache = cache();
    if cache.len() >= REMEMBERED {
        cache.clear();
    }
    cache.insert(version, Arc::clone(&known));
    Ok(Some(known))
}
