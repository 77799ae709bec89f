//! Sentence embeddings for the answerer, and a cache of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::sentence_encoder::SentenceEncoder;

/// Maximum number of cached embeddings. With 384 dimensions they take about 7 MB.
const MAX_CACHED: usize = 4096;

/// Computes sentence embeddings.
pub trait TextEncoder: Send + Sync {
    /// The embedding of `text`: a vector of length 1, so that dot products are cosines. Texts with a
    /// similar meaning have a large cosine.
    fn encode(&self, text: &str) -> Vec<f32>;

    /// Number of tokens of `word`. A common word is one token.
    fn token_count(&self, word: &str) -> usize;
}

impl TextEncoder for SentenceEncoder {
    fn encode(&self, text: &str) -> Vec<f32> {
        SentenceEncoder::encode(self, text)
    }

    fn token_count(&self, word: &str) -> usize {
        // Two tokens enclose each text.
        self.tokens(word).len().saturating_sub(2)
    }
}

/// An embedding that the cache shares.
pub(super) type SharedEmbedding = Arc<[f32]>;

/// An encoder with a bounded cache by text. One instance serves all calls.
pub struct CachedEncoder {
    encoder: Arc<dyn TextEncoder>,
    cache: Mutex<HashMap<Box<str>, SharedEmbedding>>,
    /// Whether a turn lacked embeddings.
    is_incomplete: AtomicBool,
}

impl CachedEncoder {
    /// A cache in front of `encoder`.
    #[must_use]
    pub fn new(encoder: Arc<dyn TextEncoder>) -> Self {
        Self { encoder, cache: Mutex::default(), is_incomplete: AtomicBool::new(false) }
    }

    /// The embedding of a passage, which later turns need again.
    pub(super) fn passage(&self, text: &str) -> SharedEmbedding {
        if let Some(known) = self.lock().get(text) {
            return Arc::clone(known);
        }
        // Not under the lock: it takes milliseconds.
        let embedding: SharedEmbedding = self.encoder.encode(text).into();
        let mut cache = self.lock();
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(text.into(), Arc::clone(&embedding));
        embedding
    }

    /// Whether at most `maximum` embeddings of these texts are not known yet. Otherwise
    /// [`Self::take_incomplete`] reports it.
    pub(super) fn knows_nearly_all<'t>(
        &self,
        texts: impl Iterator<Item = &'t str>,
        maximum: usize,
    ) -> bool {
        let cache = self.lock();
        let is_known = texts.filter(|text| !cache.contains_key(*text)).count() <= maximum;
        if !is_known {
            self.is_incomplete.store(true, Ordering::Relaxed);
        }
        is_known
    }

    /// Whether a turn lacked embeddings since the last call.
    pub(super) fn take_incomplete(&self) -> bool {
        self.is_incomplete.swap(false, Ordering::Relaxed)
    }

    /// The embedding of a question, which is not kept.
    pub(super) fn question(&self, text: &str) -> Vec<f32> {
        self.encoder.encode(text)
    }

    /// Number of tokens of `word`.
    pub(super) fn token_count(&self, word: &str) -> usize {
        self.encoder.token_count(word)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Box<str>, SharedEmbedding>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The dot product, which is the cosine of two embeddings.
pub(super) fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl TextEncoder for Counting {
        fn encode(&self, text: &str) -> Vec<f32> {
            self.0.fetch_add(1, Ordering::Relaxed);
            vec![text.len() as f32]
        }

        fn token_count(&self, word: &str) -> usize {
            word.len()
        }
    }

    #[test]
    fn a_passage_is_encoded_once_and_the_cache_is_bounded() {
        let counting = Arc::new(Counting::default());
        let cached = CachedEncoder::new(counting.clone());
        assert_eq!(*cached.passage("four"), [4.0]);
        assert_eq!(*cached.passage("four"), [4.0]);
        assert_eq!(cached.question("four"), [4.0]);
        assert_eq!(counting.0.load(Ordering::Relaxed), 2, "once as passage, once as question");
        for i in 0..2 * MAX_CACHED {
            cached.passage(&i.to_string());
        }
        assert!(cached.lock().len() <= MAX_CACHED);
        assert_eq!(cosine(&[0.6, 0.8], &[1.0, 0.0]), 0.6);
    }
}
