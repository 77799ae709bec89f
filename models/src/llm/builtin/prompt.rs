//! The agent's prompt: its statements about the agent, in the first person.

use std::collections::BTreeMap;

use knowledge::{normalize_words, sentences};

use super::MAX_ANSWER_BYTES;
use super::phrases::Phrases;

/// A sentence of the prompt in the first person: "You are Ada." becomes "I am Ada." Instructions
/// are not spoken: `None`.
pub(super) fn to_first_person(sentence: &str) -> Option<String> {
    let phrases = &Phrases::english().prompt;
    let words = normalize_words(sentence);
    let first = words.first()?;
    let is_directive = |word: &String| phrases.directives.contains(word);
    if phrases.instruction_openers.contains(first)
        || (phrases.addresses.contains(first) && words.get(1).is_some_and(is_directive))
    {
        return None;
    }
    let replaced: Vec<String> =
        sentence.split(' ').map(|word| mirror_pronoun(word, &phrases.first_person)).collect();
    let mirrored = replaced.join(" ");
    Some(phrases.corrections.iter().fold(mirrored, |text, (from, to)| text.replace(from, to)))
}

fn mirror_pronoun(word: &str, first_person: &BTreeMap<String, String>) -> String {
    let bare = word.trim_end_matches(|c: char| !c.is_alphanumeric());
    let after = &word[bare.len()..];
    let mirror = first_person.get(bare).map_or(bare, String::as_str);
    format!("{mirror}{after}")
}

/// The prompt's statement about the agent's identity: "You are Ada, the receptionist." becomes "I
/// am Ada, the receptionist."
pub(super) fn identity(prompt: &str) -> Option<String> {
    let starts = &Phrases::english().prompt.identity_starts;
    let sentence = sentences(prompt)
        .into_iter()
        .find(|sentence| starts.iter().any(|start| sentence.starts_with(start)))?;
    to_first_person(&sentence).filter(|sentence| sentence.len() <= MAX_ANSWER_BYTES)
}

/// The agent's name in the prompt's statement about its identity: the capitalized words at its
/// start, "Ada Bell" in "You are Ada Bell, the receptionist."
pub(super) fn name(prompt: &str) -> Option<String> {
    let starts = &Phrases::english().prompt.identity_starts;
    let rest = sentences(prompt).into_iter().find_map(|sentence| {
        let rest = starts.iter().find_map(|start| sentence.strip_prefix(start.as_str()))?;
        Some(rest.to_owned())
    })?;
    let is_name = |word: &&str| word.starts_with(char::is_uppercase);
    // A name ends at the first comma, or at the end of the sentence.
    let before_comma = rest.split([',', '.', '!']).next()?;
    let words: Vec<&str> = before_comma.split_whitespace().take_while(is_name).collect();
    (!words.is_empty()).then(|| words.join(" "))
}
