//! Messages to the two tasks that send webhooks: the dispatcher, and the sender of guardrail
//! callbacks.

use conversation::event::TriggeredGuardrail;
use serde_json::json;

use crate::clock::{self, Micros};
use crate::store::delivery::Row;

/// Message to the dispatcher.
#[allow(clippy::large_enum_variant)] // nearly all are rows
pub(crate) enum News {
    /// This delivery is in the outbox.
    Written(Row),
    /// The outbox holds deliveries that were not announced: those of a dead server were taken over.
    Look,
}

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
    pub(crate) agent: String,
    pub(crate) conversation: String,
    pub(crate) url: String,
    pub(crate) body: String,
}
