//! Recognizes a text that is nothing but a goodbye.

use knowledge::normalize_words;
use serde_json::{Value, json};

use super::super::Tool;
use super::phrases::Phrases;

/// Name of the tool that ends the call.
const END_CALL_TOOL: &str = "end_call";

/// Its argument: the last words of the agent.
const FAREWELL: &str = "farewell";

/// Whether `tool` ends the call. An operator's own tool of this name takes no farewell.
pub(super) fn ends_call(tool: &Tool) -> bool {
    tool.name == END_CALL_TOOL
        && tool.rule.is_none()
        && tool.parameters["properties"].get(FAREWELL).is_some()
}

/// The arguments of the tool.
pub(super) fn arguments(farewell: &str) -> Value {
    json!({ FAREWELL: farewell })
}

/// Whether the whole text says goodbye.
pub(super) fn is_goodbye(text: &str, names: &[String]) -> bool {
    let Phrases { farewell, filler_words, .. } = Phrases::english();
    let words: Vec<String> = normalize_words(text);
    let mut rest = words.as_slice();
    let mut said = false;
    while let Some((first, others)) = rest.split_first() {
        let longest = |phrases: &[String]| {
            phrases.iter().filter_map(|phrase| prefix_length(rest, phrase)).max().unwrap_or(0)
        };
        let (goodbye, padding) = (longest(&farewell.phrases), longest(&farewell.padding));
        if goodbye > 0 && goodbye >= padding {
            said = true;
            rest = &rest[goodbye..];
        } else if padding > 0 {
            rest = &rest[padding..];
        } else if filler_words.contains(first) || names.contains(first) {
            rest = others;
        } else {
            return false;
        }
    }
    said
}

/// Number of words of `phrase` if `words` start with it.
fn prefix_length(words: &[String], phrase: &str) -> Option<usize> {
    let count = phrase.split(' ').count();
    let starts = words.len() >= count && phrase.split(' ').zip(words).all(|(a, b)| a == b);
    starts.then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_without_anything_else_is_a_goodbye() {
        let names = ["ada".to_owned()];
        for text in [
            "Okay, thanks, bye",
            "bye",
            "Goodbye, Ada!",
            "Thank you very much for your help, that's all, goodbye.",
            "please hang up",
            "well I have to go now, see you tomorrow",
        ] {
            assert!(is_goodbye(text, &names), "{text}");
        }
        for text in [
            "thank you",
            "okay",
            "bye, but when are you open?",
            "Goodbye is what I said to the porter",
            "when does the tour say goodbye",
            "",
        ] {
            assert!(!is_goodbye(text, &names), "{text}");
        }
    }
}
