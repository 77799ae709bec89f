//! An agent's knowledge: chunks of text in one BM25 index, ranked by words and, where embeddings
//! exist, by embeddings. Pure: no clock, no files, no threads.
//!
//! Speech recognition misspells words, drops case and punctuation, and writes numbers as words. So
//! search is tolerant: words are stemmed, and "forty two" is "42". A word that is not in the index
//! matches words with a similar spelling or sound. This also holds if the STT split a name in two
//! ("sore blacks" finds "Zorblax").

mod dot;
mod embedding;
mod index;
mod phonetic;
mod text;
mod words;

pub use embedding::Embedding;
pub use index::{Hit, Index};
pub use text::{Chunk, chunks, sentences};
pub use words::{Word, is_stop_word, normalize_words, parse_number, words};
