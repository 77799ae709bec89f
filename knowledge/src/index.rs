//! A BM25 index over chunks (S. Robertson, H. Zaragoza, "The Probabilistic Relevance Framework:
//! BM25 and Beyond", 2009).

mod hybrid_search;

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use crate::embedding::Embedding;
use crate::phonetic::PhoneticKey;
use crate::text::chunks;
use crate::words::{Word, words};

/// BM25's k1: saturation of repeated words.
const BM25_K1: f32 = 1.2;

/// BM25's b: penalty on longer chunks.
const BM25_B: f32 = 0.75;

/// The chunks of all documents, searched together. `Id` identifies a document.
#[derive(Clone, Debug)]
pub struct Index<Id> {
    /// `None` marks a removed chunk.
    chunks: Vec<Option<Entry<Id>>>,
    free_slots: Vec<u32>,
    chunk_count: usize,
    total_length: f64,
    terms: Vec<Term>,
    /// Parallel to `terms` and compact, because an unknown word is compared with all of them.
    signatures: Vec<WordSignature>,
    by_stem: HashMap<String, u32>,
    by_phonetic_key: HashMap<PhoneticKey, Vec<u32>>,
    /// Phonetic keys by their number of sounds: similar keys differ by at most one.
    by_key_length: [Vec<(PhoneticKey, u32)>; 17],
}

/// A quick filter that shows that two words differ.
#[derive(Clone, Copy, Debug)]
struct WordSignature {
    /// See [`letter_bigrams`].
    bigrams: u64,
    /// The set of the word's letters, by their lowest five bits.
    letters: u32,
    /// Length in characters, at most 255.
    length: u8,
}

impl WordSignature {
    fn new(word: &str) -> Self {
        let letters = word.chars().fold(0, |set, letter| set | 1 << (u32::from(letter) & 31));
        Self { bigrams: letter_bigrams(word), letters, length: word.chars().count().min(255) as u8 }
    }

    /// Whether the edit distance may be within `edits`. The test takes a nanosecond and avoids
    /// nearly all full comparisons. An edit changes the length by at most one, and the set of
    /// letters by at most two. It changes at most six bigrams (a swap of neighbors).
    fn may_be_within(self, other: Self, edits: u32) -> bool {
        u32::from(self.length.abs_diff(other.length)) <= edits
            && (self.letters ^ other.letters).count_ones() <= 2 * edits
            && (self.bigrams ^ other.bigrams).count_ones() <= 6 * edits
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Entry<Id> {
    pub(crate) id: Id,
    pub(crate) ordinal: u32,
    pub(crate) text: String,
    /// Number of words, stop words excluded.
    length: f32,
    /// The embedding of the text, if there is one.
    pub(crate) embedding: Option<Embedding>,
}

#[derive(Clone, Debug)]
struct Term {
    stem: String,
    /// (chunk, frequency), in no particular order of chunks.
    postings: Vec<(u32, u16)>,
}

/// A chunk that matches a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit<'a, Id> {
    /// Its document.
    pub id: &'a Id,
    /// Number of the chunk within the document.
    pub ordinal: u32,
    /// Text of the chunk.
    pub text: &'a str,
    /// BM25 score: larger is better. Scores are comparable within one search only.
    pub score: f32,
    /// Fraction of the query that the chunk contains, weighted by information, 0 to 1.
    pub coverage: f32,
}

impl<Id> Default for Index<Id> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            free_slots: Vec::new(),
            chunk_count: 0,
            total_length: 0.0,
            terms: Vec::new(),
            signatures: Vec::new(),
            by_stem: HashMap::new(),
            by_phonetic_key: HashMap::new(),
            by_key_length: Default::default(),
        }
    }
}

impl<Id: Clone + PartialEq> Index<Id> {
    /// An empty index.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of chunks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunk_count
    }

    /// Whether the index has no chunks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunk_count == 0
    }

    /// Adds a document, cut into chunks.
    pub fn insert(&mut self, id: &Id, text: &str) {
        for chunk in chunks(text) {
            self.insert_chunk(id, chunk.ordinal, chunk.text);
        }
    }

    /// Adds one chunk without further cutting.
    pub fn insert_chunk(&mut self, id: &Id, ordinal: u32, text: String) {
        self.insert_entry(id, ordinal, text, None);
    }

    pub(crate) fn insert_entry(
        &mut self,
        id: &Id,
        ordinal: u32,
        text: String,
        embedding: Option<Embedding>,
    ) {
        let words: Vec<Word> =
            words(&text).into_iter().filter(|word| !word.is_stop_word()).collect();
        let mut frequencies: HashMap<&str, (u16, &Word)> = HashMap::new();
        for word in &words {
            let entry = frequencies.entry(&word.stem).or_insert((0, word));
            entry.0 = entry.0.saturating_add(1);
        }
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.chunks.push(None);
            (self.chunks.len() - 1) as u32
        });
        for (stem, (frequencies, word)) in frequencies {
            let term = self.by_stem.get(stem).copied().unwrap_or_else(|| self.add_term(word));
            self.terms[term as usize].postings.push((slot, frequencies));
        }
        let length = words.len() as f32;
        self.chunk_count += 1;
        self.total_length += f64::from(length);
        self.chunks[slot as usize] =
            Some(Entry { id: id.clone(), ordinal, text, length, embedding });
    }

    fn add_term(&mut self, word: &Word) -> u32 {
        let number = self.terms.len() as u32;
        // The phonetic key is that of the first form of the word.
        let phonetic_key = PhoneticKey::new(&word.normalized);
        self.by_phonetic_key.entry(phonetic_key).or_default().push(number);
        self.by_key_length[phonetic_key.len() as usize].push((phonetic_key, number));
        self.signatures.push(WordSignature::new(&word.stem));
        self.by_stem.insert(word.stem.clone(), number);
        self.terms.push(Term { stem: word.stem.clone(), postings: Vec::new() });
        number
    }

    /// Removes a document. The time is proportional to the size of the whole index.
    pub fn remove(&mut self, id: &Id) {
        let mut gone = HashSet::new();
        for (slot, chunk) in (0_u32..).zip(&mut self.chunks) {
            if let Some(entry) = chunk.take_if(|entry| entry.id == *id) {
                self.total_length -= f64::from(entry.length);
                gone.insert(slot);
            }
        }
        if !gone.is_empty() {
            for term in &mut self.terms {
                term.postings.retain(|(slot, _)| !gone.contains(slot));
            }
            self.chunk_count -= gone.len();
            self.free_slots.extend(gone);
        }
    }

    /// Returns the best `limit` chunks for `query`, best first; none if no word of it is known.
    #[must_use]
    pub fn search(&self, query: &str, limit: usize) -> Vec<Hit<'_, Id>> {
        self.search_weighted(&[(query, 1.0)], limit)
    }

    /// Like [`Self::search`], for a query in parts with weights (a follow-up and the question
    /// before it).
    #[must_use]
    pub fn search_weighted(&self, query: &[(&str, f32)], limit: usize) -> Vec<Hit<'_, Id>> {
        self.rank(query, limit).into_iter().map(|(_, hit)| hit).collect()
    }

    /// Like [`Self::search_weighted`], with the slot of each chunk.
    pub(crate) fn rank(&self, query: &[(&str, f32)], limit: usize) -> Vec<(u32, Hit<'_, Id>)> {
        let query_terms = self.query_terms(query);
        if query_terms.is_empty() || self.chunk_count == 0 {
            return Vec::new();
        }
        let average = (self.total_length / self.chunk_count as f64).max(1.0) as f32;
        let all: f32 =
            query_terms.iter().map(|term_query| term_query.weight * term_query.information).sum();
        let mut scores = Scores::new(self.chunks.len());
        let mut best = Scores::new(self.chunks.len());
        for term_query in &query_terms {
            // A word may match several terms. In each chunk only the best of them counts, not their
            // sum.
            for &(term, likeness) in &term_query.terms {
                let postings = &self.terms[term as usize].postings;
                let idf = self.idf(postings.len());
                for &(slot, times) in postings {
                    let Some(chunk) = &self.chunks[slot as usize] else { continue };
                    let times = f32::from(times);
                    let norm = BM25_K1 * (1.0 - BM25_B + BM25_B * chunk.length / average);
                    let score = likeness * idf * times * (BM25_K1 + 1.0) / (times + norm);
                    let entry = best.entry(slot);
                    *entry = (entry.0.max(score), entry.1.max(likeness));
                }
            }
            best.drain(|slot, (score, likeness)| {
                let entry = scores.entry(slot);
                *entry = (
                    entry.0 + term_query.weight * score,
                    entry.1 + term_query.weight * term_query.information * likeness,
                );
            });
        }
        let mut ranked: Vec<(u32, f32, f32)> = Vec::with_capacity(scores.touched.len());
        scores.drain(|slot, (score, covered)| ranked.push((slot, score, covered)));
        // Ties go to the earlier chunk, so that a search gives the same result on every machine.
        let order = |a: &(u32, f32, f32), b: &(u32, f32, f32)| {
            b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal).then(a.0.cmp(&b.0))
        };
        if ranked.len() > limit && limit > 0 {
            ranked.select_nth_unstable_by(limit - 1, order);
        }
        ranked.truncate(limit);
        ranked.sort_unstable_by(order);
        let hit = |(slot, score, covered): (u32, f32, f32)| {
            let chunk = self.chunks[slot as usize].as_ref()?;
            let coverage = if all > 0.0 { (covered / all).min(1.0) } else { 0.0 };
            let (id, ordinal, text) = (&chunk.id, chunk.ordinal, chunk.text.as_str());
            Some((slot, Hit { id, ordinal, text, score, coverage }))
        };
        ranked.into_iter().filter_map(hit).collect()
    }

    /// All chunks with their slots.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u32, &Entry<Id>)> {
        (0_u32..).zip(&self.chunks).filter_map(|(slot, entry)| Some((slot, entry.as_ref()?)))
    }

    /// The chunk in a slot.
    pub(crate) fn entry(&self, slot: u32) -> Option<&Entry<Id>> {
        self.chunks.get(slot as usize)?.as_ref()
    }

    /// The terms of a query, each with the index terms that it may match.
    fn query_terms(&self, query: &[(&str, f32)]) -> Vec<QueryTerm> {
        let mut query_terms = Vec::new();
        let mut seen: HashMap<String, usize> = HashMap::new();
        for &(text, weight) in query {
            let words = words(text);
            let mut joined = vec![false; words.len()];
            self.match_joined_words(&words, weight, &mut joined, &mut query_terms);
            for (word, joined) in words.iter().zip(joined) {
                if word.is_stop_word() || joined {
                    continue;
                }
                if let Some(&i) = seen.get(&word.stem) {
                    let known: &mut QueryTerm = &mut query_terms[i];
                    known.weight = known.weight.max(weight);
                    continue;
                }
                seen.insert(word.stem.clone(), query_terms.len());
                let terms = self.matching_terms(word);
                query_terms.push(QueryTerm {
                    information: self.information(&terms),
                    weight,
                    terms,
                });
            }
        }
        query_terms
    }

    /// Matches adjacent words that are one word of the index: "data base", or a name that the STT
    /// split because it is unknown ("sore blacks").
    fn match_joined_words(
        &self,
        words: &[Word],
        weight: f32,
        joined: &mut [bool],
        query_terms: &mut Vec<QueryTerm>,
    ) {
        for length in [3, 2] {
            for at in 0..(words.len() + 1).saturating_sub(length) {
                let window = &words[at..at + length];
                let is_unknown =
                    |word: &Word| !word.is_stop_word() && !self.contains_stem(&word.stem);
                if joined[at..at + length].contains(&true)
                    || window.iter().any(Word::is_number)
                    || window.iter().all(Word::is_stop_word)
                {
                    continue;
                }
                let spelling: String = window.iter().map(|word| word.normalized.as_str()).collect();
                let exact = crate::words::words(&spelling)
                    .first()
                    .and_then(|word| self.by_stem.get(&word.stem))
                    .filter(|term| self.df(**term) > 0);
                let terms = match exact {
                    Some(&term) => vec![(term, 1.0)],
                    None if window.iter().any(is_unknown) => self.terms_sounding_like(&spelling),
                    None => continue,
                };
                if terms.is_empty() {
                    continue;
                }
                // The match covers its parts, unless they are words of the index themselves.
                for (i, word) in window.iter().enumerate() {
                    joined[at + i] = word.is_stop_word() || is_unknown(word);
                }
                query_terms.push(QueryTerm {
                    information: self.information(&terms),
                    weight,
                    terms,
                });
            }
        }
    }

    /// Index terms that a word may match, with their likeness: the word itself, else terms with a
    /// similar spelling or sound.
    fn matching_terms(&self, word: &Word) -> Vec<(u32, f32)> {
        if let Some(&term) = self.by_stem.get(&word.stem).filter(|term| self.df(**term) > 0) {
            return vec![(term, 1.0)];
        }
        let length = word.stem.chars().count();
        if word.is_number() || length < 3 {
            return Vec::new();
        }
        let mut found = self.terms_sounding_like(&word.normalized);
        let max_edits = match length {
            ..4 => 0,
            4..8 => 1,
            _ => 2,
        };
        if max_edits > 0 {
            let signature = WordSignature::new(&word.stem);
            for (number, _) in (0_u32..)
                .zip(&self.signatures)
                .filter(|(_, known)| known.may_be_within(signature, max_edits))
            {
                let distance =
                    strsim::osa_distance(&self.terms[number as usize].stem, &word.stem) as u32;
                if distance <= max_edits && self.df(number) > 0 {
                    found.push((number, 0.9 - 0.2 * distance as f32));
                }
            }
        }
        best_matches(found)
    }

    /// Index terms that sound like `spelling`. Short words are skipped, because they sound like too
    /// many terms.
    fn terms_sounding_like(&self, spelling: &str) -> Vec<(u32, f32)> {
        let phonetic_key = PhoneticKey::new(spelling);
        if phonetic_key.len() < 3 {
            return Vec::new();
        }
        let equal = self.by_phonetic_key.get(&phonetic_key).into_iter().flatten();
        let mut found: Vec<(u32, f32)> = equal.map(|&term| (term, 0.7)).collect();
        if found.is_empty() && phonetic_key.len() >= 4 {
            let length = phonetic_key.len() as usize;
            let near =
                self.by_key_length[(length - 1).max(4)..=(length + 1).min(16)].iter().flatten();
            found.extend(
                near.filter(|(known, _)| known.is_similar(phonetic_key))
                    .map(|&(_, number)| (number, 0.5)),
            );
        }
        found.retain(|&(term, _)| self.df(term) > 0);
        // Among terms that sound alike, those with a similar spelling are more likely: Dice's
        // coefficient of their letter bigrams.
        let bigrams = letter_bigrams(spelling);
        for (term, likeness) in &mut found {
            let known = self.signatures[*term as usize].bigrams;
            let shared = 2 * (known & bigrams).count_ones();
            *likeness *=
                0.5 + 0.5 * shared as f32 / (known.count_ones() + bigrams.count_ones()) as f32;
        }
        best_matches(found)
    }

    fn contains_stem(&self, stem: &str) -> bool {
        self.by_stem.get(stem).is_some_and(|&term| self.df(term) > 0)
    }

    fn df(&self, term: u32) -> usize {
        self.terms[term as usize].postings.len()
    }

    fn idf(&self, df: usize) -> f32 {
        let (n, df) = (self.chunk_count as f32, df as f32);
        ((n - df + 0.5) / (df + 0.5)).ln_1p()
    }

    /// Information of a word: rarer words have more. An unknown word counts like one that occurs
    /// once.
    fn information(&self, terms: &[(u32, f32)]) -> f32 {
        self.idf(terms.iter().map(|&(term, _)| self.df(term)).max().unwrap_or(1))
    }
}

/// A word of a query, or several words that form one.
struct QueryTerm {
    terms: Vec<(u32, f32)>,
    weight: f32,
    information: f32,
}

/// The best four matches at most, best first, without duplicates.
fn best_matches(mut found: Vec<(u32, f32)>) -> Vec<(u32, f32)> {
    found.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal).then(a.0.cmp(&b.0)));
    let mut seen = HashSet::new();
    found.retain(|(term, _)| seen.insert(*term));
    found.truncate(4);
    found
}

/// The set of a word's letter bigrams, hashed to 64 bits. Both ends of the word count as letters.
fn letter_bigrams(word: &str) -> u64 {
    let padded = std::iter::once(b'^').chain(word.bytes()).chain(std::iter::once(b'$'));
    let after = word.bytes().chain(std::iter::once(b'$'));
    padded.zip(after).fold(0, |set, (a, b)| {
        set | 1
            << ((u32::from(a).wrapping_mul(31).wrapping_add(u32::from(b)))
                .wrapping_mul(0x9e37_79b1)
                >> 26)
    })
}

/// Two numbers per chunk, and the list of chunks that have any.
struct Scores {
    values: Vec<(f32, f32)>,
    touched: Vec<u32>,
}

impl Scores {
    fn new(chunks: usize) -> Self {
        Self { values: vec![(0.0, 0.0); chunks], touched: Vec::new() }
    }

    /// The likeness of a touched chunk is above zero.
    fn entry(&mut self, slot: u32) -> &mut (f32, f32) {
        let entry = &mut self.values[slot as usize];
        if entry.1 == 0.0 {
            self.touched.push(slot);
        }
        entry
    }

    fn drain(&mut self, mut visit: impl FnMut(u32, (f32, f32))) {
        for slot in self.touched.drain(..) {
            visit(slot, std::mem::take(&mut self.values[slot as usize]));
        }
    }
}

#[cfg(test)]
mod tests;
