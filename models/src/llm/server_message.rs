//! A server's own words in an error.

use serde_json::Value;
use url::Url;

/// Maximum size of an error's body in bytes.
pub(super) const MAX_ERROR_BODY_BYTES: usize = 16 << 10;

/// Maximum number of characters of a server's message in an error.
const MAX_REASON_CHARS: usize = 240;

/// The message in an error's body, in the shapes that servers use.
pub(super) fn error_message(body: &Value) -> String {
    let error = &body["error"];
    [&error["message"], error, &body["message"], &body["detail"]]
        .into_iter()
        .find_map(Value::as_str)
        .unwrap_or("no reason given")
        .to_owned()
}

/// A server's message on one line, truncated, without the secrets of the client: its `token`, and
/// those in the `url` of the server. Some servers repeat the key or a part of it.
pub(super) fn redact(words: &str, url: &str, token: Option<&str>) -> String {
    let mut secrets: Vec<String> = token.iter().map(|token| token.trim().to_owned()).collect();
    if let Ok(url) = Url::parse(url) {
        secrets.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
        secrets.extend(url.query().map(str::to_owned));
        secrets.extend(url.password().map(str::to_owned));
    }
    let secret = |word: &str| {
        word.starts_with("sk-")
            || word.contains("***")
            || secrets.iter().any(|secret| {
                let start: String = secret.chars().take(6).collect();
                secret.len() >= 4
                    && (word.contains(secret.as_str())
                        || (start.len() >= 6 && word.contains(&start)))
            })
    };
    let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
    let words = words
        .split_whitespace()
        .map(|word| if secret(word) || secret(&bare(word)) { "***" } else { word });
    words.collect::<Vec<_>>().join(" ").chars().take(MAX_REASON_CHARS).collect()
}
