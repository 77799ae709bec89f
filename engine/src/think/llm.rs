//! Questions to the LLM: the search of the agent's knowledge before, on the net pool; the news back to the call; the cancelling.

use std::sync::Arc;

use conversation::call_config::ConversationId;
use conversation::engine::Knowledge;
use conversation::input::{GenerationId, LlmEvent};
use models::Sink;
use models::llm::{Event, Llm, Request};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::{call_span, knowledge};
use crate::messages::StageEvent;

/// A question under way. Dropping it cancels the question.
pub struct GenerationHandle {
    /// Which one.
    pub generation: GenerationId,
    _cancel: oneshot::Sender<()>,
}

/// Asks on the net pool; the news come through `news`.
pub fn start_generation(
    net: &Handle,
    call: ConversationId,
    llm: Arc<dyn Llm>,
    source: Option<Arc<dyn Knowledge>>,
    mut request: Request,
    generation: GenerationId,
    sink: Sink<StageEvent>,
) -> GenerationHandle {
    let (cancel, cancelled) = oneshot::channel();
    let task = async move {
        if let Some(source) = source
            && let Some(query) = knowledge::search_query(&request.history)
        {
            request.snippets = source.search(&query, knowledge::MAX_SNIPPETS).await;
            if !request.snippets.is_empty() {
                sink.send(StageEvent::Snippets(request.snippets.clone()));
            }
        }
        let handle =
            llm.ask(request, Sink::new(move |event: Event| sink.send(StageEvent::Llm(generation, event))));
        // Resolves when the question is cancelled or done with: the sender is dropped, nothing is ever sent.
        let _ = cancelled.await;
        handle.cancel();
    };
    net.spawn(task.instrument(call_span(call)));
    GenerationHandle { generation, _cancel: cancel }
}

/// An adapter's news as the conversation knows them; whether they are the last.
#[must_use]
pub fn to_llm_event(event: Event) -> (LlmEvent, bool) {
    match event {
        Event::Text(text) => (LlmEvent::Text(text), false),
        Event::Call { id, name, arguments } => (LlmEvent::ToolCall { id, name, arguments }, false),
        Event::End { prompt_tokens, completion_tokens } => {
            (LlmEvent::End { prompt_tokens, completion_tokens }, true)
        }
        Event::Failed(error) => (LlmEvent::Failed(error.to_string()), true),
    }
}
