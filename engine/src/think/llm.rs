//! Generations: the knowledge search before them, on the network pool; their events for the call;
//! their cancellation.

use std::sync::Arc;

use conversation::id::ConversationId;
use conversation::input::{GenerationId, LlmEvent};
use conversation::output::STAY_SILENT;
use engine_api::Knowledge;
use models::Sink;
use models::llm::{Event, Llm, Request, Tool};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::{call_span, knowledge};
use crate::messages::StageEvent;

/// A running generation. Dropping the handle cancels it.
pub struct GenerationHandle {
    /// The id of the generation.
    pub generation: GenerationId,
    /// The provider that serves it; empty until it is known.
    pub provider: &'static str,
    _cancel: oneshot::Sender<()>,
}

/// Starts a generation on the network pool; its events go to `sink`.
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
            if let Some(limit) = llm.max_passages() {
                request.snippets = source.passages(&query, limit).await;
            }
        }
        let handle = llm.ask(
            request,
            Sink::new(move |event: Event| sink.send(StageEvent::Llm(generation, event))),
        );
        // Resolves when the handle is dropped, after a cancellation or the end. No value is ever
        // sent.
        let _ = cancelled.await;
        handle.cancel();
    };
    net.spawn(task.instrument(call_span(call)));
    GenerationHandle { generation, provider: "", _cancel: cancel }
}

/// What a model reads at the end of its prompt when nobody has addressed the agent.
const UNADDRESSED: &str = concat!(
    "Several people talk to each other, and you were not addressed. ",
    "Speak only if somebody asks something that nobody else answers, ",
    "or if you can correct an important error. ",
    "Otherwise call the tool `stay_silent` and write nothing.",
);

/// What a model reads about the expressions of the avatar ([`conversation::direction`]). Always the
/// same, because servers cache the beginning of a request.
///
/// The built-in answerer, which may be in a chain with other models, takes the sentences of a prompt
/// for statements about the agent, unless they begin with the word of an instruction.
const EXPRESSIONS: &str = concat!(
    "Begin a sentence with [calm], [warm], [glad], [concerned] or [curious] ",
    "where the expression of your face should change. ",
    "Use them sparingly: each lasts until the next one and is not spoken. ",
    "Never write anything else in brackets.",
);

/// Lets the model set the expression of the avatar.
pub fn offer_expressions(request: &mut Request) {
    append_paragraph(&mut request.prompt, EXPRESSIONS);
}

fn append_paragraph(prompt: &mut String, text: &str) {
    if !prompt.is_empty() {
        prompt.push_str("\n\n");
    }
    prompt.push_str(text);
}

/// Lets the model stay silent in this request.
pub fn offer_silence(request: &mut Request) {
    append_paragraph(&mut request.prompt, UNADDRESSED);
    // A tool of the agent with this name would never be run here.
    request.tools.retain(|tool| tool.name != STAY_SILENT);
    request.tools.push(Tool {
        name: STAY_SILENT.into(),
        description: "Say nothing, because the words were not for you.".into(),
        parameters: json!({"type": "object", "properties": {}}),
        rule: None,
    });
}

/// Lets a model that reads whole passages prepare for the knowledge of a call.
pub fn prepare_knowledge(
    net: &Handle,
    llm: Arc<dyn Llm>,
    source: Option<Arc<dyn Knowledge>>,
    prompt: String,
) {
    let (Some(source), Some(limit)) = (source, llm.max_passages()) else { return };
    net.spawn(async move { llm.prepare(source.passages("", limit).await, &prompt) });
}

/// Converts an adapter's event to one of the conversation; the flag marks the last event.
///
/// # Errors
/// The sentence of a warning, which is no event of the generation.
pub fn to_llm_event(event: Event) -> Result<(LlmEvent, bool), String> {
    Ok(match event {
        Event::Warning(text) => return Err(text),
        Event::Provider(provider) | Event::ServedBy(provider) => {
            (LlmEvent::Provider(provider.to_owned()), false)
        }
        Event::Text(text) => (LlmEvent::Text(text), false),
        Event::ToolCall { id, name, arguments } => {
            (LlmEvent::ToolCall { id, name, arguments }, false)
        }
        Event::End { prompt_tokens, completion_tokens, .. } => {
            (LlmEvent::End { prompt_tokens, completion_tokens }, true)
        }
        Event::Failed(error) if error.is_exhausted() => {
            (LlmEvent::Exhausted(error.to_string()), true)
        }
        Event::Failed(error) => (LlmEvent::Failed(error.to_string()), true),
    })
}

#[cfg(test)]
mod tests {
    use conversation::direction::{DirectionTag, Expression, split};

    use super::*;

    #[test]
    fn the_offered_expressions_are_those_that_are_known() {
        let (visible, found) = split(EXPRESSIONS);
        let tags = Expression::ALL.map(DirectionTag::Expression);
        assert_eq!(found.iter().map(|(_, direction)| *direction).collect::<Vec<_>>(), tags);
        assert!(!visible.contains('['), "{visible}");
    }

    #[test]
    fn silence_is_offered_once_and_explained_at_the_end_of_the_prompt() {
        let own = |name: &str| Tool {
            name: name.into(),
            description: "A tool of the agent.".into(),
            parameters: json!({"type": "object"}),
            rule: None,
        };
        let mut request = Request {
            prompt: "You are Clara.".into(),
            history: Vec::new(),
            snippets: Vec::new(),
            tools: vec![own("calendar"), own(STAY_SILENT)],
            model: String::new(),
        };
        offer_silence(&mut request);
        let names: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["calendar", STAY_SILENT]);
        assert!(request.tools[1].description.starts_with("Say nothing"));
        assert_eq!(request.prompt, format!("You are Clara.\n\n{UNADDRESSED}"));
        request.prompt.clear();
        offer_silence(&mut request);
        assert_eq!(request.prompt, UNADDRESSED);
    }
}
