//! Normalizes text into comparable words: lower case, no accents, stemmed, numbers as digits.

use std::cell::RefCell;
use std::collections::HashMap;

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};
use unicode_segmentation::UnicodeSegmentation;

/// A normalized word.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Word {
    /// The spelling in lower case without accents; digits for numbers.
    pub normalized: String,
    /// The stem, which is compared.
    pub stem: String,
}

impl Word {
    fn new(normalized: String) -> Self {
        let stem = if normalized.is_ascii() { stem(&normalized) } else { normalized.clone() };
        Self { normalized, stem }
    }

    /// Whether the word is a number in digits.
    #[must_use]
    pub fn is_number(&self) -> bool {
        self.normalized.bytes().all(|b| b.is_ascii_digit())
    }

    /// Whether the word is too common to be searched for.
    #[must_use]
    pub fn is_stop_word(&self) -> bool {
        is_stop_word(&self.normalized)
    }
}

/// The words of `text` in order, stop words included. Words that spell a number become its digits.
/// After a run of numbers ("four two seven", "twenty twenty six", "555 0100"), all their digits are
/// also added as one word.
#[must_use]
pub fn words(text: &str) -> Vec<Word> {
    replace_number_words(&normalize_words(text)).into_iter().map(Word::new).collect()
}

/// The words of `text` in lower case, without accents and possessive endings, split between digits
/// and letters.
#[must_use]
pub fn normalize_words(text: &str) -> Vec<String> {
    let folded: String =
        text.nfkd().filter(|c| !is_combining_mark(*c)).flat_map(char::to_lowercase).collect();
    let mut words = Vec::new();
    for word in folded.unicode_words() {
        let word = word.trim_end_matches("'s").trim_end_matches("’s");
        let mut part = String::new();
        for c in word.chars() {
            // "10,000" and "don't" are one word each.
            if matches!(c, '\'' | '’' | ',' | '_') {
                continue;
            }
            let changes = part.chars().last().is_some_and(|last| {
                last.is_ascii_digit() != c.is_ascii_digit() && c != '.' && last != '.'
            });
            if changes {
                words.push(std::mem::take(&mut part));
            }
            part.push(c);
        }
        if !part.is_empty() {
            words.push(part);
        }
    }
    words
}

/// The number that `words` spell together ("one hundred and five"), if they spell exactly one.
#[must_use]
pub fn parse_number(words: &[String]) -> Option<u64> {
    match parse_number_prefix(words) {
        Some((value, length)) if length == words.len() => Some(value),
        _ => None,
    }
}

fn replace_number_words(words: &[String]) -> Vec<String> {
    let mut out = Vec::with_capacity(words.len());
    let mut at = 0;
    while at < words.len() {
        let mut run: Vec<String> = Vec::new();
        while at < words.len() {
            let zero = !run.is_empty() && matches!(words[at].as_str(), "oh" | "o");
            if zero || words[at].bytes().all(|b| b.is_ascii_digit()) {
                run.push(if zero { "0".into() } else { words[at].clone() });
                at += 1;
            } else if let Some((value, length)) = parse_number_prefix(&words[at..]) {
                run.push(value.to_string());
                at += length;
            } else {
                break;
            }
        }
        match run.len() {
            0 => {
                out.push(words[at].clone());
                at += 1;
            }
            // A single "one" is nearly always the pronoun.
            1 if run[0] == "1" && words[at - 1] == "one" => out.push("one".into()),
            1 => out.append(&mut run),
            _ => {
                let joined = run.concat();
                // Single digits in a run have no meaning of their own.
                if run.len() == 2 || run.iter().any(|n| n.len() > 1) {
                    out.append(&mut run);
                }
                out.push(joined);
            }
        }
    }
    out
}

/// The longest number at the start of `words`, and the number of words it takes.
fn parse_number_prefix(words: &[String]) -> Option<(u64, usize)> {
    #[derive(PartialEq)]
    enum Last {
        Nothing,
        Unit,
        Teen,
        Tens,
        Hundred,
        Scale,
    }
    let (mut total, mut current, mut last, mut length) = (0_u64, 0_u64, Last::Nothing, 0);
    for (i, word) in words.iter().enumerate() {
        let fresh = matches!(last, Last::Nothing | Last::Hundred | Last::Scale);
        match (word.as_str(), small_number(word)) {
            ("zero", _) if last == Last::Nothing => return Some((0, 1)),
            (_, Some(value @ 1..=9)) if fresh || last == Last::Tens => {
                current += value;
                last = Last::Unit;
            }
            (_, Some(value @ 10..=19)) if fresh => {
                current += value;
                last = Last::Teen;
            }
            (_, Some(value @ 20..)) if fresh => {
                current += value;
                last = Last::Tens;
            }
            ("hundred", _) if matches!(last, Last::Unit | Last::Teen) && current < 100 => {
                current *= 100;
                last = Last::Hundred;
            }
            ("thousand" | "million", _) if current > 0 && last != Last::Scale => {
                total += current * if word == "million" { 1_000_000 } else { 1000 };
                current = 0;
                last = Last::Scale;
            }
            ("and", _)
                if matches!(last, Last::Hundred | Last::Scale)
                    && words.get(i + 1).is_some_and(|w| small_number(w).is_some()) =>
            {
                continue;
            }
            _ => break,
        }
        length = i + 1;
    }
    (length > 0).then_some((total + current, length))
}

fn small_number(word: &str) -> Option<u64> {
    const UNITS: [&str; 19] = [
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
    ];
    const TENS: [&str; 8] =
        ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
    let at = |list: &[&str]| list.iter().position(|known| *known == word).map(|i| i as u64);
    at(&UNITS).map(|i| i + 1).or_else(|| at(&TENS).map(|i| (i + 2) * 10))
}

fn stem(word: &str) -> String {
    thread_local! {
        // The stemmer is slow on long texts (tens of thousands of words), and texts repeat their
        // words.
        static STEM_CACHE: RefCell<HashMap<String, String>> = RefCell::new(HashMap::new());
    }
    STEM_CACHE.with_borrow_mut(|cache| {
        if let Some(stem) = cache.get(word) {
            return stem.clone();
        }
        let stem = Stemmer::create(Algorithm::English).stem(word).into_owned();
        if cache.len() > 10_000 {
            cache.clear();
        }
        cache.insert(word.to_owned(), stem.clone());
        stem
    })
}

/// Whether a word (lower case, without apostrophes) is too common to be searched for.
#[must_use]
pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// Sorted.
const STOP_WORDS: [&str; 167] = [
    "a",
    "about",
    "actually",
    "after",
    "again",
    "all",
    "also",
    "am",
    "an",
    "and",
    "any",
    "anything",
    "are",
    "arent",
    "as",
    "ask",
    "at",
    "be",
    "because",
    "been",
    "being",
    "but",
    "by",
    "can",
    "cant",
    "could",
    "did",
    "didnt",
    "do",
    "does",
    "doesnt",
    "doing",
    "done",
    "dont",
    "er",
    "ever",
    "find",
    "for",
    "from",
    "get",
    "give",
    "go",
    "going",
    "gonna",
    "got",
    "had",
    "has",
    "have",
    "having",
    "he",
    "hello",
    "her",
    "hers",
    "hey",
    "hi",
    "him",
    "his",
    "how",
    "i",
    "id",
    "if",
    "ill",
    "im",
    "in",
    "into",
    "is",
    "isnt",
    "it",
    "its",
    "ive",
    "just",
    "kind",
    "know",
    "let",
    "lets",
    "like",
    "many",
    "may",
    "maybe",
    "me",
    "might",
    "mine",
    "much",
    "must",
    "my",
    "need",
    "no",
    "not",
    "now",
    "of",
    "off",
    "oh",
    "ok",
    "okay",
    "on",
    "one",
    "or",
    "our",
    "ours",
    "out",
    "please",
    "really",
    "right",
    "said",
    "say",
    "see",
    "shall",
    "she",
    "should",
    "so",
    "some",
    "something",
    "sort",
    "sure",
    "tell",
    "than",
    "thank",
    "thanks",
    "that",
    "thats",
    "the",
    "their",
    "theirs",
    "them",
    "then",
    "there",
    "theres",
    "these",
    "they",
    "thing",
    "things",
    "this",
    "those",
    "to",
    "too",
    "uh",
    "um",
    "us",
    "very",
    "wanna",
    "want",
    "was",
    "we",
    "well",
    "were",
    "what",
    "whats",
    "when",
    "where",
    "wheres",
    "which",
    "who",
    "whom",
    "whos",
    "whose",
    "why",
    "will",
    "with",
    "would",
    "yeah",
    "yes",
    "yet",
    "you",
    "youd",
    "your",
    "youre",
    "yours",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized_text(text: &str) -> String {
        words(text).into_iter().map(|word| word.normalized).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_stop_words_are_sorted() {
        assert!(STOP_WORDS.is_sorted());
        assert!(
            is_stop_word("the")
                && is_stop_word("yours")
                && is_stop_word("a")
                && !is_stop_word("price")
        );
    }

    #[test]
    fn words_lose_case_accents_and_endings() {
        assert_eq!(normalized_text("The Café's menu — don't panic!"), "the cafe menu dont panic");
        assert_eq!(words("opening")[0].stem, words("opens")[0].stem);
        assert_eq!(
            normalized_text("open 9am, v2 costs $10,000 or 3.5"),
            "open 9 am v 2 costs 10000 or 3.5"
        );
    }

    #[test]
    fn numbers_in_words_become_digits() {
        assert_eq!(normalized_text("forty-two"), "42");
        assert_eq!(normalized_text("one hundred and five rooms"), "105 rooms");
        assert_eq!(normalized_text("three thousand two hundred"), "3200");
        assert_eq!(normalized_text("two million and one"), "2000001");
        assert_eq!(normalized_text("nineteen hundred"), "1900");
        assert_eq!(normalized_text("sixteen and seventeen"), "16 and 17");
        assert_eq!(normalized_text("zero"), "0");
    }

    #[test]
    fn numbers_in_a_row_are_read_together_too() {
        assert_eq!(normalized_text("twenty twenty six"), "20 26 2026");
        assert_eq!(normalized_text("room four two seven please"), "room 427 please");
        assert_eq!(normalized_text("four oh seven"), "407");
        assert_eq!(normalized_text("call 555 0100"), "call 555 0100 5550100");
        assert_eq!(normalized_text("ten thirty"), "10 30 1030");
    }

    #[test]
    fn a_lone_one_stays_a_word() {
        assert_eq!(normalized_text("which one is it"), "which one is it");
        assert_eq!(normalized_text("twenty one"), "21");
    }

    #[test]
    fn one_number_is_told_from_several() {
        let of = |text: &str| parse_number(&normalize_words(text));
        assert_eq!(of("forty two"), Some(42));
        assert_eq!(of("forty two cats"), None);
        assert_eq!(of("cats"), None);
    }
}
