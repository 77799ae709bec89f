//! Failures of a vendor: which may be tried again, and the sentence that tells a person.

use std::time::Duration;

use egress::websocket::{HandshakeError, Refusal};
use serde_json::Value;

use super::Endpoint;
use super::phrases::{
    capitalized, no_credit, says, says_bad_key, says_busy, says_no_credit, says_unauthorized,
};
use crate::redaction::redact;
use crate::{Error, ErrorKind};

/// What a vendor reports in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The code of a close frame.
    Code(u16),
    /// The key is missing or not valid.
    Key,
    /// The account has no credit.
    NoCredit,
    /// Too many requests or connections.
    Busy,
    /// The same request will be refused again.
    Refused,
    /// The server failed.
    Broken,
}

/// Words in a close frame that mean a connection without activity, whatever its code.
const INACTIVE: [&str; 4] = ["timeout", "timed out", "time out", "inactivity"];

/// A connection that could not be opened, or that ended.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Minimum time until the next attempt; `None` if no attempt can succeed.
    pub(crate) retry_after: Option<Duration>,
    /// Whether another STT shall serve at once, although an attempt may succeed: the user waits.
    pub(crate) is_urgent: bool,
    /// The vendor's own words, without secrets. Not for people.
    pub(crate) words: String,
}

impl Failure {
    fn new(kind: ErrorKind, message: String, retry_after: Option<Duration>) -> Self {
        Self {
            error: Error::new(kind, message),
            retry_after,
            is_urgent: false,
            words: String::new(),
        }
    }

    /// The same request cannot succeed.
    pub(crate) fn permanent(message: String) -> Self {
        Self::new(ErrorKind::Rejected, message, None)
    }

    /// The same request may succeed at once.
    pub(crate) fn temporary(kind: ErrorKind, message: String) -> Self {
        Self::new(kind, message, Some(Duration::ZERO))
    }

    fn no_credit(vendor: &str) -> Self {
        let message = capitalized(&no_credit(vendor));
        Self::new(ErrorKind::NoCredit, message, None)
    }

    fn bad_key(endpoint: &Endpoint) -> Self {
        let vendor = endpoint.vendor;
        let message = match endpoint.authorization {
            Some(_) => format!("The API key for {vendor} is not valid"),
            None => format!("{vendor} requires an API key"),
        };
        Self::new(ErrorKind::InvalidKey, message, None)
    }

    fn busy(vendor: &str, retry_after: Option<Duration>) -> Self {
        let message = format!("{vendor} is at its limit of simultaneous requests");
        Self::new(ErrorKind::Busy, message, Some(retry_after.unwrap_or_default()))
    }

    /// A time limit of ours expired, while `what`.
    pub(crate) fn timeout(endpoint: &Endpoint, what: &str) -> Self {
        Self::temporary(ErrorKind::Timeout, format!("{} {what}", endpoint.vendor))
    }

    /// The speech of a text does not end. A fault of the vendor, not of the text: it counts for the
    /// breaker. The segments behind it go to another voice.
    pub(crate) fn endless(endpoint: &Endpoint) -> Self {
        let vendor = endpoint.vendor;
        Self::new(
            ErrorKind::Failed,
            format!("{vendor} sends more sound than the text can take"),
            None,
        )
    }

    /// The connection was refused.
    pub(crate) fn from_handshake(endpoint: &Endpoint, error: HandshakeError) -> Self {
        match error {
            HandshakeError::Request(error) => Self::from_transport(endpoint, &error),
            HandshakeError::Refused(refusal) => Self::from_refusal(endpoint, &refusal),
        }
    }

    /// The connection failed.
    pub(crate) fn from_transport(endpoint: &Endpoint, error: &egress::Error) -> Self {
        let vendor = endpoint.vendor;
        match error {
            egress::Error::ForbiddenAddress => Self::permanent(format!(
                "The address of {vendor} is private, which this server does not allow"
            )),
            egress::Error::Invalid(_) => {
                let words = redact(&error.to_string(), &endpoint.secrets, endpoint.vendor);
                Self::permanent(format!("The request to {vendor} is not possible: {words}"))
            }
            egress::Error::Timeout => Self::timeout(endpoint, "does not accept the connection"),
            egress::Error::TooLarge | egress::Error::Connection(_) => {
                let words = redact(&error.to_string(), &endpoint.secrets, endpoint.vendor);
                let message = format!("The connection to {vendor} failed: {words}");
                Self::temporary(ErrorKind::Failed, message)
            }
        }
    }

    /// The vendor answered with an error status, or sent one in a message.
    pub(crate) fn from_refusal(endpoint: &Endpoint, refusal: &Refusal) -> Self {
        let words = redact(&refusal.body, &endpoint.secrets, endpoint.vendor);
        Self { words, ..Self::classify_refusal(endpoint, refusal) }
    }

    fn classify_refusal(endpoint: &Endpoint, refusal: &Refusal) -> Self {
        let vendor = endpoint.vendor;
        let Refusal { status, retry_after, body } = refusal;
        match status {
            402 => Self::no_credit(vendor),
            400..=499 if says_no_credit(body) => Self::no_credit(vendor),
            400..=499 if says_busy(body) => Self::busy(vendor, *retry_after),
            401 => Self::bad_key(endpoint),
            403 if endpoint.authorization.is_none() || says_bad_key(body) => {
                Self::bad_key(endpoint)
            }
            403 => {
                let words = describe(endpoint, body);
                Self::permanent(format!(
                    "The API key for {vendor} does not permit this request{words}"
                ))
            }
            429 => Self::busy(vendor, *retry_after),
            408 | 409 | 500.. => {
                let words = describe(endpoint, body);
                let message = format!("{vendor} failed with status {status}{words}");
                Self::new(ErrorKind::Failed, message, Some(retry_after.unwrap_or_default()))
            }
            _ => {
                let words = describe(endpoint, body);
                Self::permanent(format!("{vendor} refused the request, status {status}{words}"))
            }
        }
    }

    /// The vendor closed the connection; `code` is that of the close frame.
    pub(crate) fn from_close(endpoint: &Endpoint, code: u16, reason: &str) -> Self {
        let words = redact(reason, &endpoint.secrets, endpoint.vendor);
        Self { words, ..Self::classify_close(endpoint, code, reason) }
    }

    fn classify_close(endpoint: &Endpoint, code: u16, reason: &str) -> Self {
        let vendor = endpoint.vendor;
        let words = describe(endpoint, reason);
        match code {
            4002 | 4003 => Self::no_credit(vendor),
            _ if says_no_credit(reason) => Self::no_credit(vendor),
            _ if says_busy(reason) => Self::busy(vendor, None),
            4001 => Self::bad_key(endpoint),
            1008 if says_unauthorized(reason) => Self::bad_key(endpoint),
            1003 | 1007 | 1008 | 3006 if !says(&INACTIVE, reason) => {
                Self::permanent(format!("{vendor} refused the request, code {code}{words}"))
            }
            3009 | 4102 => Self::busy(vendor, None),
            _ => Self::temporary(
                ErrorKind::Failed,
                format!("{vendor} closed the connection, code {code}{words}"),
            ),
        }
    }

    /// The vendor reports a failure in a message.
    pub(crate) fn from_fault(endpoint: &Endpoint, fault: Fault, reason: &str) -> Self {
        let vendor = endpoint.vendor;
        let words = describe(endpoint, reason);
        match fault {
            Fault::Code(code) => Self::from_close(endpoint, code, reason),
            Fault::NoCredit => Self::no_credit(vendor),
            _ if says_no_credit(reason) => Self::no_credit(vendor),
            Fault::Key => Self::bad_key(endpoint),
            Fault::Busy => Self::busy(vendor, None),
            Fault::Refused if says_unauthorized(reason) => Self::bad_key(endpoint),
            Fault::Refused => Self::permanent(format!("{vendor} refused the request{words}")),
            Fault::Broken => Self::temporary(ErrorKind::Failed, format!("{vendor} failed{words}")),
        }
    }

    /// The response of the server contains no transcript. Other text may be the user's words, so
    /// only an error in JSON is repeated.
    pub(crate) fn unreadable(endpoint: &Endpoint, body: &str) -> Self {
        let is_json = serde_json::from_str::<Value>(body).is_ok();
        let words = if is_json { describe(endpoint, body) } else { String::new() };
        let message = format!("{} sent no transcript{words}", endpoint.vendor);
        Self::temporary(ErrorKind::Failed, message)
    }
}

/// The vendor's words for a person, after a colon; empty if it has none.
fn describe(endpoint: &Endpoint, body: &str) -> String {
    let words = serde_json::from_str::<Value>(body).map_or_else(
        // A page of a proxy says nothing.
        |_| if body.trim_start().starts_with('<') { String::new() } else { body.to_owned() },
        |body| message_of(&body).unwrap_or_default().to_owned(),
    );
    match redact(&words, &endpoint.secrets, endpoint.vendor) {
        words if words.is_empty() => words,
        words => format!(": {words}"),
    }
}

/// The message in a vendor's JSON.
fn message_of(body: &Value) -> Option<&str> {
    const FIELDS: [&str; 6] = ["err_msg", "message", "description", "reason", "detail", "error"];
    FIELDS.iter().find_map(|field| match body.get(field)? {
        Value::String(text) => Some(text.as_str()),
        nested @ Value::Object(_) => message_of(nested),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dg-0123456789abcdef";

    fn endpoint() -> Endpoint {
        Endpoint {
            vendor: "Deepgram",
            url: "https://api.deepgram.com/v1/listen".into(),
            authorization: Some(("authorization", format!("Token {KEY}"))),
            secrets: vec![KEY.into()],
            client: egress::Client::new(egress::Policy::default()).unwrap(),
        }
    }

    fn refused(status: u16, body: &str) -> (String, ErrorKind, Option<Duration>) {
        let retry_after = (status == 429).then_some(Duration::from_secs(7));
        let refusal = Refusal { status, retry_after, body: body.into() };
        let error = HandshakeError::Refused(refusal);
        let failure = Failure::from_handshake(&endpoint(), error);
        (failure.error.to_string(), failure.error.kind(), failure.retry_after)
    }

    #[test]
    fn each_status_has_its_sentence_and_says_whether_a_retry_helps() {
        use ErrorKind::{Busy, Failed, InvalidKey, NoCredit, Rejected};
        let secret = format!(r#"{{"err_code":"X","err_msg":"bad key {KEY}, see\nthe manual"}}"#);
        let credit = r#"{"err_code":"ASR_PAYMENT_REQUIRED","err_msg":"no"}"#;
        let now = Some(Duration::ZERO);
        for (status, body, sentence, kind, retry) in [
            (401, secret.as_str(), "The API key for Deepgram is not valid", InvalidKey, None),
            (403, "Invalid API key.", "The API key for Deepgram is not valid", InvalidKey, None),
            (
                403,
                r#"{"err_msg":"Not authorized for model nova-9"}"#,
                "The API key for Deepgram does not permit this request: Not authorized for model \
                 nova-9",
                Rejected,
                None,
            ),
            (402, "", "The Deepgram account has no credit left", NoCredit, None),
            (401, credit, "The Deepgram account has no credit left", NoCredit, None),
            (
                429,
                "",
                "Deepgram is at its limit of simultaneous requests",
                Busy,
                Some(Duration::from_secs(7)),
            ),
            (
                400,
                secret.as_str(),
                "Deepgram refused the request, status 400: bad key *** see the manual",
                Rejected,
                None,
            ),
            (302, "", "Deepgram refused the request, status 302", Rejected, None),
            (500, "<html>oops", "Deepgram failed with status 500", Failed, now),
            (503, "busy", "Deepgram failed with status 503: busy", Failed, now),
        ] {
            assert_eq!(refused(status, body), (sentence.into(), kind, retry), "{status}");
        }
    }

    #[test]
    fn close_frames_are_classified_by_code_and_reason() {
        let close = |code, reason: &str| {
            let failure = Failure::from_close(&endpoint(), code, reason);
            (failure.error.to_string(), failure.retry_after.is_some())
        };
        assert_eq!(
            close(1011, "NET-0001 no audio"),
            ("Deepgram closed the connection, code 1011: NET-0001 no audio".into(), true)
        );
        assert_eq!(
            close(1008, "DATA-0000"),
            ("Deepgram refused the request, code 1008: DATA-0000".into(), false)
        );
        let credit = "The Deepgram account has no credit left";
        assert_eq!(close(1008, "insufficient_quota"), (credit.into(), false));
        assert!(close(3009, "").1 && close(1000, "").1);
        assert!(close(1008, "input_timeout_exceeded").1);
        assert_eq!(
            close(1008, "max_active_conversations"),
            ("Deepgram is at its limit of simultaneous requests".into(), true)
        );
        let key = "The API key for Deepgram is not valid";
        assert_eq!(close(1008, "Unauthorized Connection: Missing API key"), (key.into(), false));
        assert_eq!(close(4001, ""), (key.into(), false));
        assert_eq!(close(4003, ""), (credit.into(), false));
        assert_eq!(
            close(3005, "Server error"),
            ("Deepgram closed the connection, code 3005: Server error".into(), true)
        );
    }

    #[test]
    fn faults_in_messages_have_their_sentences() {
        let fault = |fault, words: &str| {
            let failure = Failure::from_fault(&endpoint(), fault, words);
            (failure.error.to_string(), failure.retry_after.is_some())
        };
        let key = "The API key for Deepgram is not valid";
        let credit = "The Deepgram account has no credit left";
        let busy = "Deepgram is at its limit of simultaneous requests";
        for (kind, words, sentence, may_retry) in [
            (Fault::Key, "x", key, false),
            (Fault::NoCredit, "x", credit, false),
            (Fault::Refused, "Code: insufficient_quota", credit, false),
            (Fault::Refused, "invalid_api_key", key, false),
            (Fault::Busy, "x", busy, true),
            (Fault::Code(4102), "x", busy, true),
            (Fault::Refused, "bad model", "Deepgram refused the request: bad model", false),
            (Fault::Broken, "", "Deepgram failed", true),
        ] {
            assert_eq!(fault(kind, words), (sentence.into(), may_retry), "{kind:?} {words}");
        }
    }

    #[test]
    fn a_response_without_a_transcript_is_quoted_only_if_it_is_an_error() {
        let sentence = |body: &str| Failure::unreadable(&endpoint(), body).error.to_string();
        assert_eq!(sentence("What the user said"), "Deepgram sent no transcript");
        assert_eq!(sentence("{\"text\":"), "Deepgram sent no transcript");
        let error = r#"{"error":"model is loading"}"#;
        assert_eq!(sentence(error), "Deepgram sent no transcript: model is loading");
    }

    #[test]
    fn failures_of_the_connection_do_not_contain_the_key() {
        let broken = egress::Error::Connection(format!("broken {KEY}"));
        let failure = Failure::from_transport(&endpoint(), &broken);
        assert_eq!(failure.error.to_string(), "The connection to Deepgram failed: broken ***");
        assert!(failure.retry_after.is_some());
        let refused = Failure::from_transport(&endpoint(), &egress::Error::ForbiddenAddress);
        assert!(refused.retry_after.is_none() && refused.error.to_string().contains("private"));
    }
}
