//! Failures that the server reports: their kind, their words, and whether a repetition may help.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use serde_json::Value;

use super::super::server_message::error_message;
use super::request::OptionalParameter;
use crate::{Error, ErrorKind};

/// Wait after a 429 that names none, plus a random part of at most the same length, so that calls
/// that fail together do not repeat together.
const BUSY_WAIT: Duration = Duration::from_millis(250);

/// Maximum number of characters of a model's name in an error.
const MAX_MODEL_CHARS: usize = 60;

/// A failure that the server reported, by a status or by an event in its stream.
#[derive(Debug, Default)]
pub(super) struct Failure {
    status: u16,
    /// `error.type`, such as `overloaded_error`.
    error_type: String,
    words: String,
    retry_after: Option<Duration>,
    /// The server's own advice, which has precedence.
    should_retry: Option<bool>,
    request_id: Option<String>,
}

impl Failure {
    /// A response with this status.
    pub(super) fn of_status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// The data of an `error` event in a stream.
    pub(super) fn of_event(data: &Value) -> Self {
        Self::default().with_value(data)
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

    /// Adds the body of the response.
    pub(super) fn with_body(mut self, text: &str) -> Self {
        match serde_json::from_str(text) {
            Ok(body) => self.with_value(&body),
            Err(_) => {
                text.clone_into(&mut self.words);
                self
            }
        }
    }

    fn with_value(mut self, body: &Value) -> Self {
        self.error_type = body["error"]["type"].as_str().unwrap_or_default().to_owned();
        self.words = error_message(body);
        if self.request_id.is_none() {
            self.request_id = body["request_id"].as_str().map(str::to_owned);
        }
        self
    }

    /// The parameter that the server refused, if it names an optional one that is not in `omitted`.
    pub(super) fn refused_parameter(
        &self,
        omitted: &[OptionalParameter],
    ) -> Option<OptionalParameter> {
        if !matches!(self.status, 400 | 422) {
            return None;
        }
        OptionalParameter::ALL
            .into_iter()
            .find(|p| !omitted.contains(p) && self.words.contains(p.name()))
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
            status = self.status,
            error_type = self.error_type,
            request_id = self.request_id,
            "Anthropic did not accept a request"
        );
    }

    /// The error of a request to `model`, with the server's words.
    pub(super) fn into_error(self, model: &str) -> Error {
        let class = self.class();
        let because = |sentence: &str| match self.words.trim() {
            "" => sentence.to_owned(),
            words => format!("{sentence}: {words}"),
        };
        let (kind, message) = match class {
            Class::Key => (ErrorKind::Rejected, "the API key for Anthropic is not valid".into()),
            Class::Permission => (
                ErrorKind::Rejected,
                because("the API key for Anthropic does not permit this request"),
            ),
            Class::Billing => {
                (ErrorKind::Rejected, "the Anthropic account has no credit left".into())
            }
            Class::UnknownModel => {
                let model: String = model.chars().take(MAX_MODEL_CHARS).collect();
                (ErrorKind::Rejected, format!("Anthropic does not have the model {model:?}"))
            }
            Class::Refused => (ErrorKind::Rejected, because("Anthropic refused the request")),
            Class::Busy => {
                let limit = "Anthropic is at its limit of requests";
                let message = self.retry_after.map_or_else(
                    || limit.to_owned(),
                    |wait| format!("{limit} and asks to wait {} s", wait.as_secs_f64().ceil()),
                );
                (ErrorKind::Busy, message)
            }
            Class::Overloaded => (ErrorKind::Failed, "Anthropic is overloaded".into()),
            Class::Broken if self.status > 0 => {
                (ErrorKind::Failed, because(&format!("Anthropic failed with {}", self.status)))
            }
            Class::Broken => (ErrorKind::Failed, because("Anthropic failed")),
        };
        Error::new(kind, message)
    }

    fn class(&self) -> Class {
        // The account's state is also reported as an invalid request.
        if self.words.contains("credit balance") {
            return Class::Billing;
        }
        match (self.status, self.error_type.as_str()) {
            (401, _) | (0, "authentication_error") => Class::Key,
            (403, _) | (0, "permission_error") => Class::Permission,
            (402, _) | (_, "billing_error") => Class::Billing,
            (404 | 0, "not_found_error") => Class::UnknownModel,
            (429, _) | (0, "rate_limit_error") => Class::Busy,
            (529, _) | (_, "overloaded_error") => Class::Overloaded,
            (408 | 409 | 500.., _) => Class::Broken,
            (0, "invalid_request_error" | "request_too_large") => Class::Refused,
            (0, _) => Class::Broken,
            _ => Class::Refused,
        }
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
