//! Guardrails without a language model: a rule matches if the user's text contains its topic.

use std::collections::HashSet;

use knowledge::{Word, words};

use super::phrases::Phrases;
use crate::llm::guardrails::GuardrailRule;

/// The first rule whose topic words occur in the text. A rule of one or two words needs all of
/// them. A longer one needs half of them (rounded up), but at least two and at most three.
pub(super) fn first_match<'a>(rules: &'a [GuardrailRule], user_text: &str) -> Option<&'a str> {
    let user_text: HashSet<String> = topic_stems(user_text);
    let fits = |rule: &&GuardrailRule| {
        let about = topic_stems(&rule.prompt);
        let found = about.intersection(&user_text).count();
        let needed =
            if about.len() <= 2 { about.len() } else { 2.max(about.len().div_ceil(2).min(3)) };
        needed > 0 && found >= needed
    };
    rules.iter().find(fits).map(|rule| rule.key.as_str())
}

fn topic_stems(text: &str) -> HashSet<String> {
    let filler_words = &Phrases::english().guardrails.filler_words;
    let is_filler = |word: &Word| filler_words.contains(&word.normalized);
    words(text)
        .into_iter()
        .filter(|word| !word.is_stop_word() && !is_filler(word))
        .map(|word| word.stem)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches_rule(prompt: &str, user_text: &str) -> bool {
        let rules = [GuardrailRule { key: "k".into(), prompt: prompt.into() }];
        first_match(&rules, user_text) == Some("k")
    }

    #[test]
    fn a_rule_fits_where_its_subject_is_spoken_of() {
        let medical = "The user asks for medical advice";
        assert!(matches_rule(medical, "Can you give me some medical advice about my knee?"));
        assert!(!matches_rule(medical, "Can you give me advice about a gift?"));
        assert!(!matches_rule(medical, "When are you open?"));
        assert!(matches_rule(
            "The user mentions a competitor such as Acme or Globex",
            "Is Acme your competitor?"
        ));
        assert!(matches_rule("politics", "What do you think about politics?"));
        assert!(
            !matches_rule("If the user asks about anything", "What is your name?"),
            "a rule without a subject matches nothing"
        );
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let rule =
            |key: &str, prompt: &str| GuardrailRule { key: key.into(), prompt: prompt.into() };
        let rules = [rule("a", "weather"), rule("b", "weather"), rule("c", "money")];
        assert_eq!(first_match(&rules, "How is the weather?"), Some("a"));
        assert_eq!(first_match(&[], "How is the weather?"), None);
    }
}
