//! Sentences about providers that failed, once per call.

use std::sync::{Mutex, PoisonError};

/// Maximum number of different reasons per call.
const MAX_REASONS: usize = 16;

/// The reasons that a chain has told.
#[derive(Default)]
pub(super) struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    /// The sentence about `reason`, unless it was told before. `next` is the name of the provider
    /// that serves instead.
    pub(super) fn sentence(&self, reason: &str, next: Option<&str>) -> Option<String> {
        let reason = capitalized(reason.trim_end_matches('.'));
        let mut reasons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reasons.contains(&reason) || reasons.len() >= MAX_REASONS {
            return None;
        }
        reasons.push(reason.clone());
        Some(match next {
            Some(next) => format!("{reason}; {next} is used instead."),
            None => format!("{reason}."),
        })
    }
}

/// The text with a capital letter at its beginning. The messages of errors have none.
fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_becomes_a_sentence_that_is_told_once() {
        let warnings = Warnings::default();
        let reason = "the API key for Anthropic is not valid";
        let alone = "The API key for Anthropic is not valid.";
        assert_eq!(warnings.sentence(reason, None).as_deref(), Some(alone));
        assert_eq!(warnings.sentence(alone, None), None);
        assert_eq!(warnings.sentence(reason, Some("OpenAI")), None, "the reason is known");
        let next = "Anthropic failed; OpenAI is used instead.";
        let other = "Anthropic failed";
        assert_eq!(warnings.sentence(other, Some("OpenAI")).as_deref(), Some(next));
        assert_eq!(warnings.sentence(other, None), None);
        assert_eq!(warnings.sentence("élan.", None).as_deref(), Some("Élan."));
        assert_eq!(warnings.sentence("", None).as_deref(), Some("."));
    }
}
