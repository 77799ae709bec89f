//! Receiver of the agent's webhooks: it records which ones arrive, in which order, and checks their
//! signatures.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use aws_lc_rs::hmac;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio::net::TcpListener;

/// By conversation: the sequence numbers of its webhooks, in arrival order.
type ReceivedSequences = HashMap<String, Vec<u64>>;

/// The receiver.
#[derive(Default)]
pub(crate) struct WebhookReceiver {
    signing_key: OnceLock<hmac::Key>,
    received: Mutex<ReceivedSequences>,
}

/// Comparison of the received webhooks of one conversation with the expected ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeliveryCheck {
    pub(crate) missing: usize,
    pub(crate) out_of_order: usize,
}

impl WebhookReceiver {
    /// Listens at an address that `server` can reach. Returns the receiver and its address.
    ///
    /// # Errors
    /// No port is free.
    pub(crate) async fn listen(
        loopback: bool,
        server: &str,
    ) -> std::io::Result<(Arc<Self>, SocketAddr)> {
        let own = if loopback {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        } else {
            local_address_for(server).await?
        };
        let listener = TcpListener::bind((own, 0)).await?;
        let address = listener.local_addr()?;
        let receiver = Arc::new(Self::default());
        let router =
            Router::new().route("/", post(handle_webhook)).with_state(Arc::clone(&receiver));
        tokio::spawn(async move {
            // The task ends with the run.
            let _ = axum::serve(listener, router).await;
        });
        Ok((receiver, address))
    }

    /// Sets the agent's signing secret. Until then every webhook is rejected.
    ///
    /// # Errors
    /// The secret is malformed.
    pub(crate) fn set_secret(&self, secret: &str) -> Result<(), String> {
        let key = secret.strip_prefix("whsec_").and_then(|key| STANDARD.decode(key).ok());
        let key = key.ok_or("cannot decode the agent's webhook secret")?;
        // There is only one agent.
        let _ = self.signing_key.set(hmac::Key::new(hmac::HMAC_SHA256, &key));
        Ok(())
    }

    fn lock_received(&self) -> std::sync::MutexGuard<'_, ReceivedSequences> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of different webhooks received for a conversation.
    pub(crate) fn count_distinct(&self, conversation: &str) -> usize {
        let mut numbers = self.lock_received().get(conversation).cloned().unwrap_or_default();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.len()
    }

    /// Checks the received webhooks of a conversation, of which `expected` were sent.
    pub(crate) fn check_deliveries(&self, conversation: &str, expected: usize) -> DeliveryCheck {
        check_sequence(self.lock_received().get(conversation).map_or(&[], Vec::as_slice), expected)
    }

    /// Accepts a webhook; returns whether its signature is valid.
    fn accept(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
        let (Some(id), Some(time), Some(signed)) =
            (header("webhook-id"), header("webhook-timestamp"), header("webhook-signature"))
        else {
            return false;
        };
        let mut text = format!("{id}.{time}.").into_bytes();
        text.extend(body);
        let holds = |key: &hmac::Key| {
            signed
                .split(' ')
                .filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok())
                .any(|tag| hmac::verify(key, &text, &tag).is_ok())
        };
        if !self.signing_key.get().is_some_and(holds) {
            return false;
        }
        let number = header("visavis-sequence").and_then(|n| n.parse().ok());
        let body: Option<Value> = serde_json::from_slice(body).ok();
        let conversation = body.as_ref().and_then(|body| body["conversation_id"].as_str());
        let (Some(number), Some(conversation)) = (number, conversation) else {
            return false;
        };
        self.lock_received().entry(conversation.to_owned()).or_default().push(number);
        true
    }
}

/// `numbers` in arrival order. A number is repeated if the response to its webhook was lost.
fn check_sequence(numbers: &[u64], expected: usize) -> DeliveryCheck {
    let (mut seen, mut newest, mut out_of_order) = (std::collections::HashSet::new(), 0, 0);
    for number in numbers {
        if seen.insert(*number) {
            out_of_order += usize::from(*number < newest);
            newest = newest.max(*number);
        }
    }
    DeliveryCheck { missing: expected.saturating_sub(seen.len()), out_of_order }
}

/// This machine's address on the route to the server.
async fn local_address_for(server: &str) -> std::io::Result<IpAddr> {
    let socket = tokio::net::UdpSocket::bind("0.0.0.0:0").await?;
    socket.connect(server).await?;
    Ok(socket.local_addr()?.ip())
}

async fn handle_webhook(
    State(receiver): State<Arc<WebhookReceiver>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    if receiver.accept(&headers, &body) { StatusCode::NO_CONTENT } else { StatusCode::BAD_REQUEST }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_signed_with_the_agent_s_secret_counts() {
        let receiver = WebhookReceiver::default();
        let key = STANDARD.encode([7; 24]);
        let body = br#"{"conversation_id":"c"}"#;
        let headers = |secret: &[u8], number: &str| {
            let tag = hmac::sign(
                &hmac::Key::new(hmac::HMAC_SHA256, secret),
                b"msg_1.5.{\"conversation_id\":\"c\"}",
            );
            let mut headers = HeaderMap::new();
            headers.insert("webhook-id", "msg_1".parse().unwrap());
            headers.insert("webhook-timestamp", "5".parse().unwrap());
            headers.insert(
                "webhook-signature",
                format!("v1,{}", STANDARD.encode(tag)).parse().unwrap(),
            );
            headers.insert("visavis-sequence", number.parse().unwrap());
            headers
        };
        assert!(!receiver.accept(&headers(&[7; 24], "1"), body), "no secret yet");
        receiver.set_secret(&format!("whsec_{key}")).unwrap();
        assert!(!receiver.accept(&headers(&[8; 24], "1"), body), "another secret");
        assert!(!receiver.accept(&headers(&[7; 24], "1"), b"{}"), "another body");
        assert!(!receiver.accept(&headers(&[7; 24], "one"), body), "no number");
        assert!(receiver.accept(&headers(&[7; 24], "1"), body));
        assert!(receiver.accept(&headers(&[7; 24], "1"), body));
        assert_eq!(receiver.count_distinct("c"), 1);
        assert!(receiver.set_secret("secret").is_err());
    }

    #[test]
    fn missing_and_late_webhooks_are_counted_once() {
        let of = |numbers: &[u64], expected| {
            let c = check_sequence(numbers, expected);
            (c.missing, c.out_of_order)
        };
        assert_eq!(of(&[1, 2, 3], 3), (0, 0));
        assert_eq!(of(&[1, 3, 2, 3], 3), (0, 1));
        assert_eq!(of(&[1, 1, 3], 3), (1, 0));
        assert_eq!(of(&[], 2), (2, 0));
    }
}
