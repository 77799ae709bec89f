//! `guardrail_triggered`: sent once to a guardrail's own receiver, signed like a webhook, and never
//! retried.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::sender::{WebhookDelivery, WebhookSender};
use super::signing;
use crate::state::supervise::BackgroundTask;
use crate::state::webhook_queue::GuardrailCallback;

/// The task that sends callbacks. Its stop abandons the requests in flight: delivery of these
/// callbacks is not guaranteed.
pub(crate) struct GuardrailCallbackTask {
    pub(crate) sender: Arc<WebhookSender>,
    pub(crate) queue: mpsc::UnboundedReceiver<GuardrailCallback>,
}

impl BackgroundTask for GuardrailCallbackTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        let mut attempts = JoinSet::new();
        loop {
            tokio::select! {
                callback = self.queue.recv() => {
                    let Some(callback) = callback else { return };
                    let sender = Arc::clone(&self.sender);
                    attempts.spawn(async move { send_callback(&sender, &callback).await });
                }
                Some(_) = attempts.join_next() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

async fn send_callback(sender: &WebhookSender, callback: &GuardrailCallback) {
    let delivery = WebhookDelivery {
        agent: &callback.agent,
        conversation: &callback.conversation,
        id: &signing::new_message_id(),
        url: &callback.url,
        body: &callback.body,
        sequence: None,
        timeout: sender.timeout,
    };
    let reason = match sender.sign_and_send(&delivery).await {
        Ok(200..=299) => return,
        Ok(status) => format!("answered {status}"),
        Err(error) => error.to_string(),
    };
    tracing::warn!(conversation = %callback.conversation, %reason, "guardrail callback failed");
}
