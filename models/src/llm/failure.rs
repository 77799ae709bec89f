//! Failures that a server reports: their kind, their words, and whether a repetition may help.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use serde_json::Value;

use super::server_message::error_message;
use crate::hosted::phrases::{no_credit, says_bad_key, says_no_credit};
use crate::redaction::redact_id;
use crate::{Error, ErrorKind};

/// Wait after a 429 that names none, plus a random part of at most the same length, so that calls
/// that fail together do not repeat together.
const BUSY_WAIT: Duration = Duration::from_millis(250);

/// Maximum number of characters of a model's name in an error.
pub(super) const MAX_MODEL_CHARS: usize = 60;

/// A failure that the server reported, by a status or by an event in its stream.
#[derive(Debug, Default)]
pub(super) struct Failure {
    /// Name of the vendor in errors.
    vendor: &'static str,
    /// 0 if unknown.
    status: u16,
    /// `error.type`, `error.code` and `error.status`, such as `overloaded_error`.
    labels: Vec<String>,
    words: String,
    retry_after: Option<Duration>,
    /// The server's own advice, which has precedence.
    should_retry: Option<bool>,
    request_id: Option<String>,
    /// Whether the request had no API key.
    without_key: bool,
}

impl Failure {
    /// A response with this status.
    pub(super) fn of_status(vendor: &'static str, status: u16) -> Self {
        Self { vendor, status, ..Self::default() }
    }

    /// The data of an error in a stream. It has no request id: parsers do not know the secrets that
    /// must be removed from it.
    pub(super) fn of_event(vendor: &'static str, data: &Value) -> Self {
        let failure = Self { vendor, ..Self::default() }.with_value(data);
        Self { request_id: None, ..failure }
    }

    /// Adds whether the request had an API key.
    pub(super) fn with_key(mut self, key: bool) -> Self {
        self.without_key = !key;
        self
    }

    /// Adds what the headers `retry-after-ms`, `retry-after` (seconds) and `x-should-retry` say.
    pub(super) fn with_headers(
        mut self,
        millis: Option<String>,
        seconds: Option<String>,
        should_retry: Option<String>,
    ) -> Self {
        let number = |text: Option<String>| text.and_then(|text| text.trim().parse::<f64>().ok());
        let wait = number(millis).map(|millis| millis / 1000.0).or_else(|| number(seconds));
        self.retry_after = wait.and_then(|wait| Duration::try_from_secs_f64(wait).ok());
        self.should_retry = should_retry.and_then(|text| text.trim().parse().ok());
        self
    }

    /// Adds the id under which the vendor's support knows the request.
    pub(super) fn with_request_id(mut self, id: Option<String>) -> Self {
        self.request_id = id;
        self
    }

    /// Makes the request id fit for logs. `redact` removes the secrets of the client.
    pub(super) fn with_redacted_id(mut self, redact: impl Fn(&str) -> String) -> Self {
        self.request_id = self.request_id.map(|id| redact_id(&id, redact));
        self
    }

    /// Adds the body of the response.
    pub(super) fn with_body(mut self, text: &str) -> Self {
        match serde_json::from_str(text) {
            Ok(body) => self.with_value(&body),
            // A page of a proxy says nothing.
            Err(_) if text.trim_start().starts_with('<') => self,
            Err(_) => {
                text.clone_into(&mut self.words);
                self
            }
        }
    }

    fn with_value(mut self, body: &Value) -> Self {
        // Google sends the error of a stream in a list.
        let body = body.get(0).unwrap_or(body);
        let error = if body["error"].is_object() { &body["error"] } else { body };
        // Some servers describe an error in `detail`.
        let labels = [error, &body["detail"]].into_iter().flat_map(|error| {
            ["type", "code", "status"].into_iter().filter_map(|key| error[key].as_str())
        });
        self.labels = labels.map(str::to_lowercase).collect();
        self.words = error_message(body);
        if self.status == 0 {
            let numbers = ["code", "status"].into_iter().filter_map(|key| error[key].as_u64());
            let mut statuses = numbers.filter_map(|number| u16::try_from(number).ok());
            self.status = statuses.find(|status| (400..600).contains(status)).unwrap_or(0);
        }
        for detail in error["details"].as_array().into_iter().flatten() {
            self.labels.extend(detail["reason"].as_str().map(str::to_lowercase));
            if let Some(seconds) = detail["retryDelay"].as_str().and_then(|d| d.strip_suffix('s')) {
                let wait = seconds.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
                self.retry_after = self.retry_after.or(wait);
            }
        }
        if self.request_id.is_none() {
            self.request_id = body["request_id"].as_str().map(str::to_owned);
        }
        self
    }

    /// The parameter that the server refused, if it names one of `optional` that is in the body
    /// that was `sent`, and not in `omitted`. Letter case and underscores do not count.
    pub(super) fn refused_parameter(
        &self,
        optional: &[&'static str],
        omitted: &[&'static str],
        sent: &str,
    ) -> Option<&'static str> {
        if !matches!(self.status, 400 | 422) {
            return None;
        }
        let plain = |text: &str| text.replace('_', "").to_lowercase();
        let words = plain(&self.words);
        let mut candidates = optional.iter().copied().filter(|name| !omitted.contains(name));
        candidates.find(|name| sent.contains(&format!("\"{name}")) && words.contains(&plain(name)))
    }

    /// Whether the server or the model has no tools, so that the model may answer without them. The
    /// servers say so in words only, with different statuses.
    pub(super) fn refuses_tools(&self) -> bool {
        if !matches!(self.status, 400 | 404 | 422 | 500 | 501) {
            return false;
        }
        let words = self.words.to_lowercase();
        let says = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
        // "unknown parameter: 'tools'", "tool choice requires --enable-auto-tool-choice", "tools
        // param requires --jinja flag", "does not support tools", "support tool use".
        let about_tools = says(&["tool", "function call"]);
        about_tools
            && says(&[
                "not support",
                "n't support",
                "unsupported",
                "that support tool use",
                "requires --",
                "unknown parameter",
                "unrecognized",
                "unexpected keyword",
                "extra inputs are not permitted",
            ])
    }

    /// Whether the model's call of a tool was wrong, so that it may answer without tools.
    pub(super) fn is_wrong_tool_call(&self) -> bool {
        self.has_label("tool_use_failed")
    }

    /// Wait before a repetition; `None` if a repetition does not help.
    pub(super) fn retry_wait(&self) -> Option<Duration> {
        let wait = match self.class() {
            Class::Busy => self.retry_after.unwrap_or_else(|| {
                let part = RandomState::new().hash_one(0u8) % 1000;
                BUSY_WAIT + BUSY_WAIT * u32::try_from(part).unwrap_or(0) / 1000
            }),
            Class::Broken => self.retry_after.unwrap_or_default(),
            _ if self.should_retry == Some(true) => self.retry_after.unwrap_or_default(),
            _ => return None,
        };
        (self.should_retry != Some(false)).then_some(wait)
    }

    /// Writes the ids of the failure to the log; none of the server's words.
    pub(super) fn log(&self) {
        tracing::warn!(
            vendor = self.vendor,
            status = self.status,
            class = ?self.class(),
            request_id = self.request_id,
            "an LLM server did not accept a request"
        );
    }

    /// The error of a request to `model`, with the server's words.
    pub(super) fn into_error(self, model: &str) -> Error {
        let (class, vendor) = (self.class(), self.vendor);
        let because = |sentence: String| match self.words.trim() {
            "" => sentence,
            words => format!("{sentence}: {words}"),
        };
        let (kind, message) = match class {
            Class::Key | Class::Permission if self.without_key => {
                (ErrorKind::InvalidKey, format!("{vendor} requires an API key"))
            }
            Class::Key => (ErrorKind::InvalidKey, format!("the API key for {vendor} is not valid")),
            // Of a model, a region or a plan: the key may serve other requests.
            Class::Permission => (
                ErrorKind::Rejected,
                because(format!("the API key for {vendor} does not permit this request")),
            ),
            Class::Billing => (ErrorKind::NoCredit, no_credit(vendor)),
            Class::UnknownModel if model.is_empty() => {
                (ErrorKind::Rejected, format!("{vendor} does not have this model"))
            }
            Class::UnknownModel => {
                let model: String = model.chars().take(MAX_MODEL_CHARS).collect();
                (ErrorKind::Rejected, format!("{vendor} does not have the model {model:?}"))
            }
            Class::Refused => {
                (ErrorKind::Rejected, because(format!("{vendor} refused the request")))
            }
            Class::Busy => {
                let limit = format!("{vendor} is at its limit of requests");
                let message = match self.retry_after {
                    Some(wait) => {
                        format!("{limit} and asks to wait {} s", wait.as_secs_f64().ceil())
                    }
                    None => limit,
                };
                (ErrorKind::Busy, message)
            }
            Class::Overloaded => (ErrorKind::Failed, format!("{vendor} is overloaded")),
            Class::Broken if self.status > 0 => {
                (ErrorKind::Failed, because(format!("{vendor} failed with {}", self.status)))
            }
            Class::Broken => (ErrorKind::Failed, because(format!("{vendor} failed"))),
        };
        Error::new(kind, message)
    }

    fn has_label(&self, label: &str) -> bool {
        self.labels.iter().any(|own| own == label)
    }

    fn class(&self) -> Class {
        // The account's state and a wrong key are also reported as an invalid request.
        let words = self.words.to_lowercase();
        if says_no_credit(&words) || self.labels.iter().any(|label| says_no_credit(label)) {
            return Class::Billing;
        }
        if says_bad_key(&words) || self.labels.iter().any(|label| says_bad_key(label)) {
            return Class::Key;
        }
        if self.has_label("overloaded_error") {
            return Class::Overloaded;
        }
        match self.status {
            0 => self.class_of_event(),
            401 => Class::Key,
            402 => Class::Billing,
            403 => Class::Permission,
            404 if words.contains("model") || self.has_label("not_found_error") => {
                Class::UnknownModel
            }
            // 498: the capacity of Groq's flexible tier is exhausted.
            429 | 498 => Class::Busy,
            529 => Class::Overloaded,
            408 | 409 | 500.. => Class::Broken,
            _ => Class::Refused,
        }
    }

    /// The class of an error in a stream, which has no status.
    fn class_of_event(&self) -> Class {
        const CLASSES: [(&str, Class); 11] = [
            ("authentication_error", Class::Key),
            ("invalid_api_key", Class::Key),
            ("permission_error", Class::Permission),
            ("not_found_error", Class::UnknownModel),
            ("model_not_found", Class::UnknownModel),
            ("rate_limit_error", Class::Busy),
            ("rate_limit_exceeded", Class::Busy),
            ("tool_use_failed", Class::Refused),
            ("invalid_request_error", Class::Refused),
            ("invalid_prompt", Class::Refused),
            ("request_too_large", Class::Refused),
        ];
        let known = CLASSES.iter().find(|(label, _)| self.has_label(label));
        known.map_or(Class::Broken, |(_, class)| *class)
    }
}

/// What a failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// The key is missing or not valid.
    Key,
    /// The key may not do this.
    Permission,
    /// The account has no credit.
    Billing,
    UnknownModel,
    /// The same request will be refused again.
    Refused,
    /// Too many requests of this account.
    Busy,
    /// Too many requests of all accounts: another model may answer, a repetition does not help.
    Overloaded,
    /// The server failed.
    Broken,
}

#[cfg(test)]
mod tests;
