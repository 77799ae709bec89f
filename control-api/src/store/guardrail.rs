//! The documents of guardrails. The JSON Schema of the type checks requests and is published.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A guardrail, as it is stored and, without its key, as a request gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Guardrail")]
pub(crate) struct GuardrailDocument {
    /// Permanent name for models; the server sets it.
    #[schemars(skip_deserializing)]
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) category: String,
    /// The situation that it applies to.
    pub(crate) prompt: String,
    /// What the agent says; empty = a message of the moderation endpoint.
    pub(crate) response_message: String,
    /// Receiver of callbacks; empty = none.
    pub(crate) callback_url: String,
}
