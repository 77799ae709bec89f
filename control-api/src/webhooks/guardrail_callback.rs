//! `guardrail_triggered`: sent once to a guardrail's own receiver, signed like a webhook, and never
//! retried.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::{Letter, post, signing};
use crate::state::AppState;
use crate::state::webhook_queue::Notice;

/// Sends callbacks until `stop`. Requests in flight are then abandoned: delivery of these callbacks
/// is not guaranteed.
pub(crate) async fn run(
    shared: Arc<AppState>,
    queue: &mut mpsc::UnboundedReceiver<Notice>,
    mut stop: watch::Receiver<bool>,
) {
    let mut tries = JoinSet::new();
    loop {
        tokio::select! {
            notice = queue.recv() => {
                let Some(notice) = notice else { return };
                let shared = Arc::clone(&shared);
                tries.spawn(async move { tell(&shared, &notice).await });
            }
            Some(_) = tries.join_next() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

async fn tell(shared: &AppState, notice: &Notice) {
    let letter = Letter {
        agent: &notice.agent,
        conversation: &notice.conversation,
        id: &signing::fresh_id(),
        url: &notice.url,
        body: &notice.body,
        sequence: None,
        timeout: shared.config.webhooks.timeout,
    };
    let reason = match post(shared, &letter).await {
        Ok(200..=299) => return,
        Ok(status) => format!("answered {status}"),
        Err(error) => error.to_string(),
    };
    tracing::warn!(conversation = %notice.conversation, %reason, "guardrail callback failed");
}
