//! English words that the answerer relates to each other: similar words, and function words that do
//! not follow each other. The file `assets/words/en.toml` documents its fields.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use knowledge::{Word, is_stop_word, words};
use serde::Deserialize;

use super::phrases::WordSet;

const ENGLISH_FILE: &str = include_str!("../../../../assets/words/en.toml");

static ENGLISH: LazyLock<Lexicon> = LazyLock::new(|| {
    let file: File = toml::from_str(ENGLISH_FILE)
        .unwrap_or_else(|error| panic!("assets/words/en.toml: {error}"));
    Lexicon::new(file)
});

/// Likeness of two words of one group; that of equal stems is 1.
const GROUP_LIKENESS: f32 = 0.75;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    groups: Vec<Vec<String>>,
    classes: HashMap<String, WordSet>,
    implausible: Implausible,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Implausible {
    pairs: Vec<(String, Vec<String>)>,
    ends: WordSet,
    starts: WordSet,
}

/// Relations of words in one language.
pub(super) struct Lexicon {
    /// By stem: the groups of similar words that have it.
    groups: HashMap<String, Vec<usize>>,
    /// By word: its classes.
    classes: HashMap<String, Vec<String>>,
    /// By class or word: the classes and words that do not follow it.
    implausible: HashMap<String, HashSet<String>>,
    ends: WordSet,
    starts: WordSet,
}

impl Lexicon {
    /// The words of English. The first call parses the file.
    pub(super) fn english() -> &'static Self {
        &ENGLISH
    }

    fn new(file: File) -> Self {
        let mut groups: HashMap<String, Vec<usize>> = HashMap::new();
        for (number, group) in file.groups.iter().enumerate() {
            for word in group.iter().flat_map(|word| words(word)) {
                groups.entry(word.stem).or_default().push(number);
            }
        }
        let mut classes: HashMap<String, Vec<String>> = HashMap::new();
        for (class, members) in file.classes {
            for word in members {
                classes.entry(word).or_default().push(class.clone());
            }
        }
        let Implausible { pairs, ends, starts } = file.implausible;
        let mut implausible: HashMap<String, HashSet<String>> = HashMap::new();
        for (first, seconds) in pairs {
            implausible.entry(first).or_default().extend(seconds);
        }
        Self { groups, classes, implausible, ends, starts }
    }

    /// How well `known` replaces `word`, 0 to 1.
    pub(super) fn likeness(&self, word: &Word, known: &Word) -> f32 {
        if word.stem == known.stem {
            return 1.0;
        }
        let related = match (self.groups.get(&word.stem), self.groups.get(&known.stem)) {
            (Some(a), Some(b)) => a.iter().any(|group| b.contains(group)),
            _ => false,
        };
        if related { GROUP_LIKENESS } else { 0.0 }
    }

    /// Whether a word is in a class.
    pub(super) fn is_in_class(&self, word: &str, class: &str) -> bool {
        self.classes.get(word).is_some_and(|classes| classes.iter().any(|known| known == class))
    }

    /// Whether a word only connects others.
    pub(super) fn is_function_word(&self, word: &str) -> bool {
        is_stop_word(word) || self.classes.contains_key(word)
    }

    /// Number of places where the words cannot be part of one sentence.
    pub(super) fn implausible_places(&self, words: &[String]) -> usize {
        let pairs = words.windows(2).filter(|pair| self.is_implausible(&pair[0], &pair[1])).count();
        let end = words.last().is_some_and(|word| self.ends.contains(word));
        let start = words.first().is_some_and(|word| self.starts.contains(word));
        pairs + usize::from(end) + usize::from(start)
    }

    fn is_implausible(&self, first: &str, second: &str) -> bool {
        let none = Vec::new();
        let classes = |word: &str| self.classes.get(word).unwrap_or(&none);
        let follows_badly = |key: &str| {
            self.implausible.get(key).is_some_and(|excluded| {
                excluded.contains(second)
                    || classes(second).iter().any(|class| excluded.contains(class))
            })
        };
        follows_badly(first) || classes(first).iter().any(|class| follows_badly(class))
    }
}

#[cfg(test)]
mod tests {
    use knowledge::normalize_words;

    use super::*;

    fn likeness(a: &str, b: &str) -> f32 {
        Lexicon::english().likeness(&words(a)[0], &words(b)[0])
    }

    fn implausible_places(text: &str) -> usize {
        Lexicon::english().implausible_places(&normalize_words(text))
    }

    #[test]
    fn similar_words_are_found_by_stem() {
        assert_eq!(likeness("tickets", "ticket"), 1.0);
        assert_eq!(likeness("kids", "child"), GROUP_LIKENESS);
        assert_eq!(likeness("kids", "lift"), 0.0);
    }

    #[test]
    fn word_salad_has_implausible_places_and_questions_have_none() {
        for text in [
            "How much is a ticket for two adults and a child?",
            "What if I arrive when the desk has closed?",
            "Is it the one we were in?",
            "Who do I talk to about that?",
            "From when can my son come in on Sundays?",
        ] {
            assert_eq!(implausible_places(text), 0, "{text}");
        }
        for text in ["the of when a is lamp", "can the a do of my", "is for at the and seven of"] {
            assert!(implausible_places(text) >= 2, "{text}");
        }
    }

    #[test]
    fn the_files_words_are_normalized_and_its_classes_exist() {
        let file: File = toml::from_str(ENGLISH_FILE).expect("it is valid");
        let lists = file.classes.values().chain([&file.implausible.ends, &file.implausible.starts]);
        let listed: HashSet<&String> =
            lists.flatten().chain(file.groups.iter().flatten()).collect();
        for word in &listed {
            assert_eq!(normalize_words(word), [word.as_str()]);
        }
        for group in &file.groups {
            assert!(group.len() >= 2, "{group:?}");
        }
        for (first, seconds) in &file.implausible.pairs {
            for key in seconds.iter().chain([first]) {
                let is_known = file.classes.contains_key(key) || is_stop_word(key);
                assert!(is_known, "{key:?} is no class and no function word");
            }
        }
    }
}
