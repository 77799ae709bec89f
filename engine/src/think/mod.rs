//! From a question to words.

pub(crate) mod guardrails;
pub mod knowledge;
pub mod llm;
pub mod tools;

/// A call's name for what is logged on the net pool. Of the highest level, so that no filter takes the name from a line that it lets through.
pub(crate) fn call_span(call: conversation::call_config::ConversationId) -> tracing::Span {
    tracing::error_span!("call", conversation = %call)
}
