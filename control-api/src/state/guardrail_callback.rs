//! A request to a guardrail's own receiver, from its event to the task that sends it.

use conversation::event::TriggeredGuardrail;
use serde_json::json;

use crate::clock::{self, Micros};
use crate::store::conversation::Row as ConversationRow;

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
        conversation: &ConversationRow,
        speech_id: Option<String>,
    ) -> GuardrailCallback {
        let body = json!({
            "event": "guardrail_triggered",
            "guardrail": {"name": self.event.key, "category": self.event.category},
            "content": self.event.content,
            "response_message": self.event.response_message,
            "verdict": self.event.verdict,
            "conversation_id": conversation.id,
            "speech_id": speech_id,
            "agent_id": conversation.agent_name,
            "timestamp": clock::to_iso8601(self.at),
        });
        GuardrailCallback {
            workspace: conversation.workspace.clone(),
            agent: conversation.agent.clone(),
            conversation: conversation.id.clone(),
            url: self.url,
            body: body.to_string(),
        }
    }
}

/// A request to a guardrail's receiver.
#[derive(Clone, Debug)]
pub(crate) struct GuardrailCallback {
    pub(crate) workspace: String,
    pub(crate) agent: String,
    pub(crate) conversation: String,
    pub(crate) url: String,
    pub(crate) body: String,
}
