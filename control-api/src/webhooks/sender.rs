//! Signs and sends webhooks and guardrail callbacks.

use std::sync::Arc;
use std::time::Duration;

use egress::{Method, Request};

use super::{SPEAKING_TIMEOUT, signing};
use crate::clock;
use crate::store::crash_points::{CrashHook, CrashPoint};
use crate::store::delivery::{Attempt, Row};
use crate::store::secrets::{self, AgentSecrets};
use crate::store::vault::Vault;
use crate::store::{self, Store};

/// Sends webhooks and guardrail callbacks, signed with the secret of their agent.
pub(crate) struct WebhookSender {
    /// Holds the secrets of agents, encrypted.
    pub(crate) store: Store,
    pub(crate) vault: Arc<Vault>,
    /// Sends requests under the operator's policy.
    pub(crate) http_client: egress::Client,
    /// `webhooks.timeout`
    pub(crate) timeout: Duration,
    pub(crate) crash_hook: Option<CrashHook>,
}

/// Contents of one signed request.
pub(super) struct WebhookDelivery<'a> {
    pub(super) agent: &'a str,
    pub(super) conversation: &'a str,
    /// `webhook-id`
    pub(super) id: &'a str,
    pub(super) url: &'a str,
    pub(super) body: &'a str,
    /// `visavis-sequence`
    pub(super) sequence: Option<i64>,
    /// Maximum wait for the response.
    pub(super) timeout: Duration,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error(transparent)]
    Net(#[from] egress::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("the agent has no webhook secret")]
    NoSecret,
}

impl WebhookSender {
    /// Makes one attempt. Returns its result, and whether the request cannot be sent at all.
    pub(super) async fn make_attempt(&self, row: &Row) -> (Attempt, bool) {
        let at = clock::now();
        CrashPoint::BeforeSend.notify(self.crash_hook);
        let sent = self.send_delivery(row).await;
        CrashPoint::AfterSend.notify(self.crash_hook);
        let (status, error, fatal) = match sent {
            Ok(status) => (Some(status), None, false),
            Err(SendError::Net(
                error @ (egress::Error::ForbiddenAddress | egress::Error::Invalid(_)),
            )) => (None, Some(error.to_string()), true),
            // What the secret belonged to was deleted.
            Err(error @ SendError::NoSecret) => (None, Some(error.to_string()), true),
            Err(error) => (None, Some(error.to_string()), false),
        };
        (Attempt { at, duration: clock::now() - at, status, error }, fatal)
    }

    /// Sends one delivery. Returns the receiver's HTTP status.
    async fn send_delivery(&self, row: &Row) -> Result<u16, SendError> {
        let is_speaking = signing::is_speaking_event(&row.event);
        let delivery = WebhookDelivery {
            agent: &row.agent,
            conversation: &row.conversation,
            id: &row.id,
            url: &row.url,
            body: &row.body,
            sequence: Some(row.sequence),
            timeout: if is_speaking { self.timeout.min(SPEAKING_TIMEOUT) } else { self.timeout },
        };
        self.sign_and_send(&delivery).await
    }

    /// Signs and sends a request. Returns the receiver's HTTP status.
    pub(super) async fn sign_and_send(
        &self,
        delivery: &WebhookDelivery<'_>,
    ) -> Result<u16, SendError> {
        let sealed = self.store.signing_secrets(delivery.agent, delivery.conversation).await?;
        let sealed = sealed.ok_or(SendError::NoSecret)?;
        let secrets: AgentSecrets = secrets::open(&self.vault, delivery.agent, &sealed)?;
        let timestamp = clock::now() / 1_000_000;
        let signature = signing::sign(&secrets.webhook, delivery.id, timestamp, delivery.body)
            .ok_or(SendError::NoSecret)?;
        let mut request = Request::new(Method::POST, delivery.url)?
            .header("webhook-id", delivery.id)?
            .header("webhook-timestamp", &timestamp.to_string())?
            .header("webhook-signature", &signature)?;
        if let Some(sequence) = delivery.sequence {
            request = request.header("visavis-sequence", &sequence.to_string())?;
        }
        let request = request.json(delivery.body.to_owned()).timeout(Some(delivery.timeout));
        Ok(self.http_client.send(request).await?.status())
    }
}
