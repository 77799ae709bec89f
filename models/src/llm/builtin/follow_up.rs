//! Texts that refer to the turns before them: "And on Sunday?", "Why?", "Tell me more."

use conversation::event::{HistoryItem, Role};
use knowledge::{Word, is_stop_word, normalize_words, words};

use super::lexicon::Lexicon;
use super::phrases::{Phrases, text_after_phrase};

/// Number of turns of the user that a chain of follow-ups goes back.
const MAX_CHAIN: usize = 4;

/// A text with pronouns refers to the turn before only if it has at most this many content words.
const MAX_CONTENT_WORDS: usize = 3;

/// Class of words that go with the word after them.
const PREPOSITION: &str = "preposition";

/// What a text asks of the turn before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// More candidates.
    More,
    /// The reason.
    Why,
}

/// The reference of a text that consists of it.
pub(super) fn reference(text: &str) -> Option<Reference> {
    let Phrases { follow_up, filler_words, .. } = Phrases::english();
    let all = normalize_words(text);
    let is_filler = |word: &&String| filler_words.contains(*word);
    let start = all.iter().take_while(is_filler).count();
    let end = all.len() - all.iter().rev().take_while(is_filler).count();
    let words = all.get(start..end)?.join(" ");
    if follow_up.more.contains(&words) {
        return Some(Reference::More);
    }
    follow_up.why.contains(&words).then_some(Reference::Why)
}

/// Whether the text makes no question without the turn before: "And on Sunday?"
pub(super) fn is_elliptical(text: &str) -> bool {
    let phrases = &Phrases::english().follow_up;
    let words = normalize_words(text);
    let joined = words.join(" ");
    words.iter().all(|word| is_stop_word(word))
        || phrases.openers.iter().any(|opener| starts_with(&joined, opener))
}

/// Whether the text refers to the turn before.
pub(super) fn is_follow_up(text: &str) -> bool {
    let phrases = &Phrases::english().follow_up;
    let words = normalize_words(text);
    let joined = words.join(" ");
    let content = words.iter().filter(|word| !is_stop_word(word)).count();
    content == 0
        || phrases.openers.iter().any(|opener| starts_with(&joined, opener))
        || (content <= MAX_CONTENT_WORDS
            && words.iter().any(|word| phrases.pronouns.contains(word)))
        || (content == 1 && words.len() <= 2)
}

/// The text as a question of its own: with the question before it, if it is a follow-up. `None` if
/// it is none, or if there is no question before it.
pub(super) fn resolve(text: &str, history: &[&HistoryItem]) -> Option<String> {
    if !is_follow_up(text) {
        return None;
    }
    let mut chain = vec![text];
    for item in history.iter().rev().filter(|item| item.role == Role::User).take(MAX_CHAIN) {
        if reference(&item.text).is_some() {
            continue;
        }
        chain.push(&item.text);
        if !is_follow_up(&item.text) {
            break;
        }
    }
    if chain.len() < 2 {
        return None;
    }
    let mut chain = chain.into_iter().rev();
    let mut question = chain.next()?.to_owned();
    for next in chain {
        question = merge(&question, next);
    }
    Some(question)
}

/// The question with the words of a follow-up, which replace its words of the same kind.
fn merge(question: &str, follow_up: &str) -> String {
    let phrases = &Phrases::english().follow_up;
    let new = normalize_words(follow_up);
    let replaced: Vec<_> =
        phrases.slots.iter().filter(|slot| new.iter().any(|word| slot.contains(word))).collect();
    let has_number = |text: &str| words(text).iter().any(Word::is_number);
    let new_number = has_number(follow_up);
    let is_replaced = |token: &str| {
        let words = normalize_words(token);
        words.iter().any(|word| replaced.iter().any(|slot| slot.contains(word)))
            || (new_number && has_number(token))
    };
    let lexicon = Lexicon::english();
    let mut remaining: Vec<&str> = Vec::new();
    for token in question.split_whitespace() {
        if !is_replaced(token) {
            remaining.push(token.trim_end_matches(['?', '.', '!', ',']));
        } else if remaining.last().is_some_and(|last| lexicon.is_in_class(last, PREPOSITION)) {
            remaining.pop();
        }
    }
    format!("{} {}", remaining.join(" "), without_opener(&new.join(" ")))
}

fn without_opener(words: &str) -> &str {
    let openers = &Phrases::english().follow_up.openers;
    let longest = openers.iter().filter(|opener| starts_with(words, opener)).map(String::len).max();
    words[longest.unwrap_or(0)..].trim_start()
}

fn starts_with(words: &str, phrase: &str) -> bool {
    text_after_phrase(words, phrase).is_some_and(|rest| rest.len() + phrase.len() == words.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(turns: &[&str], text: &str) -> Option<String> {
        let item = |text: &&str| HistoryItem {
            role: Role::User,
            speaker: None,
            name: None,
            arguments: None,
            text: (*text).into(),
            interrupted: false,
            utterance: None,
            started_at: None,
            ended_at: None,
            in_context: true,
        };
        let items: Vec<HistoryItem> = turns.iter().map(item).collect();
        resolve(text, &items.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_follow_up_becomes_a_question_of_its_own() {
        let question = ["When are you open on Saturday?"];
        assert_eq!(
            resolved(&question, "And on Sunday?").as_deref(),
            Some("When are you open on sunday")
        );
        let tour = ["What is the tour?", "How much is that for two hours?"];
        assert_eq!(
            resolved(&tour, "and for three days?").as_deref(),
            Some("What is the tour how much is that for three days")
        );
        assert_eq!(resolved(&question, "What does the garden tour cost?"), None);
        assert_eq!(resolved(&[], "And on Sunday?"), None);
    }

    #[test]
    fn whole_texts_ask_for_more_or_for_the_reason() {
        assert_eq!(reference("Please tell me more!"), Some(Reference::More));
        assert_eq!(reference("Why?"), Some(Reference::Why));
        assert_eq!(reference("Why are you closed on Monday?"), None);
        assert_eq!(reference(""), None);
    }
}
