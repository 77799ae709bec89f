//! Pronunciation of one word: two dictionaries, rules for suffixes, initialisms, and the words whose
//! sound depends on their neighbors.
//!
//! The rules are those of misaki 0.9.4 (github.com/hexgrad/misaki, Apache-2.0), which the network
//! was trained with.

use serde::de::DeserializeSeed;

use super::stress::{PRIMARY, SECONDARY, Stress, is_consonant, is_vowel};
use super::suffix;
use super::table::{JsonValue, MapSeed, TextMap};

/// What follows a word.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Following {
    /// Whether the next phoneme is a vowel; `None` before a pause.
    pub(super) vowel: Option<bool>,
    /// Whether the next word is "to".
    pub(super) is_to: bool,
}

impl Following {
    /// What precedes `word` with `phonemes` is followed by this.
    pub(super) fn before(self, word: &str, phonemes: &str) -> Self {
        let sound = phonemes.chars().find_map(|c| {
            if ";:,.!?—…".contains(c) {
                Some(None)
            } else {
                (is_vowel(c) || is_consonant(c)).then(|| Some(is_vowel(c)))
            }
        });
        Self { vowel: sound.unwrap_or(self.vowel), is_to: matches!(word, "to" | "To" | "TO") }
    }
}

/// A dictionary. It finds a word in lower case also by its capitalized form and the reverse, unless
/// both are entries.
struct Dictionary {
    starts: TextMap<u32>,
    /// Pronunciations, each with [`END`] behind it. One that depends on the part of speech is
    /// [`BY_TAG`] and then `tag=phonemes;` for each tag.
    values: String,
}

const END: char = '\0';
const BY_TAG: char = '\u{1}';

impl Dictionary {
    fn parse(json: &[u8]) -> Result<Self, String> {
        let mut values = String::new();
        let seed = MapSeed(|value: JsonValue<'_>| {
            let start = u32::try_from(values.len()).map_err(|error| error.to_string())?;
            match value {
                JsonValue::Text(phonemes) => values.push_str(phonemes),
                JsonValue::Fields(fields) => {
                    values.push(BY_TAG);
                    for (tag, phonemes, _) in fields {
                        values.push_str(tag);
                        values.push('=');
                        values.push_str(phonemes.as_deref().unwrap_or_default());
                        values.push(';');
                    }
                }
            }
            values.push(END);
            Ok(start)
        });
        let mut json = serde_json::Deserializer::from_slice(json);
        let starts = seed.deserialize(&mut json).map_err(|error| error.to_string())?;
        values.shrink_to_fit();
        Ok(Self { starts, values })
    }

    fn get(&self, word: &str) -> Option<&str> {
        let start = self.starts.get(word).or_else(|| self.starts.get(&other_case(word)?))?;
        self.values.get(start as usize..)?.split(END).next()
    }

    fn contains(&self, word: &str) -> bool {
        self.get(word).is_some()
    }
}

/// The capitalized form of a word in lower case, and the reverse; `None` for other words.
fn other_case(word: &str) -> Option<String> {
    let mut chars = word.chars();
    let first = chars.next()?;
    let rest = chars.as_str();
    if rest.is_empty() || rest.chars().any(char::is_uppercase) {
        return None;
    }
    let other: String = if first.is_lowercase() {
        first.to_uppercase().chain(rest.chars()).collect()
    } else {
        first.to_lowercase().chain(rest.chars()).collect()
    };
    (other != word).then_some(other)
}

/// The phonemes of `entry` for a part of speech. Empty if the letters are to be spelled.
fn select<'a>(entry: &'a str, tag: &str, following: Following) -> &'a str {
    let Some(variants) = entry.strip_prefix(BY_TAG) else { return entry };
    let find = |name: &str| {
        variants.split(';').filter_map(|variant| variant.split_once('=')).find(|v| v.0 == name)
    };
    let before_pause = if following.vowel.is_none() { find("None") } else { None };
    let found = before_pause.or_else(|| find(tag)).or_else(|| find(general_tag(tag)));
    found.or_else(|| find("DEFAULT")).map_or("", |(_, phonemes)| phonemes)
}

/// The part of speech of a tag, without number and tense.
fn general_tag(tag: &str) -> &str {
    match tag.get(..2) {
        Some("VB") => "VERB",
        Some("NN") => "NOUN",
        Some("RB") => "ADV",
        Some("JJ") => "ADJ",
        _ => tag,
    }
}

pub(super) struct Lexicon {
    /// Checked pronunciations, some by part of speech.
    gold: Dictionary,
    /// Generated ones.
    silver: Dictionary,
}

impl Lexicon {
    /// Reads both dictionaries from JSON.
    ///
    /// # Errors
    /// The reason, without the name of the file.
    pub(super) fn parse(gold: &[u8], silver: &[u8]) -> Result<Self, String> {
        Ok(Self { gold: Dictionary::parse(gold)?, silver: Dictionary::parse(silver)? })
    }

    pub(super) fn len(&self) -> usize {
        self.gold.starts.len() + self.silver.starts.len()
    }

    /// Phonemes of `word`, with its tag and what follows; `None` if nothing is known about it.
    pub(super) fn pronounce(&self, word: &str, tag: &str, following: Following) -> Option<String> {
        let stress = Stress::of_case(word);
        if let Some(phonemes) = self.function_word(word, tag, stress, following) {
            return Some(phonemes);
        }
        let lower = word.to_lowercase();
        // A capitalized word or one in capitals that only exists in lower case.
        let query = Query { tag, stress, following };
        let word = if self.is_common_word(word, &lower, &query) { lower.as_str() } else { word };
        if self.is_known(word) {
            return self.look_up(word, &query);
        }
        // The apostrophe of a plural has no sound.
        let word = word.strip_suffix('\'').unwrap_or(word);
        if self.is_known(word) {
            return self.look_up(word, &query);
        }
        self.inflected(word, &query)
    }

    /// Whether a word with capitals is the word `lower` at the start of a sentence, or emphasized.
    fn is_common_word(&self, word: &str, lower: &str, query: &Query<'_>) -> bool {
        let mut chars = word.chars();
        let count = word.chars().count();
        chars.next();
        let rest = chars.as_str();
        let letters = word.chars().all(|c| c.is_alphabetic() || c == '\'');
        let regular = word == word.to_uppercase() || rest == rest.to_lowercase();
        let listed = |word: &str| self.gold.contains(word) || self.silver.contains(word);
        count > 1
            && word != lower
            && letters
            && regular
            && (query.tag != "NNP" || count > 7)
            && !listed(word)
            && (listed(lower) || self.inflected(lower, query).is_some())
    }

    /// Words whose sound depends on the next one, and initialisms with periods.
    fn function_word(
        &self,
        word: &str,
        tag: &str,
        stress: Stress,
        following: Following,
    ) -> Option<String> {
        let is_noun = tag.starts_with("NN");
        let gold = |word: &str| self.gold.get(word).map(|e| select(e, tag, following).to_owned());
        let inner = word.trim_matches('.');
        if inner.contains('.')
            && inner.split('.').all(|part| part.chars().count() < 3)
            && inner.chars().all(|c| c.is_alphabetic() || c == '.')
        {
            return self.spell(word);
        }
        match word {
            "a" | "A" => Some(if tag == "DT" { "ɐ" } else { "ˈA" }.to_owned()),
            "am" | "Am" | "AM" if is_noun => self.spell(word),
            "am" if following.vowel.is_some() && stress == Stress::Unchanged => Some("ɐm".into()),
            "am" | "Am" | "AM" => gold("am"),
            "AN" if is_noun => self.spell(word),
            "an" | "An" | "AN" => Some("ɐn".to_owned()),
            "I" if tag == "PRP" => Some("ˌI".to_owned()),
            "by" | "By" | "BY" if general_tag(tag) == "ADV" => Some("bˈI".to_owned()),
            "TO" if !matches!(tag, "TO" | "IN") => None,
            "to" | "To" | "TO" => match following.vowel {
                None => gold("to"),
                Some(false) => Some("tə".to_owned()),
                Some(true) => Some("tʊ".to_owned()),
            },
            "IN" if tag == "NNP" => None,
            "in" | "In" | "IN" => {
                let stressed = following.vowel.is_none() || tag != "IN";
                Some(if stressed { "ˈɪn" } else { "ɪn" }.to_owned())
            }
            "THE" if tag != "DT" => None,
            "the" | "The" | "THE" => {
                Some(if following.vowel == Some(true) { "ði" } else { "ðə" }.to_owned())
            }
            "used" | "Used" | "USED" => {
                let habit = matches!(tag, "VBD" | "JJ") && following.is_to;
                let entry = self.gold.get("used")?;
                let tag = if habit { "VBD" } else { "DEFAULT" };
                Some(select(entry, tag, Following { vowel: Some(false), is_to: false }).to_owned())
            }
            _ => None,
        }
    }

    /// Whether the dictionaries have the word, or its letters can be spelled.
    fn is_known(&self, word: &str) -> bool {
        if self.gold.contains(word) || self.silver.contains(word) {
            return true;
        }
        if word.is_empty() || !word.chars().all(|c| c.is_ascii_alphabetic()) {
            return false;
        }
        let in_capitals = word == word.to_uppercase();
        word.len() == 1
            || in_capitals && self.gold.contains(&word.to_lowercase())
            || word[1..] == word[1..].to_uppercase()
    }

    fn look_up(&self, word: &str, query: &Query<'_>) -> Option<String> {
        let in_capitals = word == word.to_uppercase() && !self.gold.contains(word);
        let is_name = in_capitals && query.tag == "NNP";
        let lower = if in_capitals { word.to_lowercase() } else { word.to_owned() };
        let entry = self.gold.get(&lower);
        let entry = entry.or_else(|| if is_name { None } else { self.silver.get(&lower) });
        let phonemes = entry.map_or("", |entry| select(entry, query.tag, query.following));
        let is_letters = phonemes.is_empty() || is_name && !phonemes.contains(PRIMARY);
        if is_letters && let Some(spelled) = self.spell(word) {
            return Some(spelled);
        }
        (!phonemes.is_empty()).then(|| query.stress.apply(phonemes))
    }

    /// The letters of a word, one after the other, with the primary stress on the last.
    fn spell(&self, word: &str) -> Option<String> {
        let mut phonemes = String::new();
        for letter in word.chars().filter(|c| c.is_alphabetic()) {
            let entry = self.gold.get(&letter.to_uppercase().to_string())?;
            phonemes.push_str(select(entry, "", Following::default()));
        }
        let demoted = Stress::Demoted.apply(&phonemes);
        Some(match demoted.rfind(SECONDARY) {
            Some(at) => {
                let end = at + SECONDARY.len_utf8();
                [&demoted[..at], "ˈ", &demoted[end..]].concat()
            }
            None => demoted,
        })
    }

    /// A word with the suffix -s, -ed or -ing on a known stem.
    fn inflected(&self, word: &str, query: &Query<'_>) -> Option<String> {
        let known = |stem: &String| self.is_known(stem);
        let gerund = Query {
            stress: match query.stress {
                Stress::Unchanged => Stress::Capitalized,
                other => other,
            },
            ..*query
        };
        for (stems, attach, query) in [
            (suffix::stems_of_s(word), suffix::attach_s as fn(&str) -> String, query),
            (suffix::stems_of_ed(word), suffix::attach_ed, query),
            (suffix::stems_of_ing(word), suffix::attach_ing, &gerund),
        ] {
            if let Some(stem) = stems.iter().find(|stem| known(stem)) {
                return self.look_up(stem, query).map(|phonemes| attach(&phonemes));
            }
        }
        None
    }
}

/// The circumstances of a word.
#[derive(Clone, Copy)]
struct Query<'a> {
    tag: &'a str,
    stress: Stress,
    following: Following,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lexicon() -> Lexicon {
        let gold = r#"{"A": "ˈA", "G": "ʤˈi", "P": "pˈi", "U": "jˈu", "S": "ˈɛs", "to": "tˈu",
            "live": {"DEFAULT": "lˈɪv", "ADJ": "lˈIv"}, "am": "ˈæm", "walk": "wˈɔk",
            "used": {"DEFAULT": "jˈuzd", "VBD": "jˈust"}, "Paul": "pˈɔl", "vote": "vˈOt",
            "that": {"DEFAULT": "ðæt", "None": "ðˈæt"}, "US": {"DEFAULT": "jˌuˈɛs", "NOUN": null},
            "hello": "həlˈO", "nasa": "nˈæsə"}"#;
        Lexicon::parse(gold.as_bytes(), r#"{"visor": "vˈIzəɹ"}"#.as_bytes()).unwrap()
    }

    fn say(word: &str, tag: &str) -> Option<String> {
        let following = Following { vowel: Some(false), is_to: false };
        lexicon().pronounce(word, tag, following)
    }

    #[test]
    fn the_part_of_speech_and_the_pause_select_a_variant() {
        assert_eq!(say("live", "VB").unwrap(), "lˈɪv");
        assert_eq!(say("live", "JJ").unwrap(), "lˈIv");
        assert_eq!(say("that", "IN").unwrap(), "ðæt");
        assert_eq!(lexicon().pronounce("that", "DT", Following::default()).unwrap(), "ðˈæt");
    }

    #[test]
    fn the_next_word_selects_the_sound_of_function_words() {
        let lexicon = lexicon();
        let at = |word, tag, vowel| {
            lexicon.pronounce(word, tag, Following { vowel, is_to: false }).unwrap()
        };
        assert_eq!(["ðə", "ði", "ðə"], [Some(false), Some(true), None].map(|v| at("the", "DT", v)));
        assert_eq!(["tə", "tʊ", "tˈu"], [Some(false), Some(true), None].map(|v| at("to", "TO", v)));
        assert_eq!((at("a", "DT", None), at("A", "NN", None)), ("ɐ".into(), "ˈA".into()));
        let used = |is_to| lexicon.pronounce("used", "VBD", Following { vowel: None, is_to });
        assert_eq!((used(true).unwrap(), used(false).unwrap()), ("jˈust".into(), "jˈuzd".into()));
    }

    #[test]
    fn initialisms_are_spelled_and_words_in_capitals_are_read() {
        assert_eq!(say("GPU", "NNP").unwrap(), "ʤˌipˌijˈu");
        assert_eq!(say("GPUs", "NNS").unwrap(), "ʤˌipˌijˈuz");
        assert_eq!(say("U.S.", "NNP").unwrap(), "jˌuˈɛs");
        assert_eq!(say("US", "NN").unwrap(), "jˌuˈɛs", "null in the dictionary");
        assert_eq!(say("HELLO", "UH").unwrap(), "həlˈO");
        assert_eq!(say("NASA", "NNP").unwrap(), "nˈæsə");
    }

    #[test]
    fn stems_are_found_behind_suffixes() {
        assert_eq!(say("walks", "VBZ").unwrap(), "wˈɔks");
        assert_eq!(say("Walked", "VBD").unwrap(), "wˈɔkt");
        assert_eq!(say("walking", "VBG").unwrap(), "wˈɔkɪŋ");
        assert_eq!(say("voted", "VBD").unwrap(), "vˈOɾᵻd");
        assert_eq!(say("visors", "NNS").unwrap(), "vˈIzəɹz");
        assert_eq!(say("Paul's", "NNP").unwrap(), "pˈɔlz");
        assert_eq!(say("visors'", "NNS"), say("visors", "NNS"));
        assert_eq!(say("visavis", "NNP"), None);
        assert_eq!(say("", "NN"), None);
    }

    #[test]
    fn a_word_tells_what_the_one_before_it_sees() {
        let next = Following { vowel: Some(true), is_to: true };
        assert_eq!(next.before("dog", "dˈɔɡ"), Following { vowel: Some(false), is_to: false });
        assert_eq!(next.before(",", ","), Following { vowel: None, is_to: false });
        assert_eq!(next.before("to", "tə"), Following { vowel: Some(false), is_to: true });
        assert_eq!(next.before("'", "").vowel, Some(true), "without a sound");
    }
}
