//! `guardrail_triggered`: sent once to a guardrail's own receiver, signed like a webhook, and never
//! retried.

use std::sync::Arc;

use conversation::event::TriggeredGuardrail;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::{Letter, post, webhook};
use crate::app::Shared;
use crate::clock::{self, Micros};

/// A guardrail that was triggered, until it is known which utterance of the agent answers it.
#[derive(Clone, Debug)]
pub(crate) struct Fired {
    pub(crate) fact: TriggeredGuardrail,
    pub(crate) url: String,
    pub(crate) at: Micros,
}

impl Fired {
    /// The callback for the guardrail's receiver.
    pub(crate) fn notice(
        self,
        agent: &str,
        agent_name: &str,
        conversation: &str,
        speech: Option<String>,
    ) -> Notice {
        let body = json!({
            "event": "guardrail_triggered",
            "guardrail": {"name": self.fact.key, "category": self.fact.category},
            "content": self.fact.content,
            "response_message": self.fact.response_message,
            "verdict": self.fact.verdict,
            "conversation_id": conversation,
            "speech_id": speech,
            "agent_id": agent_name,
            "timestamp": clock::iso(self.at),
        });
        Notice {
            agent: agent.to_owned(),
            conversation: conversation.to_owned(),
            url: self.url,
            body: body.to_string(),
        }
    }
}

/// A request to a guardrail's receiver.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    agent: String,
    conversation: String,
    url: String,
    body: String,
}

/// Sends callbacks until `stop`. Requests in flight are then abandoned: delivery of these callbacks
/// is not guaranteed.
pub(crate) async fn run(
    shared: Arc<Shared>,
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

async fn tell(shared: &Shared, notice: &Notice) {
    let letter = Letter {
        agent: &notice.agent,
        conversation: &notice.conversation,
        id: &webhook::fresh_id(),
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
    tracing::warn!(conversation = %notice.conversation, %reason, "a guardrail's receiver was not told");
}
