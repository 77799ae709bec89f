//! Requests to meeting services: time limits, errors, and what of an answer may be shown.

use std::time::Duration;

use egress::{Method, Request};
use serde_json::{Value, json};

use super::{ServiceError, ServiceResult, is_bot_id};

/// Time limit of a request. A client waits for the answer to the creation of a bot.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum size of an answer. The state of a bot with all its events has some kB.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Maximum characters of a service's reason in logs and warnings.
const MAX_REASON_CHARS: usize = 300;

/// A service's API: base URL, and the header that carries the key.
pub(super) struct Api {
    http_client: egress::Client,
    base: String,
    header: &'static str,
    key: String,
}

impl Api {
    /// `key`: the header's whole value.
    pub(super) fn new(
        http_client: egress::Client,
        base: &str,
        header: &'static str,
        key: String,
    ) -> Self {
        Self { http_client, base: base.trim_end_matches('/').to_owned(), header, key }
    }

    pub(super) async fn get(&self, path: &str) -> ServiceResult<Value> {
        self.send(Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> ServiceResult<Value> {
        self.send(Method::POST, path, Some(body)).await
    }

    /// Creates a bot. Returns its id, which stands at `pointer` in the answer.
    pub(super) async fn create(
        &self,
        path: &str,
        body: &Value,
        pointer: &str,
    ) -> ServiceResult<String> {
        read_created(self.post(path, body).await, pointer)
    }

    /// Asks for an end: that of a bot, or of what is stored about it. It is no error if the bot does
    /// not exist, or if the service answers with one of the statuses in `accepted`.
    pub(super) async fn end(&self, path: &str, accepted: &[u16]) -> ServiceResult<()> {
        match self.post(path, &json!({})).await {
            Ok(_) | Err(ServiceError::NotFound) => Ok(()),
            Err(ServiceError::Refused { status, .. }) if accepted.contains(&status) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> ServiceResult<Value> {
        let unreachable = |error: egress::Error| match error {
            egress::Error::Timeout => ServiceError::Timeout,
            error => ServiceError::Unreachable(error.to_string()),
        };
        let url = format!("{}{path}", self.base);
        let mut request = Request::new(method, &url)
            .and_then(|request| request.header(self.header, &self.key))
            .and_then(|request| request.header("accept", "application/json"))
            .map_err(unreachable)?
            .timeout(Some(TIMEOUT))
            .limit(MAX_ANSWER_BYTES);
        if let Some(body) = body {
            request = request.json(body.to_string());
        }
        let response = self.http_client.send(request).await.map_err(unreachable)?;
        let status = response.status();
        let body = response.body().await.map_err(unreachable)?;
        let answer = serde_json::from_slice(&body.bytes).ok();
        match status {
            200..=299 if body.bytes.is_empty() => Ok(Value::Null),
            200..=299 => answer.ok_or(ServiceError::Malformed("it is not JSON")),
            // A proxy in front of a service that restarts answers without JSON.
            404 if answer.is_some() => Err(ServiceError::NotFound),
            _ => Err(ServiceError::Refused { status, reason: self.reason(answer.as_ref()) }),
        }
    }

    /// The reason in an error's body, without the key.
    fn reason(&self, answer: Option<&Value>) -> String {
        let Some(answer) = answer else { return "no reason".to_owned() };
        let texts = ["message", "error", "detail", "code"]
            .iter()
            .filter_map(|name| answer.get(name)?.as_str())
            .next();
        let text = texts.map_or_else(|| answer.to_string(), str::to_owned);
        let secret = self.key.rsplit(' ').next().unwrap_or_default();
        let text = if secret.is_empty() { text } else { text.replace(secret, "***") };
        let text = without_links(&text);
        text.chars().filter(|c| !c.is_control()).take(MAX_REASON_CHARS).collect()
    }
}

/// The id in the answer to the creation of a bot.
fn read_created(answer: ServiceResult<Value>, pointer: &str) -> ServiceResult<String> {
    let answer = match answer {
        // There is no bot yet that could be missing.
        Err(ServiceError::NotFound) => return Err(ServiceError::UnknownAddress),
        answer => answer?,
    };
    let id = answer.pointer(pointer).and_then(Value::as_str).filter(|id| !id.is_empty());
    let id = id.ok_or(ServiceError::Malformed("it has no id"))?;
    if is_bot_id(id) {
        Ok(id.to_owned())
    } else {
        Err(ServiceError::Malformed("its id is not valid"))
    }
}

/// The text without its links, which may contain passwords and tokens.
fn without_links(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at);
        let scheme = before.trim_end_matches(|c: char| c.is_ascii_alphanumeric()).len();
        shown.push_str(&before[..scheme]);
        shown.push_str("(link)");
        let end = after.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>'));
        rest = &after[end.unwrap_or(after.len())..];
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_creation_has_a_valid_id() {
        let read = |id: Value| read_created(Ok(json!({"data": {"bot_id": id}})), "/data/bot_id");
        for id in ["b", "bot_3f-A", "5f0c1a52-6a36-4d0c-8a3e-0f6f2f5d6f10", &"x".repeat(100)] {
            assert_eq!(read(json!(id)), Ok(id.to_owned()));
        }
        for id in [json!(""), json!(7), Value::Null] {
            assert_eq!(read(id.clone()), Err(ServiceError::Malformed("it has no id")), "{id}");
        }
        for id in ["../x", "a/b", "a?b", "a b", "é", "a%2fb", &"x".repeat(101)] {
            let refused = Err(ServiceError::Malformed("its id is not valid"));
            assert_eq!(read(json!(id)), refused, "{id}");
        }
        let missing = read_created(Err(ServiceError::NotFound), "/id");
        assert_eq!(missing, Err(ServiceError::UnknownAddress));
    }

    #[test]
    fn links_are_not_repeated() {
        for (text, expected) in [
            ("no link", "no link"),
            ("'https://zoom.us/j/1?pwd=secret' is not valid", "'(link)' is not valid"),
            ("wss://a/b?token=secret", "(link)"),
            ("a \"http://b\" and wss://c: d", "a \"(link)\" and (link) d"),
        ] {
            assert_eq!(without_links(text), expected);
        }
    }
}
