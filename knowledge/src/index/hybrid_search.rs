//! Hybrid search: by embeddings beside search by words. Each chunk may have an embedding of its
//! text, and so may a query. The two rankings are fused by rank, because their scores are not
//! comparable (G. Cormack, C. Clarke, S. Büttcher, "Reciprocal Rank Fusion outperforms Condorcet
//! and individual Rank Learning Methods", 2009).

use std::cmp::Ordering;
use std::collections::HashMap;

use super::{Entry, Hit, Index};
use crate::embedding::Embedding;
use crate::text::chunks;

/// The paper's constant: a larger one gives the first ranks less weight.
const RRF_K: f32 = 60.0;

/// Number of hits of each search that take part in the fusion.
const MAX_RANKED_HITS: usize = 50;

impl<Id: Clone + PartialEq> Index<Id> {
    /// Adds a document, cut into chunks, with one embedding per chunk. If the number of embeddings
    /// differs from the number of chunks, all embeddings are ignored.
    pub fn insert_with_embeddings(
        &mut self,
        id: &Id,
        text: &str,
        embeddings: Vec<Option<Embedding>>,
    ) {
        let chunks = chunks(text);
        let mut embeddings = if embeddings.len() == chunks.len() { embeddings } else { Vec::new() };
        embeddings.resize(chunks.len(), None);
        for (chunk, embedding) in chunks.into_iter().zip(embeddings) {
            self.insert_entry(id, chunk.ordinal, chunk.text, embedding);
        }
    }

    /// All chunks in the order of their insertion, with a score of 0; `None` if there are more than
    /// `limit`.
    #[must_use]
    pub fn all_chunks(&self, limit: usize) -> Option<Vec<Hit<'_, Id>>> {
        if self.len() > limit {
            return None;
        }
        let mut all = Vec::with_capacity(self.len());
        for (_, Entry { id, ordinal, text, .. }) in self.entries() {
            all.push(Hit { id, ordinal: *ordinal, text, score: 0.0, coverage: 0.0 });
        }
        Some(all)
    }

    /// Whether any chunk has an embedding.
    #[must_use]
    pub fn has_embeddings(&self) -> bool {
        self.entries().any(|(_, entry)| entry.embedding.is_some())
    }

    /// Returns the best `limit` chunks for the words of `query` and its `embedding`, best first.
    /// Scores are sums of 1 / (60 + rank).
    #[must_use]
    pub fn hybrid_search(
        &self,
        query: &str,
        embedding: &Embedding,
        limit: usize,
    ) -> Vec<Hit<'_, Id>> {
        let mut found: HashMap<u32, Hit<'_, Id>> = HashMap::new();
        for (rank, (slot, hit)) in (1_u16..).zip(self.rank(&[(query, 1.0)], MAX_RANKED_HITS)) {
            found.insert(slot, Hit { score: 1.0 / (RRF_K + f32::from(rank)), ..hit });
        }
        let similarity = |(slot, entry): (u32, &Entry<Id>)| {
            Some((slot, entry.embedding.as_ref()?.cosine(embedding)?))
        };
        let mut nearest: Vec<(u32, f32)> = self.entries().filter_map(similarity).collect();
        let order = |a: &(u32, f32), b: &(u32, f32)| {
            b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal).then(a.0.cmp(&b.0))
        };
        if nearest.len() > MAX_RANKED_HITS {
            nearest.select_nth_unstable_by(MAX_RANKED_HITS - 1, order);
            nearest.truncate(MAX_RANKED_HITS);
        }
        nearest.sort_unstable_by(order);
        for (rank, (slot, _)) in (1_u16..).zip(nearest) {
            let score = 1.0 / (RRF_K + f32::from(rank));
            match found.get_mut(&slot) {
                Some(hit) => hit.score += score,
                None => {
                    let Some(entry) = self.entry(slot) else { continue };
                    let hit = Hit {
                        id: &entry.id,
                        ordinal: entry.ordinal,
                        text: &entry.text,
                        score,
                        coverage: 0.0,
                    };
                    found.insert(slot, hit);
                }
            }
        }
        let mut fused: Vec<(u32, Hit<'_, Id>)> = found.into_iter().collect();
        fused.sort_unstable_by(|(a, x), (b, y)| {
            y.score.partial_cmp(&x.score).unwrap_or(Ordering::Equal).then(a.cmp(b))
        });
        fused.into_iter().take(limit).map(|(_, hit)| hit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embedding(vector: &[f32]) -> Option<Embedding> {
        Embedding::from_vector(vector)
    }

    #[test]
    fn what_words_and_meaning_both_find_comes_first() {
        let mut index = Index::new();
        for (id, text, vector) in [
            ("dogs", "Every puppy must be on a leash.", [1.0, 0.1]),
            ("soup", "The restaurant has soup at noon.", [0.1, 1.0]),
            ("closed", "The restaurant is closed on Sundays.", [0.2, 0.9]),
        ] {
            index.insert_with_embeddings(&id, text, vec![embedding(&vector)]);
        }
        assert!(index.has_embeddings());
        let found = |query: &str, vector: &[f32]| -> Vec<&str> {
            let hits = index.hybrid_search(query, &embedding(vector).unwrap(), 2);
            hits.into_iter().map(|hit| *hit.id).collect()
        };
        // No word of the query is in the index.
        assert_eq!(found("my beloved chihuahua", &[1.0, 0.0])[0], "dogs");
        assert_eq!(found("soup in the restaurant", &[0.0, 1.0]), ["soup", "closed"]);
        // An embedding of another model does not affect the search by words.
        assert_eq!(
            index.hybrid_search("soup", &embedding(&[1.0]).unwrap(), 1)[0].text,
            "The restaurant has soup at noon."
        );
    }

    #[test]
    fn embeddings_of_another_dimension_are_ignored() {
        let mut index = Index::new();
        index.insert_with_embeddings(
            &1,
            "One sentence.",
            vec![embedding(&[1.0]), embedding(&[1.0])],
        );
        assert_eq!((index.has_embeddings(), index.len()), (false, 1));
    }

    #[test]
    fn all_chunks_of_a_small_index_are_returned_in_order() {
        let mut index = Index::new();
        index.insert(&2, "One sentence.");
        index.insert(&1, "Two sentences. Here.");
        let all = index.all_chunks(2).unwrap();
        assert_eq!(all.iter().map(|hit| *hit.id).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(index.all_chunks(1), None);
    }
}
