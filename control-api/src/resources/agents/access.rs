//! Addresses and keys of an agent's providers. Names of hosts are resolved, and their addresses
//! checked, whenever a connection is opened.

use models::registry::settings::{key_fault, url_fault};

use crate::http::validate::FieldErrors;
use crate::store::providers::Providers;
use crate::store::secrets::SECRET_MASK;

/// Checks the addresses and keys of `providers`. `paths` are those of the LLM, the STT and the TTS
/// in the request. An empty text counts as absent.
pub(crate) fn check(
    providers: &Providers,
    [llm_path, stt_path, tts_path]: &[String; 3],
    errors: &FieldErrors,
) {
    let Providers { llm, stt, tts } = providers;
    let first = [
        (llm_path, &llm.url, &llm.token),
        (stt_path, &stt.url, &stt.token),
        (tts_path, &tts.url, &tts.token),
    ];
    for (path, url, token) in first {
        check_text(url, url_fault, || format!("{path}.url"), errors);
        let token = token.as_ref().filter(|token| *token != SECRET_MASK);
        check_text(&token, key_fault, || format!("{path}.token"), errors);
    }
    let fallbacks: [(&String, Vec<&Option<String>>); 3] = [
        (llm_path, llm.fallback.iter().map(|next| &next.url).collect()),
        (stt_path, stt.fallback.iter().map(|next| &next.url).collect()),
        (tts_path, tts.fallback.iter().map(|next| &next.url).collect()),
    ];
    for (path, urls) in fallbacks {
        for (i, url) in urls.into_iter().enumerate() {
            check_text(url, url_fault, || format!("{path}.fallback[{i}].url"), errors);
        }
    }
}

fn check_text(
    text: &Option<impl AsRef<str>>,
    fault: impl Fn(&str) -> Option<&'static str>,
    path: impl Fn() -> String,
    errors: &FieldErrors,
) {
    let text = text.as_ref().map(|text| text.as_ref().trim()).filter(|text| !text.is_empty());
    if let Some(fault) = text.and_then(fault) {
        errors.add(path(), fault);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn faults(providers: Value) -> Vec<String> {
        let providers: Providers = serde_json::from_value(providers).unwrap();
        let errors = FieldErrors::default();
        check(&providers, &["l".into(), "s".into(), "t".into()], &errors);
        match errors.into_result(()) {
            Err(crate::error::ApiError::Invalid(all)) => {
                assert!(all.iter().all(|one| !one.reason.contains("secret")), "{all:?}");
                all.into_iter().map(|one| one.field).collect()
            }
            other => other.map(|()| Vec::new()).unwrap(),
        }
    }

    #[test]
    fn addresses_and_keys_are_checked_where_they_stand() {
        assert_eq!(
            faults(json!({
                "llm": {"url": "x", "token": "a\nsecret"},
                "stt": {"url": "https://user:secret@stt.example", "token": "x".repeat(4_097)},
                "tts": {"url": "ftp://x", "fallback": [{"url": ""}, {"url": "file:///etc"}]},
            })),
            ["l.url", "l.token", "s.url", "s.token", "t.url", "t.fallback[1].url"]
        );
        assert_eq!(faults(json!({"stt": {"token": "a secret"}})), ["s.token"]);
        let long = format!("https://a.example/{}", "x".repeat(2_048));
        assert_eq!(faults(json!({"tts": {"url": long}})), ["t.url"]);
    }

    #[test]
    fn valid_and_unset_ones_stay_valid() {
        for url in [Value::Null, json!(""), json!(" "), json!("wss://stt.example")] {
            for token in [Value::Null, json!(""), json!("***"), json!(" key\n")] {
                let one = json!({"url": url, "token": token, "fallback": [{"url": url}]});
                let found = faults(json!({"llm": one, "stt": one, "tts": one}));
                assert!(found.is_empty(), "{one}: {found:?}");
            }
        }
    }
}
