//! Checks of names, addresses and keys before a provider uses them.

use reqwest::header::HeaderValue;
use url::Url;

use super::providers::builtin_providers;
use super::{Kind, Vendor, normalize_name};

/// Maximum length of an address, characters.
pub const MAX_URL_CHARS: usize = 2_048;
/// Maximum size of a key, bytes.
pub const MAX_KEY_BYTES: usize = 4_096;

/// What is wrong with the base URL of a provider, if anything. The sentence does not contain it,
/// because it may contain a password.
#[must_use]
pub fn url_fault(text: &str) -> Option<&'static str> {
    const FORM: &str = "must be a URL of http, https, ws or wss with a host";
    if text.chars().count() > MAX_URL_CHARS {
        return Some("must not have more than 2048 characters");
    }
    let Ok(url) = Url::parse(text) else { return Some(FORM) };
    if !matches!(url.scheme(), "http" | "https" | "ws" | "wss") || !url.has_host() {
        return Some(FORM);
    }
    let has_user = !url.username().is_empty() || url.password().is_some();
    has_user.then_some("must not contain a user name or a password")
}

/// What is wrong with an API key, if anything: it is sent in a header. White space around it is
/// ignored. No vendor has keys with white space in them.
#[must_use]
pub fn key_fault(key: &str) -> Option<&'static str> {
    let key = key.trim();
    if key.len() > MAX_KEY_BYTES {
        return Some("must not have more than 4096 bytes");
    }
    let is_wrong = |c: char| c.is_whitespace() || c.is_control();
    let is_sendable = !key.contains(is_wrong) && HeaderValue::from_str(key).is_ok();
    (!is_sendable).then_some("must not contain white space or control characters")
}

/// Whether an agent may name `provider` for `kind`. The scripted models need the operator's leave
/// (`allow_scripted`).
#[must_use]
pub fn is_provider(kind: Kind, provider: &str, allow_scripted: bool) -> bool {
    let name = normalize_name(provider);
    let is_builtin = || {
        let mut listed = builtin_providers().into_iter();
        name == "visavis"
            || (kind == Kind::Stt && name == "moonshine")
            || listed.any(|one| one.provider_type == kind.name() && one.provider == name)
    };
    let vendor = match kind {
        // The further interfaces of vendors are those of language models.
        Kind::Llm => Vendor::of_provider(&name),
        Kind::Stt | Kind::Tts => Vendor::find(&name),
    };
    vendor.is_some_and(|vendor| vendor.serves(kind))
        || (name == "script" && allow_scripted)
        || is_builtin()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_scheme_a_host_and_no_password() {
        for good in
            ["https://a.example/v1?x=1", "wss://stt.example", "http://127.0.0.1:1", "ws://h"]
        {
            assert_eq!(url_fault(good), None, "{good}");
        }
        let long = format!("https://a.example/{}", "x".repeat(MAX_URL_CHARS));
        for bad in
            ["x", "not a url", "ftp://x", "https://", "mailto:a@b", "http://u:secret@h", &long]
        {
            let fault = url_fault(bad).unwrap_or_else(|| panic!("{bad}"));
            assert!(!fault.contains("secret"), "{fault}");
        }
        assert!(url_fault("http://u@h").is_some());
    }

    #[test]
    fn keys_fit_into_a_header() {
        for good in ["sk-1", " a\n", "clé", &"x".repeat(MAX_KEY_BYTES)] {
            assert_eq!(key_fault(good), None);
        }
        for bad in ["a\nb", "a b", "a\u{a0}b", "a\0", "a\u{7f}b", &"x".repeat(MAX_KEY_BYTES + 1)] {
            assert!(key_fault(bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn further_interfaces_are_those_of_language_models() {
        for (kind, name, expected) in [
            (Kind::Llm, "azure", true),
            (Kind::Stt, "azure", false),
            (Kind::Stt, "anthropic", false),
            (Kind::Stt, "moonshine", true),
            (Kind::Tts, "Visavis", true),
            (Kind::Llm, "nobody", false),
        ] {
            assert_eq!(is_provider(kind, name, false), expected, "{kind} {name}");
        }
        assert!(is_provider(Kind::Llm, "script", true));
    }
}
