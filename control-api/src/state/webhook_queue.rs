//! Messages to the two tasks that send webhooks: the dispatcher, and the sender of guardrail
//! callbacks.

use conversation::event::TriggeredGuardrail;
use serde_json::json;

use crate::clock::{self, Micros};
use crate::store::delivery::Row;

/// Message to the dispatcher.
#[allow(clippy::large_enum_variant)] // nearly all are rows
pub(crate) enum OutboxMessage {
    /// This delivery is in the outbox.
    Written(Row),
    /// The outbox holds deliveries that were not announced: those of a dead server were taken over.
    Rescan,
}

/// A guardrail that was triggered, until it is known which utterance of the agent answers it.
#[derive(Clone, Debug)]
pub(crate) struct PendingCallback {
    pub(crate) event: TriggeredGuardrail,
    pub(crate) url: String,
    pub(crate) at: Micros,
}

impl PendingCallback {
    /// The callback for the guardrail's receiver.
    pub(crate) fn into_callback(
        self,
        agent: &str,
        agent_name: &str,
        conversation: &str,
        speech_id: Option<String>,
    ) -> GuardrailCallback {
        let body = json!({
            "event": "guardrail_triggered",
            "guardrail": {"name": self.event.key, "category": self.event.category},
            "content": self.event.content,
            "response_message": self.event.response_message,
            "verdict": self.event.verdict,
            "conversation_id": conversation,
            "speech_id": speech_id,
            "agent_id": agent_name,
            "timestamp": clock::to_iso8601(self.at),
        });
        GuardrailCallback {
            agent: agent.to_owned(),
            conversation: conversation.to_owned(),
            url: self.url,
            body: body.to_string(),
        }
    }
}

/// A request to a guardrail's receiver.
#[derive(Clone, Debug)]
pub(crate) struct GuardrailCallback {
    pub(crate) agent: String,
    pub(crate) conversation: String,
    pub(crate) url: String,
    pub(crate) body: String,
}
