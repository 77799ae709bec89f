//! `guardrail_triggered`: sent once to a guardrail's own receiver, signed like a webhook, and never
//! retried.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::{WebhookDelivery, sign_and_send, signing};
use crate::state::AppState;
use crate::state::webhook_queue::GuardrailCallback;

/// Sends callbacks until `stop`. Requests in flight are then abandoned: delivery of these callbacks
/// is not guaranteed.
pub(crate) async fn run(
    shared: Arc<AppState>,
    queue: &mut mpsc::UnboundedReceiver<GuardrailCallback>,
    mut stop: watch::Receiver<bool>,
) {
    let mut attempts = JoinSet::new();
    loop {
        tokio::select! {
            callback = queue.recv() => {
                let Some(callback) = callback else { return };
                let shared = Arc::clone(&shared);
                attempts.spawn(async move { send_callback(&shared, &callback).await });
            }
            Some(_) = attempts.join_next() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

async fn send_callback(shared: &AppState, callback: &GuardrailCallback) {
    let delivery = WebhookDelivery {
        agent: &callback.agent,
        conversation: &callback.conversation,
        id: &signing::new_message_id(),
        url: &callback.url,
        body: &callback.body,
        sequence: None,
        timeout: shared.config.webhooks.timeout,
    };
    let reason = match sign_and_send(shared, &delivery).await {
        Ok(200..=299) => return,
        Ok(status) => format!("answered {status}"),
        Err(error) => error.to_string(),
    };
    tracing::warn!(conversation = %callback.conversation, %reason, "guardrail callback failed");
}
