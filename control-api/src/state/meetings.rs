//! What the handlers and the task of meetings share.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use conversation::id::ConversationId;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::meeting_services::ServiceError;

/// Separates this use of the key from the tokens.
const KEY_LABEL: &[u8] = b"visavis meeting webhooks";

/// How long a call may be without its audio socket.
const MAX_SOCKET_GAP: Duration = Duration::from_secs(86_400);

/// The account that the address of a webhook names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WebhookAccount {
    /// Name of the service.
    pub(crate) provider: String,
    /// `None` = the account of the operator.
    pub(crate) workspace: Option<String>,
}

/// Addresses of webhooks, wake-ups of the task, and counts.
pub(crate) struct Meetings {
    key: hmac::Key,
    /// Notified when there is a new bot.
    pub(crate) created: Notify,
    rejected_webhooks: AtomicU64,
    /// Failed requests to services, by service and cause.
    failed_requests: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    /// When the audio sockets of running calls were lost.
    lost_sockets: Mutex<HashMap<ConversationId, Instant>>,
}

impl Meetings {
    /// `key`: that of the session tokens.
    pub(crate) fn new(key: &[u8]) -> Self {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), KEY_LABEL);
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()),
            created: Notify::new(),
            rejected_webhooks: AtomicU64::new(0),
            failed_requests: Mutex::default(),
            lost_sockets: Mutex::default(),
        }
    }

    /// The path to which the service of an account sends its webhooks. It cannot be guessed.
    pub(crate) fn webhook_path(&self, account: &WebhookAccount) -> String {
        let text = serde_json::to_vec(account).unwrap_or_default();
        let tag = hmac::sign(&self.key, &text);
        format!(
            "/v1/meetings/webhook/{}.{}",
            URL_SAFE_NO_PAD.encode(text),
            URL_SAFE_NO_PAD.encode(tag)
        )
    }

    /// The secret that a service repeats in callbacks about the bots of an account.
    pub(crate) fn callback_secret(&self, account: &WebhookAccount) -> String {
        let text = serde_json::to_vec(account).unwrap_or_default();
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.key, &[b"callback ", &*text].concat()))
    }

    /// The account that the last part of a path names.
    pub(crate) fn read_token(&self, token: &str) -> Option<WebhookAccount> {
        let (text, tag) = token.split_once('.')?;
        let (text, tag) = (URL_SAFE_NO_PAD.decode(text).ok()?, URL_SAFE_NO_PAD.decode(tag).ok()?);
        hmac::verify(&self.key, &text, &tag).ok()?;
        serde_json::from_slice(&text).ok()
    }

    fn lost_sockets(&self) -> MutexGuard<'_, HashMap<ConversationId, Instant>> {
        self.lost_sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The audio socket of a call was lost. An earlier time of the same loss remains.
    pub(crate) fn insert_lost_socket(&self, id: ConversationId, at: Instant) {
        let mut lost = self.lost_sockets();
        // Calls that ended without another socket.
        lost.retain(|_, since| since.elapsed() < MAX_SOCKET_GAP);
        lost.entry(id).or_insert(at);
    }

    /// Since when a call has no audio socket, if it had one.
    pub(crate) fn take_lost_socket(&self, id: ConversationId) -> Option<Instant> {
        self.lost_sockets().remove(&id)
    }

    /// Counts a webhook that was refused.
    pub(crate) fn count_rejected_webhook(&self) {
        self.rejected_webhooks.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of webhooks that were refused.
    pub(crate) fn rejected_webhooks(&self) -> u64 {
        self.rejected_webhooks.load(Ordering::Relaxed)
    }

    /// Counts a request to a service that failed.
    pub(crate) fn count_failed_request(&self, provider: &'static str, error: &ServiceError) {
        let mut counts = self.failed_requests.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((provider, error.label())).or_default() += 1;
    }

    /// Service, cause and number of failed requests.
    pub(crate) fn failed_requests(&self) -> Vec<(&'static str, &'static str, u64)> {
        let counts = self.failed_requests.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|((provider, cause), count)| (*provider, *cause, *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_requests_are_counted_by_service_and_cause() {
        let meetings = Meetings::new(&[1; 32]);
        let refused = |status| ServiceError::Refused { status, reason: String::new() };
        for error in [refused(500), refused(503), refused(402), refused(400), ServiceError::Timeout]
        {
            meetings.count_failed_request("recall", &error);
        }
        meetings.count_failed_request("attendee", &ServiceError::Malformed("x"));
        let expected = [
            ("attendee", "malformed", 1),
            ("recall", "402", 1),
            ("recall", "5xx", 2),
            ("recall", "other", 1),
            ("recall", "timeout", 1),
        ];
        assert_eq!(meetings.failed_requests(), expected);
    }

    #[test]
    fn a_path_names_one_account_and_cannot_be_forged() {
        let meetings = Meetings::new(&[1; 32]);
        let account = WebhookAccount { provider: "recall".into(), workspace: Some("w".into()) };
        let path = meetings.webhook_path(&account);
        let token = path.strip_prefix("/v1/meetings/webhook/").unwrap();
        assert_eq!(meetings.read_token(token), Some(account.clone()));
        assert_eq!(Meetings::new(&[2; 32]).read_token(token), None);
        let other = WebhookAccount { workspace: None, ..account };
        let forged = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&other).unwrap());
        let tag = token.split_once('.').unwrap().1;
        assert_eq!(meetings.read_token(&format!("{forged}.{tag}")), None);
        for text in ["", ".", "a.b", "a"] {
            assert_eq!(meetings.read_token(text), None, "{text}");
        }
    }
}
