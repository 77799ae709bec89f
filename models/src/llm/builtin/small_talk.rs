//! Replies that need no knowledge.

use std::borrow::Cow;
use std::cell::OnceCell;

use conversation::event::Role;
use knowledge::normalize_words;

use super::candidates::list;
use super::phrases::{Phrases, WordSet, text_after_phrase};
use super::speakable::speakable;
use super::template::{Placeholder, Template, usable};
use super::{TurnContext, prompt};

/// Number of the agent's last texts that a reply differs from.
const RECENT_REPLIES: usize = 4;

/// Number of subjects that a reply names.
const NAMED_SUBJECTS: usize = 3;

/// The reply to greetings and questions about the agent itself; `None` for anything else.
pub(super) fn reply(talk: &TurnContext<'_>, subjects: &[String]) -> Option<String> {
    let phrases = Phrases::english();
    let all = normalize_words(talk.user_text);
    let Some(first) = all.first() else {
        return from_templates(talk, &phrases.not_understood, subjects, None);
    };
    let name: Vec<String> = normalize_words(talk.agent_name);
    let is_filler = |word: &String| phrases.filler_words.contains(word) || name.contains(word);
    let start = all.iter().position(|word| !is_filler(word)).unwrap_or(all.len());
    let end = all.iter().rposition(|word| !is_filler(word)).map_or(start, |i| i + 1);
    let words = all[start..end].join(" ");
    let count = end - start;
    let values = Values { talk, words: &words, subjects, answer: None, identity: OnceCell::new() };

    let greeting = &phrases.greeting;
    if count == 0 || greeting.exact.contains(&words) {
        let templates = if !greeting.openers.contains(first) {
            &greeting.other_reply
        } else if talk.last_text(Role::Assistant).is_none() {
            &greeting.first_reply
        } else {
            &greeting.later_reply
        };
        return fresh(talk, usable(templates, |placeholder| values.value(placeholder)));
    }
    phrases
        .rules
        .iter()
        .filter(|rule| rule.matches(&words, count))
        .filter(|rule| !(rule.unless_question && is_question(&all, &phrases.request_words)))
        .find_map(|rule| fresh(talk, usable(&rule.reply, |placeholder| values.value(placeholder))))
}

/// A reply from templates, about an answer if there is one.
pub(super) fn from_templates(
    talk: &TurnContext<'_>,
    templates: &[Template],
    subjects: &[String],
    answer: Option<&str>,
) -> Option<String> {
    let values = Values { talk, words: "", subjects, answer, identity: OnceCell::new() };
    fresh(talk, usable(templates, |placeholder| values.value(placeholder)))
}

/// The answer, in other words if the agent said it a short time ago.
pub(super) fn not_repeated(talk: &TurnContext<'_>, answer: String) -> String {
    let phrases = &Phrases::english().repeat;
    if !recent_replies(talk).any(|reply| reply.ends_with(answer.as_str())) {
        return answer;
    }
    from_templates(talk, &phrases.replies, &[], Some(&answer)).unwrap_or(answer)
}

/// The first of the replies that the agent did not say a short time ago, else the one that it said
/// the longest time ago.
fn fresh(talk: &TurnContext<'_>, replies: Vec<String>) -> Option<String> {
    let age = |reply: &String| {
        recent_replies(talk).position(|recent| recent == reply).unwrap_or(RECENT_REPLIES)
    };
    let ages: Vec<usize> = replies.iter().map(age).collect();
    let oldest = ages.iter().copied().max()?;
    let at = ages.iter().position(|age| *age == oldest)?;
    replies.into_iter().nth(at)
}

/// The agent's last texts, newest first.
fn recent_replies<'a>(talk: &'a TurnContext<'_>) -> impl Iterator<Item = &'a str> {
    let said = talk.history.iter().rev().filter(|item| item.role == Role::Assistant);
    said.take(RECENT_REPLIES).map(|item| item.text.trim())
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
    subjects: &'a [String],
    answer: Option<&'a str>,
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
            Placeholder::LastReply => {
                let last = talk.last_text(Role::Assistant)?.trim();
                let prefixes = &Phrases::english().repeat.prefixes;
                let mut plain = last;
                while let Some(rest) =
                    prefixes.iter().find_map(|prefix| plain.strip_prefix(prefix.as_str()))
                {
                    plain = rest;
                }
                Some(plain.into())
            }
            Placeholder::StatedName => stated_name(self.words)
                .filter(|(_, rest)| rest.is_empty())
                .map(|(name, _)| title_case(&name).into()),
            Placeholder::UserName => user_name(talk).map(Cow::from),
            Placeholder::Subjects => self.some_subjects().map(Cow::from),
            Placeholder::Answer => self.answer.map(Cow::from),
            Placeholder::Field | Placeholder::Column | Placeholder::Value => None,
        }
    }

    fn identity(&self) -> Option<&str> {
        let prompt = &self.talk.request.prompt;
        let identity = || Some(speakable(&prompt::identity(prompt)?));
        self.identity.get_or_init(identity).as_deref()
    }

    /// Some subjects, others from turn to turn.
    fn some_subjects(&self) -> Option<String> {
        let count = self.subjects.len();
        let turns = self.talk.history.iter().filter(|item| item.role == Role::Assistant).count();
        let start = (turns * NAMED_SUBJECTS) % count.max(1);
        let named = self.subjects.iter().cycle().skip(start).take(count.min(NAMED_SUBJECTS));
        let named: Vec<String> = named.cloned().collect();
        (!named.is_empty()).then(|| list(&named))
    }
}

/// The name that the user stated last, in this turn or before.
fn user_name(talk: &TurnContext<'_>) -> Option<String> {
    let before = talk.history.iter().rev().filter(|item| item.role == Role::User);
    let texts = std::iter::once(talk.user_text).chain(before.map(|item| item.text.as_str()));
    texts
        .map(|text| normalize_words(text).join(" "))
        .find_map(|words| stated_name(&words).map(|(name, _)| title_case(&name)))
}

/// The name in "my name is john smith", and the words after it.
fn stated_name(words: &str) -> Option<(String, String)> {
    const MAX_NAME_WORDS: usize = 3;
    let phrases = Phrases::english();
    let mut openers = phrases.name_openers.iter();
    let after = openers.find_map(|opener| text_after_phrase(words, opener)?.strip_prefix(' '))?;
    let is_name =
        |word: &&str| !knowledge::is_stop_word(word) && !phrases.request_words.contains(*word);
    let name: Vec<&str> = after.split(' ').take_while(is_name).collect();
    let rest: Vec<&str> = after.split(' ').skip(name.len()).collect();
    let is_name = (1..=MAX_NAME_WORDS).contains(&name.len());
    is_name.then(|| (name.join(" "), rest.join(" ")))
}

fn title_case(name: &str) -> String {
    let title = |word: &str| {
        let mut chars = word.chars();
        chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
    };
    name.split(' ').map(title).collect::<Vec<_>>().join(" ")
}
