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
    pub(super) not_understood: Vec<Template>,
    pub(super) filler_words: WordSet,
    pub(super) name_openers: Vec<String>,
    pub(super) request_words: WordSet,
    pub(super) greeting: GreetingPhrases,
    pub(super) farewell: FarewellPhrases,
    pub(super) rules: Vec<SmallTalkRule>,
    pub(super) unknown: UnknownPhrases,
    pub(super) repeat: RepeatPhrases,
    pub(super) follow_up: FollowUpPhrases,
    pub(super) question: QuestionPhrases,
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

/// Texts that end the call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FarewellPhrases {
    pub(super) phrases: Vec<String>,
    pub(super) padding: Vec<String>,
    pub(super) reply: Vec<Template>,
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
    pub(super) replies: Vec<Template>,
    pub(super) hedges: Vec<Template>,
    pub(super) no_reason: Vec<Template>,
    pub(super) no_more: Vec<Template>,
}

/// Replies that repeat an earlier one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RepeatPhrases {
    pub(super) replies: Vec<Template>,
    pub(super) prefixes: Vec<String>,
}

/// Texts that refer to the turn before.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FollowUpPhrases {
    pub(super) openers: Vec<String>,
    pub(super) pronouns: WordSet,
    pub(super) more: Vec<String>,
    pub(super) why: Vec<String>,
    pub(super) reasons: WordSet,
    pub(super) slots: Vec<WordSet>,
}

/// Phrases of questions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuestionPhrases {
    pub(super) openers: WordSet,
    pub(super) verbs: WordSet,
    pub(super) subjects: WordSet,
    pub(super) requests: Vec<String>,
    pub(super) existence_subjects: WordSet,
    pub(super) existence_verbs: WordSet,
    pub(super) generic_words: WordSet,
    pub(super) about_user: WordSet,
    pub(super) clause_words: WordSet,
    pub(super) days: Vec<Vec<String>>,
    pub(super) day_ranges: WordSet,
    pub(super) weekend: WordSet,
    pub(super) weekdays: WordSet,
    pub(super) all_days: WordSet,
    pub(super) exceptions: WordSet,
    pub(super) expected: Vec<ExpectedKind>,
}

/// A kind of question, and the answers that it expects.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedKind {
    pub(super) phrases: Vec<String>,
    #[serde(default)]
    pub(super) with_number: WordSet,
    #[serde(default)]
    pub(super) alone: WordSet,
    #[serde(default)]
    pub(super) symbols: Vec<char>,
    #[serde(default)]
    pub(super) number: bool,
    #[serde(default)]
    pub(super) counted: bool,
    #[serde(default)]
    pub(super) name: bool,
}

/// Phrases of documents, and of sentences that are made from them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KnowledgePhrases {
    pub(super) user_statement: Vec<Template>,
    pub(super) question_openers: WordSet,
    pub(super) question_labels: Vec<String>,
    pub(super) answer_labels: Vec<String>,
    pub(super) reference_openers: WordSet,
    pub(super) list_item: Template,
    pub(super) value_verbs: WordSet,
    pub(super) table_cell: Template,
    pub(super) table_cell_plural: Template,
    pub(super) plural_endings: Vec<String>,
    pub(super) capitalized: WordSet,
    pub(super) list_separator: String,
    pub(super) list_last: String,
    pub(super) range_word: String,
    pub(super) subject_openers: WordSet,
    pub(super) no_subjects: WordSet,
    pub(super) no_subject_openers: WordSet,
    pub(super) certain_openers: Vec<String>,
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
        let Phrases { greeting, farewell, rules, follow_up, question, knowledge, .. } = phrases;
        let Phrases { prompt, tools, guardrails, .. } = phrases;
        let sets = [
            &phrases.filler_words,
            &phrases.request_words,
            &greeting.openers,
            &follow_up.pronouns,
            &follow_up.reasons,
            &question.openers,
            &question.verbs,
            &question.subjects,
            &question.existence_subjects,
            &question.existence_verbs,
            &question.generic_words,
            &question.about_user,
            &question.clause_words,
            &question.day_ranges,
            &question.weekend,
            &question.weekdays,
            &question.all_days,
            &question.exceptions,
            &knowledge.question_openers,
            &knowledge.reference_openers,
            &knowledge.value_verbs,
            &knowledge.capitalized,
            &knowledge.subject_openers,
            &knowledge.no_subjects,
            &knowledge.no_subject_openers,
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
        let expected = question.expected.iter().flat_map(|kind| [&kind.with_number, &kind.alone]);
        let sets = sets.into_iter().chain(&follow_up.slots).chain(expected);
        let words: Vec<&String> = sets.flatten().chain(question.days.iter().flatten()).collect();
        for word in &words {
            assert!(!word.contains(' '), "{word:?} is one word");
        }
        let in_rules = rules.iter().flat_map(|rule| rule.phrases.iter().chain(&rule.exact));
        let in_kinds = question.expected.iter().flat_map(|kind| &kind.phrases);
        let lists = [
            &phrases.name_openers,
            &greeting.exact,
            &farewell.phrases,
            &farewell.padding,
            &follow_up.openers,
            &follow_up.more,
            &follow_up.why,
            &question.requests,
        ];
        let texts = lists.into_iter().flatten().chain(in_rules).chain(in_kinds);
        words.into_iter().chain(texts).collect()
    }

    #[test]
    fn words_and_phrases_are_normalized() {
        let phrases = normalized_phrases(Phrases::english());
        assert!(phrases.len() > 800, "only {} phrases", phrases.len());
        for phrase in phrases {
            assert!(!phrase.is_empty());
            assert_eq!(normalize_words(phrase).join(" "), *phrase);
        }
    }

    #[test]
    fn written_texts_and_replies_are_not_empty() {
        let phrases = Phrases::english();
        let Phrases { unknown, knowledge, prompt, tools, repeat, .. } = phrases;
        let results = [&phrases.decline, &tools.failed, &tools.done, &tools.yes, &tools.no];
        let labels = [&knowledge.question_labels, &knowledge.answer_labels];
        let lists = [&prompt.identity_starts, &repeat.prefixes, &knowledge.certain_openers];
        let corrected = prompt.corrections.iter().map(|(text, _)| text);
        let replaced = corrected.chain(prompt.first_person.keys());
        let lists = labels.into_iter().chain(lists).flatten();
        for text in results.into_iter().chain(lists).chain(replaced) {
            assert!(!text.trim().is_empty());
        }
        let replies = [&unknown.replies, &unknown.no_reason, &unknown.no_more, &repeat.replies];
        for reply in replies.into_iter().chain([&phrases.not_understood]) {
            let always = |template: &&Template| template.placeholders().next().is_none();
            assert!(reply.iter().filter(always).count() >= 2, "two always usable: {reply:?}");
        }
        assert_eq!(phrases.question.days.len(), 7);
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
        let Phrases { greeting, farewell, rules, knowledge, tools, unknown, repeat, .. } =
            Phrases::english();
        let greetings = [&greeting.first_reply, &greeting.later_reply, &greeting.other_reply];
        let plain = [&unknown.replies, &unknown.no_reason, &unknown.no_more, &farewell.reply];
        let plain = greetings.into_iter().chain(plain).chain(rules.iter().map(|rule| &rule.reply));
        for reply in plain {
            for placeholder in reply.iter().flat_map(Template::placeholders) {
                assert!(!matches!(placeholder, Answer | Field | Value | Column), "{reply:?}");
            }
        }
        for reply in greetings {
            assert_eq!(reply.last().expect("a reply").placeholders().count(), 0, "{reply:?}");
        }
        let around_answers = [&unknown.hedges, &repeat.replies, &knowledge.user_statement];
        for placeholder in around_answers.into_iter().flatten().flat_map(Template::placeholders) {
            assert_eq!(placeholder, Answer);
        }
        assert_eq!(tools.field.placeholders().collect::<Vec<_>>(), [Field, Value]);
        assert_eq!(knowledge.list_item.placeholders().collect::<Vec<_>>(), [Field, Value]);
        for cell in [&knowledge.table_cell, &knowledge.table_cell_plural] {
            assert_eq!(cell.placeholders().collect::<Vec<_>>(), [Column, Field, Value]);
        }
    }

    #[test]
    fn a_phrase_is_found_as_whole_words() {
        assert_eq!(text_after_phrase("please call me bob", "call me"), Some(" bob"));
        assert_eq!(text_after_phrase("recall me call me", "call me"), Some(""));
        assert_eq!(text_after_phrase("call men", "call me"), None);
    }
}
