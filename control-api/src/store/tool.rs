//! The documents of tools. A request has the same form. The JSON Schema of these types checks
//! requests and is published.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use super::headers::Headers;

/// A tool, as it is stored and as a request gives it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Tool")]
pub(crate) struct ToolDocument {
    #[serde(rename = "type")]
    pub(crate) kind: ToolKind,
    pub(crate) schema: ToolSchema,
    /// Required by a `tool.api`; null for a `tool.client`.
    pub(crate) request_config: Option<ToolRequest>,
    #[serde(default)]
    pub(crate) event_messages: EventMessages,
}

/// Who runs a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum ToolKind {
    #[default]
    #[serde(rename = "tool.api")]
    Api,
    #[serde(rename = "tool.client")]
    Client,
}

impl ToolKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Api => "tool.api",
            Self::Client => "tool.client",
        }
    }
}

/// A tool as the model sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ToolSchema {
    #[serde(rename = "type", default)]
    pub(crate) kind: FunctionType,
    /// At most 64 letters, digits, `_`, `-` or `.`.
    #[schemars(length(min = 1), extend("pattern" = "^[A-Za-z0-9_.-]{1,64}$"))]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) parameters: ToolParameters,
}

/// The one type of a tool's schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FunctionType {
    #[default]
    Function,
}

/// The JSON Schema of a tool's arguments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("additionalProperties" = true))]
pub(crate) struct ToolParameters {
    #[serde(rename = "type")]
    pub(crate) kind: ObjectType,
    pub(crate) properties: Map<String, Value>,
    pub(crate) required: Vec<String>,
    /// Further keywords.
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

/// The one type of arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ObjectType {
    #[default]
    Object,
}

/// The request of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ToolRequest {
    /// GET, POST, PUT, PATCH or DELETE, in upper or lower case.
    pub(crate) method: String,
    /// May contain arguments in braces: `https://weather.example/{city}`.
    pub(crate) url: Option<String>,
    pub(crate) headers: Headers,
}

impl Default for ToolRequest {
    fn default() -> Self {
        Self { method: "POST".into(), url: None, headers: Headers::default() }
    }
}

/// What the agent says while a tool runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct EventMessages {
    pub(crate) on_start: Option<EventMessage>,
    pub(crate) on_success: Option<EventMessage>,
    pub(crate) on_error: Option<EventMessage>,
    pub(crate) on_delay: Option<DelayMessage>,
}

/// A message at an event of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct EventMessage {
    pub(crate) message: Option<String>,
}

/// The message when a tool takes long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct DelayMessage {
    /// Seconds.
    #[schemars(range(min = 0, max = 600))]
    pub(crate) delay: Number,
    pub(crate) message: Option<String>,
}

impl Default for DelayMessage {
    fn default() -> Self {
        Self { delay: 5.into(), message: None }
    }
}
