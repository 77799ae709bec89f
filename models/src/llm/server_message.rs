//! A server's own words in an error.

use serde_json::Value;
use url::Url;

use crate::redaction;

/// Maximum size of an error's body in bytes.
pub(super) const MAX_ERROR_BODY_BYTES: usize = 16 << 10;

/// The message in an error's body, in the shapes that servers use.
pub(super) fn error_message(body: &Value) -> String {
    let error = &body["error"];
    let detail = &body["detail"];
    let message = [&error["message"], error, &body["message"], detail, &detail["message"]]
        .into_iter()
        .find_map(Value::as_str)
        .map(str::to_owned);
    // The first error of a check by a schema: its place and its words.
    let invalid = &body["detail"][0];
    message
        .or_else(|| {
            let place = invalid["loc"].as_array()?.iter().filter_map(Value::as_str);
            let place = place.collect::<Vec<_>>().join(".");
            Some(format!("{place}: {}", invalid["msg"].as_str()?))
        })
        .unwrap_or_else(|| "no reason given".into())
}

/// A server's message on one line, truncated, without the secrets of the client: its `token`, and
/// those in the `url` of the server. Some servers repeat the key or a part of it. The name of the
/// `vendor` remains.
pub(super) fn redact(words: &str, url: &str, token: Option<&str>, vendor: &str) -> String {
    let mut secrets: Vec<String> = token.iter().map(|token| token.trim().to_owned()).collect();
    if let Ok(url) = Url::parse(url) {
        secrets.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
        secrets.extend(url.query().map(str::to_owned));
        secrets.extend(url.password().map(str::to_owned));
    }
    redaction::redact(words, &secrets, vendor)
}
