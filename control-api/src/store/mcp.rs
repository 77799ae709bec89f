//! The documents of MCP configurations. A request has the same form. The JSON Schema of these types
//! checks requests and is published.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::headers::Headers;

/// An MCP configuration, as it is stored and as a request gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Mcp")]
pub(crate) struct McpDocument {
    #[schemars(length(min = 1))]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(rename = "type", default)]
    pub(crate) kind: TransportType,
    #[serde(default)]
    pub(crate) request_config: McpRequest,
}

/// The transport of an MCP server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum TransportType {
    #[default]
    #[serde(rename = "shttp/sse")]
    Any,
    #[serde(rename = "shttp")]
    StreamableHttp,
    #[serde(rename = "sse")]
    LegacySse,
}

impl TransportType {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Any => "shttp/sse",
            Self::StreamableHttp => "shttp",
            Self::LegacySse => "sse",
        }
    }
}

/// How an MCP server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct McpRequest {
    #[schemars(length(min = 1), extend("format" = "uri"))]
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) headers: Headers,
}
