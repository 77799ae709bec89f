//! The promised search time in a large knowledge base, in CPU time.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]
#![allow(clippy::print_stderr)] // prints the results

use std::time::Duration;

use benches::cpu;
use knowledge::{Embedding, Index};

const CHUNK_COUNT: u32 = 10_000;
/// Dimensions of an embedding of OpenAI's small model.
const DIMENSIONS: usize = 1536;
const QUERY_COUNT: u32 = 100;
const ROUNDS: u32 = 3;
/// The promise, for the 95th percentile.
const SEARCH_TIME_LIMIT: Duration = Duration::from_millis(10);

/// Pseudo-random numbers: the linear congruential generator of Numerical Recipes.
struct PseudoRandom(u32);

impl PseudoRandom {
    fn next_f32(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / (1 << 24) as f32
    }

    /// A word of a vocabulary of 20 000, with Zipf-like frequencies: common words occur far more
    /// often.
    fn word(&mut self) -> String {
        const SYLLABLES: [&str; 28] = [
            "ba", "ke", "lo", "mi", "nu", "ra", "se", "ti", "vo", "zu", "dar", "fen", "gil", "hon",
            "jur", "kas", "lem", "pir", "tos", "wen", "bri", "cla", "dro", "fle", "gra", "pla",
            "sto", "tre",
        ];
        let mut rank = (20_000_f32.powf(self.next_f32()) - 1.0) as usize;
        let mut word = String::new();
        loop {
            word.push_str(SYLLABLES[rank % SYLLABLES.len()]);
            rank /= SYLLABLES.len();
            if rank == 0 && word.len() > 3 {
                return word;
            }
            rank = rank.saturating_sub(1);
        }
    }

    fn text(&mut self, words: u32) -> String {
        (0..words).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }

    fn embedding(&mut self) -> Option<Embedding> {
        let vector: Vec<f32> = (0..DIMENSIONS).map(|_| self.next_f32() - 0.5).collect();
        Embedding::from_vector(&vector)
    }
}

/// The median and the 95th percentile of all queries. The time of a query is the minimum of some
/// rounds: other programs evict the index from the caches, which costs CPU time too.
fn search_times(search: impl Fn(u32) -> usize) -> (Duration, Duration) {
    let found = |i| assert!(search(i) > 0);
    let mut times = vec![Duration::MAX; QUERY_COUNT as usize];
    for _ in 0..ROUNDS {
        for (i, time) in (0..).zip(&mut times) {
            *time = cpu::measure(|| found(i)).min(*time);
        }
    }
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 95 / 100])
}

#[test]
fn ten_thousand_chunks_are_searched_in_ten_milliseconds() {
    let mut random = PseudoRandom(1);
    let mut index = Index::new();
    let indexing = cpu::measure(|| {
        for chunk in 0..CHUNK_COUNT {
            // 80 words are one chunk.
            let text = random.text(80);
            index.insert_with_embeddings(&chunk, &text, vec![random.embedding()]);
        }
    });
    eprintln!("{} chunks made and indexed in {indexing:?}", index.len());
    assert_eq!(index.len(), CHUNK_COUNT as usize);
    // The query contains one misspelled word, which is compared with the whole vocabulary.
    let queries: Vec<String> =
        (0..QUERY_COUNT).map(|_| format!("{} {}x", random.text(9), random.word())).collect();
    let query_embeddings: Vec<Embedding> =
        (0..QUERY_COUNT).filter_map(|_| random.embedding()).collect();
    let words = search_times(|i| index.search(&queries[i as usize], 4).len());
    let fused = search_times(|i| {
        index.hybrid_search(&queries[i as usize], &query_embeddings[i as usize], 4).len()
    });
    eprintln!(
        "by words: median {:?}, p95 {:?}; by words and meaning: median {:?}, p95 {:?}",
        words.0, words.1, fused.0, fused.1
    );
    assert!(words.1 <= SEARCH_TIME_LIMIT && fused.1 <= SEARCH_TIME_LIMIT, "{words:?} {fused:?}");
}
