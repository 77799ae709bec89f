//! What an agent knows: text in chunks, one BM25 index, ranking by words and, where vectors are given, by meaning. Pure: no clock, no files, no threads.
//!
//! Speech recognition misspells, drops case and punctuation and writes numbers as words, so search is tolerant: words are stemmed,
//! "forty two" is "42", and a word that the index does not know stands for those that are spelt or sound like it, also when the
//! recogniser broke a name in two ("sore blacks" finds "Zorblax").

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
