//! Replies that need no knowledge.

use std::borrow::Cow;
use std::cell::OnceCell;

use conversation::event::Role;
use knowledge::normalize_words;

use super::phrases::{Phrases, WordSet, text_after_phrase};
use super::template::{Placeholder, first_usable};
use super::{TurnContext, knowledge_answer, speakable};

/// The reply to greetings and questions about the agent itself; `None` for anything else.
pub(super) fn reply(talk: &TurnContext<'_>) -> Option<String> {
    let phrases = Phrases::english();
    let all = normalize_words(talk.user_text);
    let Some(first) = all.first() else {
        return Some(phrases.not_understood.clone());
    };
    let name: Vec<String> = normalize_words(talk.agent_name);
    let is_filler = |word: &String| phrases.filler_words.contains(word) || name.contains(word);
    let start = all.iter().position(|word| !is_filler(word)).unwrap_or(all.len());
    let end = all.iter().rposition(|word| !is_filler(word)).map_or(start, |i| i + 1);
    let words = all[start..end].join(" ");
    let count = end - start;
    let values = Values { talk, words: &words, identity: OnceCell::new() };

    let greeting = &phrases.greeting;
    if count == 0 || greeting.exact.contains(&words) {
        let templates = if !greeting.openers.contains(first) {
            &greeting.other_reply
        } else if talk.last_text(Role::Assistant).is_none() {
            &greeting.first_reply
        } else {
            &greeting.later_reply
        };
        return first_usable(templates, |placeholder| values.value(placeholder));
    }
    phrases
        .rules
        .iter()
        .filter(|rule| rule.matches(&words, count))
        .filter(|rule| !(rule.unless_question && is_question(&all, &phrases.request_words)))
        .find_map(|rule| first_usable(&rule.reply, |placeholder| values.value(placeholder)))
}

/// The reply when no answer is known, in rotation.
pub(super) fn unknown_reply(talk: &TurnContext<'_>) -> String {
    let phrases = Phrases::english();
    let words = normalize_words(talk.user_text);
    if !is_question(&words, &phrases.request_words) && words.len() > 2 {
        return phrases.unknown.statement_reply.clone();
    }
    let turns = talk.history.iter().filter(|item| item.role == Role::Assistant).count();
    let replies = &phrases.unknown.replies;
    replies[turns % replies.len()].clone()
}

/// Whether the text is a question or a request.
fn is_question(words: &[String], request_words: &WordSet) -> bool {
    words.iter().any(|word| request_words.contains(word))
}

/// The values of the placeholders in replies to a text.
struct Values<'a> {
    talk: &'a TurnContext<'a>,
    /// The text without the filler words at its ends.
    words: &'a str,
    identity: OnceCell<Option<String>>,
}

impl Values<'_> {
    fn value(&self, placeholder: Placeholder) -> Option<Cow<'_, str>> {
        let talk = self.talk;
        match placeholder {
            Placeholder::Agent => (!talk.agent_name.is_empty()).then(|| talk.agent_name.into()),
            Placeholder::Identity => self.identity().map(Cow::from),
            Placeholder::NamedIdentity => {
                self.identity().filter(|identity| identity.contains(talk.agent_name)).map(Cow::from)
            }
            Placeholder::LastReply => Some(talk.last_text(Role::Assistant)?.trim().into()),
            Placeholder::StatedName => stated_name(self.words).map(|name| title_case(name).into()),
            Placeholder::UserName => {
                let from_user = talk.history.iter().rev().filter(|item| item.role == Role::User);
                let mut texts = from_user.map(|item| normalize_words(&item.text).join(" "));
                texts.find_map(|words| stated_name(&words).map(title_case)).map(Cow::from)
            }
            Placeholder::Answer | Placeholder::Field | Placeholder::Value => None,
        }
    }

    fn identity(&self) -> Option<&str> {
        let prompt = &self.talk.request.prompt;
        let identity = || Some(speakable(&knowledge_answer::identity(prompt)?));
        self.identity.get_or_init(identity).as_deref()
    }
}

/// The name in "my name is john smith".
fn stated_name(words: &str) -> Option<&str> {
    let mut openers = Phrases::english().name_openers.iter();
    let name = openers.find_map(|opener| text_after_phrase(words, opener)?.strip_prefix(' '))?;
    let mut parts = name.split(' ');
    let is_name = parts.clone().count() <= 3 && !parts.any(knowledge::is_stop_word);
    is_name.then_some(name)
}

fn title_case(name: &str) -> String {
    let title = |word: &str| {
        let mut chars = word.chars();
        chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
    };
    name.split(' ').map(title).collect::<Vec<_>>().join(" ")
}
