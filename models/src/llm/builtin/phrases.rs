//! The phrases of the built-in answerer, from a file of `assets/answers`. The file's comments
//! document its format and each field.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use serde::Deserialize;

use super::template::Template;

/// The file of the only language.
const ENGLISH_FILE: &str = include_str!("../../../../assets/answers/en.toml");

static ENGLISH: LazyLock<Phrases> = LazyLock::new(|| {
    toml::from_str(ENGLISH_FILE).unwrap_or_else(|error| panic!("assets/answers/en.toml: {error}"))
});

/// Normalized words.
pub(super) type WordSet = HashSet<String>;

/// What the answerer understands and says in one language.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Phrases {
    pub(super) decline: String,
    pub(super) not_understood: String,
    pub(super) filler_words: WordSet,
    pub(super) name_openers: Vec<String>,
    pub(super) request_words: WordSet,
    pub(super) greeting: GreetingPhrases,
    pub(super) rules: Vec<SmallTalkRule>,
    pub(super) unknown: UnknownPhrases,
    pub(super) knowledge: KnowledgePhrases,
    pub(super) prompt: PromptPhrases,
    pub(super) tools: ToolPhrases,
    pub(super) guardrails: GuardrailPhrases,
}

impl Phrases {
    /// The phrases in English. The first call parses the file.
    pub(super) fn english() -> &'static Self {
        &ENGLISH
    }
}

/// Greetings and their replies.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GreetingPhrases {
    pub(super) exact: Vec<String>,
    pub(super) openers: WordSet,
    pub(super) first_reply: Vec<Template>,
    pub(super) later_reply: Vec<Template>,
    pub(super) other_reply: Vec<Template>,
}

/// A rule of small talk.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SmallTalkRule {
    #[serde(default)]
    phrases: Vec<String>,
    #[serde(default)]
    max_words: usize,
    #[serde(default)]
    exact: Vec<String>,
    #[serde(default)]
    pub(super) unless_question: bool,
    pub(super) reply: Vec<Template>,
}

impl SmallTalkRule {
    /// Whether the rule's phrases apply to a text of `count` words, which are joined by spaces.
    pub(super) fn matches(&self, words: &str, count: usize) -> bool {
        let has = |phrase: &String| text_after_phrase(words, phrase).is_some();
        (self.phrases.is_empty() && self.exact.is_empty())
            || (count <= self.max_words && self.phrases.iter().any(has))
            || self.exact.iter().any(|exact| exact == words)
    }
}

/// Replies when no answer is known.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UnknownPhrases {
    pub(super) replies: Vec<String>,
    pub(super) statement_reply: String,
}

/// Phrases of questions and of the sentences that answer them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KnowledgePhrases {
    pub(super) user_statement: Template,
    pub(super) labels: Vec<String>,
    pub(super) question_openers: WordSet,
    pub(super) follow_up_openers: WordSet,
    pub(super) follow_up_pronouns: WordSet,
    pub(super) expected: ExpectedPhrases,
}

/// Words of a question that show what the answer contains, and words of such an answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedPhrases {
    pub(super) number_questions: WordSet,
    pub(super) time_questions: WordSet,
    pub(super) time_answers: WordSet,
    pub(super) place_questions: WordSet,
    pub(super) place_answers: WordSet,
    pub(super) person_questions: WordSet,
}

/// Phrases of the agent's prompt.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PromptPhrases {
    pub(super) identity_starts: Vec<String>,
    pub(super) instruction_openers: WordSet,
    pub(super) addresses: WordSet,
    pub(super) directives: WordSet,
    /// Pairs of a text and its replacement.
    pub(super) corrections: Vec<(String, String)>,
    /// By word of the second person: the word that the agent says instead.
    pub(super) first_person: BTreeMap<String, String>,
}

/// Phrases around the calls of tools.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolPhrases {
    pub(super) generic_words: WordSet,
    pub(super) days: WordSet,
    pub(super) prepositions: WordSet,
    pub(super) articles: WordSet,
    pub(super) trailing_words: WordSet,
    pub(super) failed: String,
    pub(super) done: String,
    pub(super) yes: String,
    pub(super) no: String,
    pub(super) field: Template,
}

/// Phrases of the rules of guardrails.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GuardrailPhrases {
    pub(super) filler_words: WordSet,
}

/// The text after the first occurrence of `phrase` in `words` as whole words.
pub(super) fn text_after_phrase<'a>(words: &'a str, phrase: &str) -> Option<&'a str> {
    words.match_indices(phrase).find_map(|(at, _)| {
        let (before, after) = (&words[..at], &words[at + phrase.len()..]);
        let starts_word = before.is_empty() || before.ends_with(' ');
        let ends_word = after.is_empty() || after.starts_with(' ');
        (starts_word && ends_word).then_some(after)
    })
}

#[cfg(test)]
mod tests {
    use knowledge::normalize_words;

    use super::super::template::Placeholder;
    use super::*;

    /// The words and phrases that the matcher compares with normalized words.
    fn normalized_phrases(phrases: &Phrases) -> Vec<&String> {
        let Phrases { greeting, rules, knowledge, prompt, tools, guardrails, .. } = phrases;
        let expected = &knowledge.expected;
        let sets = [
            &phrases.filler_words,
            &phrases.request_words,
            &greeting.openers,
            &knowledge.question_openers,
            &knowledge.follow_up_openers,
            &knowledge.follow_up_pronouns,
            &expected.number_questions,
            &expected.time_questions,
            &expected.time_answers,
            &expected.place_questions,
            &expected.place_answers,
            &expected.person_questions,
            &prompt.instruction_openers,
            &prompt.addresses,
            &prompt.directives,
            &tools.generic_words,
            &tools.days,
            &tools.prepositions,
            &tools.articles,
            &tools.trailing_words,
            &guardrails.filler_words,
        ];
        let words: Vec<&String> = sets.into_iter().flatten().collect();
        for word in &words {
            assert!(!word.contains(' '), "{word:?} is one word");
        }
        let in_rules = rules.iter().flat_map(|rule| rule.phrases.iter().chain(&rule.exact));
        let texts = phrases.name_openers.iter().chain(&greeting.exact).chain(in_rules);
        words.into_iter().chain(texts).collect()
    }

    #[test]
    fn words_and_phrases_are_normalized() {
        let phrases = normalized_phrases(Phrases::english());
        assert!(phrases.len() > 400, "only {} phrases", phrases.len());
        for phrase in phrases {
            assert!(!phrase.is_empty());
            assert_eq!(normalize_words(phrase).join(" "), *phrase);
        }
    }

    #[test]
    fn written_texts_and_replies_are_not_empty() {
        let phrases = Phrases::english();
        let Phrases { unknown, knowledge, prompt, tools, .. } = phrases;
        let replies = [&phrases.decline, &phrases.not_understood, &unknown.statement_reply];
        let results = [&tools.failed, &tools.done, &tools.yes, &tools.no];
        let lists = [&unknown.replies, &knowledge.labels, &prompt.identity_starts];
        let corrected = prompt.corrections.iter().map(|(text, _)| text);
        let replaced = corrected.chain(prompt.first_person.keys());
        let texts = replies.into_iter().chain(results).chain(lists.into_iter().flatten());
        for text in texts.chain(replaced) {
            assert!(!text.trim().is_empty());
        }
        assert!(!unknown.replies.is_empty());
    }

    #[test]
    fn each_rule_can_apply_and_reply() {
        for rule in &Phrases::english().rules {
            for phrase in &rule.phrases {
                let count = phrase.split(' ').count();
                assert!(count <= rule.max_words, "max_words excludes {phrase:?}");
            }
            assert_eq!(rule.phrases.is_empty(), rule.max_words == 0, "{rule:?}");
            let last = rule.reply.last().expect("a rule has a reply");
            let is_always_usable = last.placeholders().next().is_none();
            let is_conditional = rule.phrases.is_empty() && rule.exact.is_empty();
            assert_eq!(is_conditional, !is_always_usable, "{rule:?}");
        }
    }

    #[test]
    fn templates_have_only_placeholders_with_a_value() {
        use Placeholder::*;
        let Phrases { greeting, rules, knowledge, tools, .. } = Phrases::english();
        let greetings = [&greeting.first_reply, &greeting.later_reply, &greeting.other_reply];
        for reply in greetings.into_iter().chain(rules.iter().map(|rule| &rule.reply)) {
            for placeholder in reply.iter().flat_map(Template::placeholders) {
                assert!(!matches!(placeholder, Answer | Field | Value), "{reply:?}");
            }
        }
        for reply in greetings {
            assert_eq!(reply.last().expect("a reply").placeholders().count(), 0, "{reply:?}");
        }
        assert_eq!(knowledge.user_statement.placeholders().collect::<Vec<_>>(), [Answer]);
        assert_eq!(tools.field.placeholders().collect::<Vec<_>>(), [Field, Value]);
    }

    #[test]
    fn a_phrase_is_found_as_whole_words() {
        assert_eq!(text_after_phrase("please call me bob", "call me"), Some(" bob"));
        assert_eq!(text_after_phrase("recall me call me", "call me"), Some(""));
        assert_eq!(text_after_phrase("call men", "call me"), None);
    }
}
