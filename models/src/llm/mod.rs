//! Language models.

pub mod anthropic;
pub mod builtin;
#[cfg(test)]
mod contract;
mod driver;
mod failure;
pub mod gemini;
pub mod guardrails;
mod history;
pub mod local_servers;
#[cfg(test)]
mod mock_server;
pub mod openai;
mod options;
pub mod responses;
mod server_message;
mod sse;
mod stream;
mod think_filter;
mod thought_signatures;
mod tool_calls;
mod turns;
mod wire;

use std::sync::Arc;

use conversation::event::{HistoryItem, Snippet};
use serde_json::Value;

pub use driver::{Config, Driver, RefusedParameters};
use guardrails::{GuardrailCheck, GuardrailFuture};
pub use stream::Timeouts;

use crate::{Error, ErrorKind, Handle, Sink};

/// The response of a moderation endpoint. Dropping the future cancels the request.
pub type ModerationFuture = core::pin::Pin<Box<dyn Future<Output = Result<Value, Error>> + Send>>;

/// A request for a reply (one generation).
#[derive(Clone, Debug)]
pub struct Request {
    /// System prompt.
    pub prompt: String,
    /// The conversation so far, oldest item first. The last item is the user's turn, or tool
    /// results follow it.
    pub history: Vec<Arc<HistoryItem>>,
    /// Snippets from the agent's knowledge, best first.
    pub snippets: Vec<Snippet>,
    /// Tools that the model may call; empty = none.
    pub tools: Vec<Tool>,
    /// Model name; empty = the one that the registry resolved.
    pub model: String,
}

/// A tool as the model sees it.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Name.
    pub name: String,
    /// Description.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// Rule of a guardrail. A call of the tool means that the user's message falls under the rule.
    pub rule: Option<String>,
}

/// Event of a request: text and tool calls as they arrive, then the end. A stream that stops
/// without its end mark is `Failed`.
#[derive(Debug)]
pub enum Event {
    /// More text; the first one is the first token.
    Text(String),
    /// A complete tool call.
    ToolCall {
        /// The model's id of the call.
        id: String,
        /// Name of the tool.
        name: String,
        /// Arguments, as a JSON object.
        arguments: Value,
    },
    /// Another model answers, or the model answers without the tools: one sentence for the
    /// conversation's record.
    Warning(String),
    /// The request is sent to this provider, which sends what follows, unless [`ServedBy`] names
    /// another one. Not a part of the answer.
    ///
    /// [`ServedBy`]: Event::ServedBy
    Provider(&'static str),
    /// Of the providers that got the request, this one sends what follows. Not a part of the answer.
    ServedBy(&'static str),
    /// The reply is complete.
    End {
        /// Tokens of the prompt, 0 if unknown. They include the cached ones.
        prompt_tokens: u32,
        /// Tokens of the prompt that the server had cached, which usually cost less; 0 if unknown.
        cached_tokens: u32,
        /// Tokens of the reply, 0 if unknown.
        completion_tokens: u32,
    },
    /// The request failed; no event follows.
    Failed(Error),
}

/// A language model.
pub trait Llm: Send + Sync {
    /// Starts a reply; returns immediately.
    fn ask(&self, request: Request, sink: Sink<Event>) -> Handle;

    /// Prepares for the first request (opens the connection). Returns immediately; may do nothing.
    fn warm_up(&self) {}

    /// Maximum number of passages of the knowledge that the model reads for each request, as its
    /// snippets. `None`, the default: it gets the few that the search finds.
    fn max_passages(&self) -> Option<usize> {
        None
    }

    /// Whether the model can be asked, in its prompt, to write directions for the avatar
    /// ([`conversation::direction`]). True, the default, for models that follow instructions.
    fn follows_directions(&self) -> bool {
        true
    }

    /// Prepares for questions about `passages` under a system prompt, when a call starts. Returns
    /// immediately; may do nothing.
    fn prepare(&self, passages: Vec<Snippet>, prompt: &str) {
        let _ = (passages, prompt);
    }

    /// Checks the user's text against rules. The default, for a model that cannot check, finds no
    /// match.
    fn check_guardrails(&self, check: GuardrailCheck) -> GuardrailFuture {
        drop(check);
        Box::pin(core::future::ready(Ok(None)))
    }

    /// The response of the server's moderation endpoint for a text: its JSON, else `{"raw": text}`.
    fn moderate(&self, text: String) -> ModerationFuture {
        drop(text);
        Box::pin(core::future::ready(Err(Error::new(
            ErrorKind::NotAvailable,
            "there is no moderation endpoint",
        ))))
    }
}
