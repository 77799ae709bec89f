//! Sentences about providers that failed, once per call.

use std::sync::{Mutex, PoisonError};

use crate::hosted::phrases::capitalized;

/// Maximum number of different sentences per call.
const MAX_SENTENCES: usize = 16;

/// The sentences that a chain has reported.
#[derive(Default)]
pub(super) struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    /// The sentence about `reason`, unless it was reported before. `next` is the name of the provider
    /// that serves instead: if that is another one than before, it is another sentence.
    pub(super) fn sentence(&self, reason: &str, next: Option<&str>) -> Option<String> {
        let reason = capitalized(reason.trim_end_matches('.'));
        let sentence = match next {
            Some(next) => format!("{reason}; {next} is used instead."),
            None => format!("{reason}."),
        };
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.contains(&sentence) || reported.len() >= MAX_SENTENCES {
            return None;
        }
        reported.push(sentence.clone());
        Some(sentence)
    }
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
        let next = "Anthropic failed; OpenAI is used instead.";
        let other = "Anthropic failed";
        assert_eq!(warnings.sentence(other, Some("OpenAI")).as_deref(), Some(next));
        assert_eq!(warnings.sentence(other, Some("OpenAI")), None);
        let own_fallback = "Anthropic failed; a built-in voice is used instead.";
        let found = warnings.sentence(other, Some("a built-in voice"));
        assert_eq!(found.as_deref(), Some(own_fallback), "the one reported before did not serve");
        assert_eq!(warnings.sentence("élan.", None).as_deref(), Some("Élan."));
        assert_eq!(warnings.sentence("vLLM failed", None).as_deref(), Some("vLLM failed."));
        assert_eq!(warnings.sentence("", None).as_deref(), Some("."));
    }
}
