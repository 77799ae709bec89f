//! Language models.

pub mod builtin;
pub mod check;
pub mod openai;
mod sse;
mod wire;

use std::sync::Arc;

use conversation::event::{HistoryItem, Snippet};
use serde_json::Value;

use check::{Check, Checking};

use crate::{Error, Handle, Kind, Sink};

/// A moderation endpoint's answer. Dropping it stops asking.
pub type Moderating = core::pin::Pin<Box<dyn Future<Output = Result<Value, Error>> + Send>>;

/// A question.
#[derive(Clone, Debug)]
pub struct Request {
    /// System prompt.
    pub prompt: String,
    /// The conversation so far, oldest first; the user's turn is the last item, or tool results after it.
    pub history: Vec<Arc<HistoryItem>>,
    /// From the agent's knowledge, best first.
    pub snippets: Vec<Snippet>,
    /// What the model may call; empty = nothing.
    pub tools: Vec<Tool>,
    /// Which model; empty = the one that the registry resolved.
    pub model: String,
}

/// A tool as the model sees it.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
    /// A guardrail's rule: to call the tool says that the user's message falls under it.
    pub rule: Option<String>,
}

/// News of a question: text and calls as they come, then the end. A stream that breaks off without its end mark is `Failed`.
#[derive(Debug)]
pub enum Event {
    /// More text; the first is the first token.
    Text(String),
    /// A complete call of a tool.
    Call {
        /// The model's id of it.
        id: String,
        /// The tool.
        name: String,
        /// An object.
        arguments: Value,
    },
    /// The answer is complete.
    End {
        /// Tokens of the question, 0 if not told.
        prompt_tokens: u32,
        /// Tokens of the answer, 0 if not told.
        completion_tokens: u32,
    },
    /// It failed; nothing follows.
    Failed(Error),
}

/// A language model.
pub trait Llm: Send + Sync {
    /// Begins to answer; returns at once.
    fn ask(&self, request: Request, sink: Sink<Event>) -> Handle;

    /// Prepares for the first question (opens the connection). Returns at once; may do nothing.
    fn warm(&self) {}

    /// Checks what the user said against rules. A model that cannot judge finds nothing.
    fn check(&self, check: Check) -> Checking {
        drop(check);
        Box::pin(core::future::ready(Ok(None)))
    }

    /// What the server's moderation endpoint says of a text, as it says it: JSON, else `{"raw": text}`.
    fn moderate(&self, text: String) -> Moderating {
        drop(text);
        Box::pin(core::future::ready(Err(Error::new(Kind::Missing, "there is no moderation endpoint"))))
    }
}
