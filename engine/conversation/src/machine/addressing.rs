//! Whether an utterance addresses somebody by name or by a wake phrase.
//!
//! An address begins the utterance, follows a greeting at its beginning, or ends it. A name inside a
//! sentence is a mention, and so is a name at the beginning of a statement about its bearer ("Clara
//! said that …") or the object of a sentence ("I asked Clara."). Names are compared by sound,
//! because the STT spells them as it likes.

use unicode_normalization::UnicodeNormalization as _;

use crate::contract::participation::Participation;
use crate::machine::address_words::{
    ADDRESSEE_WORDS, AMBIGUOUS_WORDS, GREETINGS, OBJECT_WORDS, STATEMENT_WORDS, contains,
};

/// Where an utterance addresses the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// At its beginning, with more words after it.
    Start,
    /// At its end, or it consists of the address.
    End,
}

/// A word of an utterance.
struct Word {
    /// Lower case, without diacritics and punctuation.
    letters: String,
    /// Whether punctuation follows.
    ends_clause: bool,
}

fn split_words(text: &str) -> Vec<Word> {
    let words = text.split_whitespace().map(|token| Word {
        letters: fold(token),
        ends_clause: token.ends_with([',', '.', '!', '?', ':', ';', '…', '—', '-']),
    });
    let mut all: Vec<Word> = Vec::new();
    for word in words {
        match all.last_mut() {
            // Punctuation with spaces around it.
            Some(last) if word.letters.is_empty() => last.ends_clause |= word.ends_clause,
            _ if word.letters.is_empty() => {}
            _ => all.push(word),
        }
    }
    all
}

/// Lower case without diacritics and punctuation, and without the English possessive.
fn fold(token: &str) -> String {
    let token = token.trim_end_matches(|c: char| !c.is_alphanumeric());
    let (bare, is_possessive) = match token.strip_suffix("'s").or(token.strip_suffix("’s")) {
        Some(bare) => (bare, true),
        None => (token, false),
    };
    let mut folded: String =
        bare.nfd().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    if is_possessive {
        // "Clara's" is not "Clara".
        folded.push_str("\u{2019}s");
    }
    folded
}

/// Roughly how a word sounds: spellings of one sound are one letter, and double letters are single.
fn sound(word: &str) -> Vec<char> {
    let spelled = word.replace("ph", "f").replace("ck", "k").replace("th", "t");
    let mut sounds: Vec<char> = Vec::new();
    for (index, c) in spelled.chars().enumerate() {
        let c = match c {
            'c' | 'q' => 'k',
            'z' => 's',
            'y' | 'j' => 'i',
            'w' => 'v',
            // Only at the beginning of a word is it heard in most languages.
            'h' if index > 0 => continue,
            c => c,
        };
        if sounds.last() != Some(&c) {
            sounds.push(c);
        }
    }
    sounds
}

/// Number of insertions, deletions and replacements between two words (Levenshtein).
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Whether a word of an utterance sounds like `name`: one difference for every four letters.
fn sounds_like(word: &str, name: &str) -> bool {
    if word == name {
        return true;
    }
    let (heard, expected) = (sound(word), sound(name));
    heard == expected
        || edit_distance(&heard, &expected) <= name.chars().count() / 4 && {
            // A different beginning is a different word: "later" is not "Peter".
            heard.first() == expected.first()
        }
}

/// The words that address the agent: each one, or several in sequence.
fn address_phrases(rules: &Participation, with_names: bool) -> Vec<(Vec<String>, bool)> {
    let words = |text: &str| -> Vec<String> {
        text.split_whitespace().map(fold).filter(|word| !word.is_empty()).collect()
    };
    let mut phrases = Vec::new();
    if let Some(phrase) = &rules.wake_phrase {
        let phrase = words(phrase);
        if !phrase.is_empty() {
            let is_name = phrase.len() == 1;
            phrases.push((phrase, is_name));
        }
    }
    for name in rules.names.iter().filter(|_| with_names) {
        let parts = words(name);
        if parts.len() > 1 {
            phrases.extend(
                parts
                    .iter()
                    .filter(|part| part.chars().count() >= 4)
                    .map(|part| (vec![part.clone()], true)),
            );
        }
        if !parts.is_empty() {
            phrases.push((parts, true));
        }
    }
    // Longer ones first, so that nothing of a full name counts as a further word.
    phrases.sort_by_key(|(phrase, _)| core::cmp::Reverse(phrase.len()));
    phrases
}

/// Whether an utterance addresses the agent, and where. `with_names`: by its names, too, and not
/// only by the wake phrase.
pub(crate) fn find_address(text: &str, rules: &Participation, with_names: bool) -> Option<Address> {
    let words = split_words(text);
    let is_question = text.trim_end().ends_with('?');
    address_phrases(rules, with_names)
        .iter()
        .find_map(|(phrase, is_name)| address_by(&words, is_question, phrase, *is_name))
}

/// Whether an utterance addresses the bearer of this name.
pub(crate) fn addresses_name(text: &str, name: &str) -> bool {
    let rules = Participation { names: vec![name.to_owned()], ..Participation::default() };
    find_address(text, &rules, true).is_some()
}

/// Whether an utterance consists of an address and nothing else.
pub(crate) fn is_bare_address(text: &str, rules: &Participation, with_names: bool) -> bool {
    let words = split_words(text);
    address_phrases(rules, with_names).iter().any(|(phrase, _)| {
        let rest = words.iter().skip_while(|word| contains(GREETINGS, &word.letters));
        let rest: Vec<&Word> = rest.collect();
        matches_at(&rest, phrase, 0) && rest.len() == phrase.len()
            || words.len() == phrase.len()
                && matches_at(&words.iter().collect::<Vec<_>>(), phrase, 0)
    })
}

fn matches_at(words: &[&Word], phrase: &[String], at: usize) -> bool {
    words.len() >= at + phrase.len()
        && phrase.iter().zip(&words[at..]).all(|(name, word)| sounds_like(&word.letters, name))
}

fn address_by(
    words: &[Word],
    is_question: bool,
    phrase: &[String],
    is_name: bool,
) -> Option<Address> {
    let all: Vec<&Word> = words.iter().collect();
    let greetings = words.iter().take_while(|word| contains(GREETINGS, &word.letters)).count();
    // A wake phrase may itself begin with a greeting.
    for at in 0..=greetings {
        if matches_at(&all, phrase, at) {
            let end = at + phrase.len();
            if end == words.len() {
                return Some(Address::End);
            }
            if !is_name || is_request_after(words, end, is_question) {
                return Some(Address::Start);
            }
        }
    }
    let at = words.len().checked_sub(phrase.len()).filter(|at| *at > 0)?;
    if !matches_at(&all, phrase, at) {
        return None;
    }
    let before = &words[at - 1];
    let is_object = !before.ends_clause && contains(OBJECT_WORDS, &before.letters);
    (!is_name || !is_object).then_some(Address::End)
}

/// Whether what follows a name at the beginning speaks to its bearer.
fn is_request_after(words: &[Word], at: usize, is_question: bool) -> bool {
    if words[at - 1].ends_clause {
        return true;
    }
    let word = words[at].letters.as_str();
    if contains(AMBIGUOUS_WORDS, word) {
        return is_question
            || words.get(at + 1).is_some_and(|w| contains(ADDRESSEE_WORDS, &w.letters));
    }
    !contains(STATEMENT_WORDS, word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(names: &[&str], wake_phrase: Option<&str>) -> Participation {
        Participation {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            wake_phrase: wake_phrase.map(Into::into),
            ..Participation::default()
        }
    }

    #[test]
    fn an_address_begins_or_ends_an_utterance_or_follows_a_greeting() {
        let clara = rules(&["Clara"], None);
        for (text, expected) in [
            ("Clara, what is the budget?", Address::Start),
            ("Clara what is the budget", Address::Start),
            ("Klara, wie hoch ist das Budget?", Address::Start),
            ("Okay Clara, please go on.", Address::Start),
            ("Hi, Clara. How are you?", Address::Start),
            ("Clara can you tell us more?", Address::Start),
            ("Clara could you summarize that", Address::Start),
            ("Clara is the report ready?", Address::Start),
            ("Clarah tell us the date", Address::Start),
            ("What do you think, Clara?", Address::End),
            ("What is the deadline Clara", Address::End),
            ("Clara?", Address::End),
            ("Hey Clara!", Address::End),
            ("Thanks, Clara.", Address::End),
        ] {
            assert_eq!(find_address(text, &clara, true), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_mention_is_no_address() {
        let clara = rules(&["Clara"], None);
        for text in [
            "Clara said that we should wait.",
            "Clara is on holiday.",
            "Clara will send it tomorrow.",
            "Clara can do that.",
            "Clara's report is ready.",
            "Clara and Tom work on it.",
            "Clara already mentioned the price.",
            "Clara thinks it is fine.",
            "I asked Clara about the date.",
            "I talked to Clara.",
            "We should ask Clara.",
            "The slides are from Clara.",
            "Did you tell Clara?",
            "That was Clara's idea.",
            "Nobody but Clara knows the number.",
            "He works with Clara.",
            "Let us wait until Clara is back.",
            "My sister is called Clara.",
            "If Clara agrees, we start on Monday.",
            "This was not clear at all.",
            "The report by Clara and Tom is late.",
            "Later we can see the numbers.",
        ] {
            assert_eq!(find_address(text, &clara, true), None, "{text}");
        }
    }

    #[test]
    fn names_of_several_words_match_by_each_long_one() {
        let full = rules(&["Ana Lindqvist"], None);
        for text in ["Lindqvist, the date?", "Lindquist, the date?", "Ana Lindqvist, the date?"] {
            assert_eq!(find_address(text, &full, true), Some(Address::Start), "{text}");
        }
        // The short one alone is too frequent a word.
        assert_eq!(find_address("Ana, the date?", &full, true), None);
    }

    #[test]
    fn a_wake_phrase_counts_alone_in_observer_mode() {
        let both = rules(&["Clara"], Some("hey assistant"));
        for text in ["Hey assistant, what time is it?", "Hey, Assistant. What time is it?"] {
            assert_eq!(find_address(text, &both, false), Some(Address::Start), "{text}");
        }
        assert_eq!(find_address("What is it, hey assistant?", &both, false), Some(Address::End));
        assert_eq!(find_address("Clara, what time is it?", &both, false), None);
        assert_eq!(find_address("The assistant said hey.", &both, false), None);
    }

    #[test]
    fn a_bare_address_has_no_other_words() {
        let both = rules(&["Clara"], Some("hey assistant"));
        for text in ["Clara?", "Hey Clara!", "Okay, Clara.", "Hey assistant."] {
            assert!(is_bare_address(text, &both, true), "{text}");
        }
        for text in ["Clara, go on.", "Hey assistant, stop.", ""] {
            assert!(!is_bare_address(text, &both, true), "{text}");
        }
    }

    #[test]
    fn short_names_must_sound_the_same() {
        let raj = rules(&["Raj"], None);
        assert_eq!(find_address("Raj, are you there?", &raj, true), Some(Address::Start));
        assert_eq!(find_address("Rag, are you there?", &raj, true), None);
        assert_eq!(find_address("Right, we are there.", &raj, true), None);
    }
}
