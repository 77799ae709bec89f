//! Tools that the LLM may call, and the servers that run them.

use core::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::BoxFuture;

/// A tool that the LLM may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name, as the LLM sees it.
    pub name: String,
    /// What it does, as a description for the LLM.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// How the tool is executed.
    pub backend: ToolBackend,
}

/// A tool of a tool server. A handle equals only itself.
#[derive(Clone)]
pub struct RemoteToolHandle(pub Arc<dyn RemoteTool>);

impl PartialEq for RemoteToolHandle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// How a tool is executed.
#[derive(Clone, PartialEq)]
pub enum ToolBackend {
    /// By an HTTP request.
    Http {
        /// GET, POST, PUT, PATCH or DELETE.
        method: String,
        /// The URL, with `{param}` placeholders.
        url: String,
        /// Request headers; the values are secret.
        headers: Vec<(String, String)>,
    },
    /// In the user's browser, over the data channel.
    Client,
    /// By a tool server.
    Remote(RemoteToolHandle),
    /// By the moderation endpoint. The tool is a guardrail without a response of its own; its
    /// result is the endpoint's verdict on the user's message.
    Moderation,
    /// None: a call of the tool ends the conversation.
    EndCall,
}

impl fmt::Debug for ToolBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { method, url, .. } => write!(f, "{method} {url}"),
            Self::Client => f.write_str("client"),
            Self::Remote(_) => f.write_str("remote"),
            Self::Moderation => f.write_str("moderation"),
            Self::EndCall => f.write_str("end call"),
        }
    }
}

/// A tool that runs on another server, in a session of its own. Implemented by the control plane.
pub trait RemoteTool: Send + Sync + 'static {
    /// Runs the tool with `arguments`, a JSON object. Returns an object, or the reason of the
    /// failure in one sentence. Completes within 20 s.
    fn call(&self, arguments: Value) -> BoxFuture<'static, Result<Value, String>>;

    /// Whether the tool can still be called. Never waits.
    fn is_open(&self) -> bool {
        true
    }
}

/// The tool servers of an agent. Implemented by the control plane.
pub trait ToolServers: Send + Sync + 'static {
    /// Lists the tools of all servers in parallel. Each server has a session that lasts as long as
    /// one of its tools is in use.
    ///
    /// Calls `on_result` for each server as soon as it answers: with its tools, or with a sentence
    /// for the record that says why there are none. A tool replaces one of the same name that
    /// another server has listed before; further sentences for the record say so. Completes within 10 s; if dropped earlier, it
    /// closes the sessions that it opened. If a session closes later, `on_result` gets such a
    /// sentence and the tools of that server are no longer open.
    fn list_tools(
        &self,
        on_result: Box<dyn Fn(Result<Vec<Tool>, String>) + Send + Sync>,
    ) -> BoxFuture<'static, ()>;
}
