//! Signatures of thoughts: opaque texts that Gemini sends with a tool call and requires back with
//! it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// Maximum number of signatures that are remembered, and of bytes of one.
const MAX_SIGNATURES: usize = 64;
const MAX_SIGNATURE_BYTES: usize = 64 << 10;

/// Google's own placeholder for the signature of a call that another model made.
const PLACEHOLDER: &str = "skip_thought_signature_validator";

/// The signatures of a client's latest tool calls. The history of a conversation does not contain
/// them, so a call is recognized by its name and its arguments.
#[derive(Debug, Default)]
pub(super) struct ThoughtSignatures(Mutex<VecDeque<(String, String)>>);

impl ThoughtSignatures {
    /// Remembers the signature of a call of the agent's tool `name`. A signature that is too long
    /// or empty is ignored.
    pub(super) fn remember(&self, name: &str, arguments: &Value, signature: &str) {
        if signature.is_empty() || signature.len() > MAX_SIGNATURE_BYTES {
            return;
        }
        let call = key(name, arguments);
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.retain(|(known, _)| *known != call);
        if calls.len() >= MAX_SIGNATURES {
            calls.pop_front();
        }
        calls.push_back((call, signature.to_owned()));
    }

    /// The signature to send to `model` with a call. The first of the calls that ran together must
    /// have one if the model requires it, so it gets a placeholder if it has none.
    pub(super) fn of_call(
        &self,
        name: &str,
        arguments: &Value,
        first: bool,
        model: &str,
    ) -> Option<String> {
        let known = self.find(name, arguments);
        known.or_else(|| (first && is_required(model)).then(|| PLACEHOLDER.to_owned()))
    }

    fn find(&self, name: &str, arguments: &Value) -> Option<String> {
        let call = key(name, arguments);
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().find(|(known, _)| *known == call).map(|(_, signature)| signature.clone())
    }
}

/// Whether `model` requires signatures: Gemini from its third generation on.
fn is_required(model: &str) -> bool {
    gemini_generation(model).is_some_and(|generation| generation >= 3)
}

/// The generation of a Gemini model, such as 3 of `gemini-3-flash-preview`.
pub(super) fn gemini_generation(model: &str) -> Option<u32> {
    let version = model.rsplit('/').next()?.strip_prefix("gemini-")?;
    version.split(['.', '-']).next()?.parse().ok()
}

fn key(name: &str, arguments: &Value) -> String {
    format!("{name}\n{arguments}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_latest_calls_keep_their_signatures() {
        let signatures = ThoughtSignatures::default();
        for n in 0..=MAX_SIGNATURES {
            signatures.remember("look", &json!({"n": n}), &format!("s{n}"));
        }
        assert_eq!(signatures.find("look", &json!({"n": 0})), None, "the oldest is forgotten");
        assert_eq!(signatures.find("look", &json!({"n": 1})).as_deref(), Some("s1"));
        signatures.remember("look", &json!({"n": 1}), "new");
        assert_eq!(signatures.find("look", &json!({"n": 1})).as_deref(), Some("new"));
        assert_eq!(signatures.find("other", &json!({"n": 1})), None);
        signatures.remember("look", &json!({}), &"x".repeat(MAX_SIGNATURE_BYTES + 1));
        assert_eq!(signatures.find("look", &json!({})), None);
    }

    #[test]
    fn a_call_of_another_model_gets_a_placeholder_where_a_signature_is_required() {
        let signatures = ThoughtSignatures::default();
        signatures.remember("look", &json!({}), "s");
        let of =
            |name: &str, first, model: &str| signatures.of_call(name, &json!({}), first, model);
        assert_eq!(of("look", false, "gemini-2.5-flash").as_deref(), Some("s"));
        assert_eq!(of("time", true, "gemini-2.5-flash"), None);
        assert_eq!(of("time", true, "models/gemini-3-flash-preview").as_deref(), Some(PLACEHOLDER));
        assert_eq!(of("time", false, "gemini-4-argon"), None);
        assert_eq!(of("time", true, "gpt-5"), None);
    }
}
