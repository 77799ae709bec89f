//! Sentences about providers that failed, once per call.

use std::sync::{Mutex, PoisonError};

/// Maximum number of different sentences per call.
const MAX_SENTENCES: usize = 16;

/// The sentences that a chain has told.
#[derive(Default)]
pub(super) struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    /// The sentence about `reason`, unless it was told before. `next` is the name of the provider
    /// that serves instead.
    pub(super) fn sentence(&self, reason: &str, next: Option<&str>) -> Option<String> {
        let reason = reason.trim_end_matches('.');
        let sentence = match next {
            Some(next) => format!("{reason}; {next} is used instead."),
            None => format!("{reason}."),
        };
        let mut sentences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sentences.contains(&sentence) || sentences.len() >= MAX_SENTENCES {
            return None;
        }
        sentences.push(sentence.clone());
        Some(sentence)
    }
}
