//! From the user's transcript to the text of the reply.

pub(crate) mod guardrails;
pub mod knowledge;
pub mod llm;
pub mod tools;

/// Span with the conversation's id for log lines of the network pool. It has the highest level, so
/// that any log filter that passes a line passes the id too.
pub(crate) fn call_span(call: conversation::id::ConversationId) -> tracing::Span {
    tracing::error_span!("call", conversation = %call)
}
