//! `guardrail_triggered`: sent once to a guardrail's own receiver, signed like a webhook, and never
//! retried. Workspaces take turns, as at webhooks. A receiver that hangs delays only the callbacks
//! of its own agent.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::fair_queue::FairQueue;
use super::sender::{WebhookDelivery, WebhookSender};
use super::signing;
use crate::state::guardrail_callback::GuardrailCallback;
use crate::state::supervise::BackgroundTask;
use crate::store;

/// Maximum number of requests in flight.
const MAX_CALLBACKS_IN_FLIGHT: usize = 64;
/// Maximum number of requests in flight for one agent.
const MAX_CALLBACKS_PER_AGENT: usize = 16;
/// Maximum number of callbacks of one agent that wait. Further ones are dropped: their delivery is
/// not guaranteed, and the conversation's events report the guardrail too.
const MAX_QUEUED_CALLBACKS_PER_AGENT: usize = 256;

/// The task that sends callbacks. Its stop abandons the requests in flight and the waiting
/// callbacks: delivery of these callbacks is not guaranteed.
pub(crate) struct GuardrailCallbackTask {
    pub(crate) sender: Arc<WebhookSender>,
    pub(crate) queue: mpsc::UnboundedReceiver<GuardrailCallback>,
    /// Number of callbacks that were dropped because too many waited.
    pub(crate) dropped: Arc<AtomicU64>,
}

impl BackgroundTask for GuardrailCallbackTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        let mut waiting = FairQueue::new(MAX_CALLBACKS_IN_FLIGHT, MAX_CALLBACKS_PER_AGENT);
        let mut attempts = JoinSet::new();
        loop {
            while let Some(callback) = waiting.pop() {
                let sender = Arc::clone(&self.sender);
                attempts.spawn(async move {
                    send_callback(&sender, &callback).await;
                    (callback.workspace, callback.agent)
                });
            }
            tokio::select! {
                callback = self.queue.recv() => {
                    let Some(callback) = callback else { return };
                    self.enqueue(&mut waiting, callback);
                }
                Some(done) = attempts.join_next() => match done {
                    Ok((workspace, agent)) => waiting.release(&workspace, &agent),
                    Err(error) => tracing::error!(
                        %error,
                        "a guardrail callback failed unexpectedly"
                    ),
                },
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

impl GuardrailCallbackTask {
    fn enqueue(&self, waiting: &mut FairQueue<GuardrailCallback>, callback: GuardrailCallback) {
        let (workspace, agent) = (callback.workspace.clone(), callback.agent.clone());
        if waiting.waiting_count(&workspace, &agent) < MAX_QUEUED_CALLBACKS_PER_AGENT {
            waiting.push(&workspace, &agent, callback);
            return;
        }
        self.dropped.fetch_add(1, Ordering::Relaxed);
        let conversation = &callback.conversation;
        tracing::warn!(%conversation, "guardrail callback dropped: the agent's queue is full");
    }
}

/// Makes the one attempt. A panic fails this callback only, like any other error.
async fn send_callback(sender: &WebhookSender, callback: &GuardrailCallback) {
    let id = signing::new_message_id();
    let delivery = WebhookDelivery {
        agent: &callback.agent,
        conversation: &callback.conversation,
        id: &id,
        url: &callback.url,
        body: &callback.body,
        sequence: None,
        timeout: sender.timeout,
    };
    let reason = match AssertUnwindSafe(sender.sign_and_send(&delivery)).catch_unwind().await {
        Ok(Ok(200..=299)) => return,
        Ok(Ok(status)) => format!("responded with status {status}"),
        Ok(Err(error)) => error.to_string(),
        Err(_) => store::Error::Panicked.to_string(),
    };
    tracing::warn!(conversation = %callback.conversation, %reason, "guardrail callback failed");
}
