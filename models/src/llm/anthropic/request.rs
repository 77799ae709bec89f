//! A request as JSON. Pure.

use conversation::event::HistoryItem;
use serde_json::{Map, Value, json};

use super::super::history::{Step, excerpts, steps, system_prompt, visitor_message};
use super::super::tool_calls::{ToolNames, parameters_schema, sanitize_tool_name};
use super::Options;
use crate::llm::Request;

/// The user message before agent speech that begins a conversation: the first message must be the
/// user's.
const CALL_BEGINS: &str = "(The call begins.)";

/// The user message after agent speech: the last message must be the user's.
const USER_IS_SILENT: &str = "(The user says nothing. Continue the conversation.)";

/// A parameter that some models or servers refuse, and without which a request works too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionalParameter {
    /// Turns off thinking, which delays the first word.
    Thinking,
    /// Shortens the thoughts of a model whose thinking cannot be turned off.
    Effort,
    /// The agent's choice.
    Temperature,
    /// States that the model decides about tool calls.
    ToolChoice,
    /// Marks the ends of the prefixes that the server caches.
    CacheControl,
}

impl OptionalParameter {
    pub(super) const ALL: [Self; 5] =
        [Self::Thinking, Self::Effort, Self::Temperature, Self::ToolChoice, Self::CacheControl];

    /// Its key in a request.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Thinking => "thinking",
            Self::Effort => "output_config",
            Self::Temperature => "temperature",
            Self::ToolChoice => "tool_choice",
            Self::CacheControl => "cache_control",
        }
    }
}

/// The body of a request, without the parameters that are `refused`.
pub(super) fn request_body(
    request: &Request,
    model: &str,
    options: Options,
    refused: &[OptionalParameter],
) -> Value {
    let accepted = |parameter| !refused.contains(&parameter);
    let cached = accepted(OptionalParameter::CacheControl);
    let mut system = json!({"type": "text", "text": system_prompt(request)});
    let mut messages = messages(request);
    if cached {
        mark_cached(&mut system);
        // The last message is the turn to answer, with the excerpts for it. What is before is the
        // same in the next request.
        if let Some(block) = messages.iter_mut().rev().nth(1).and_then(|m| m.content.last_mut()) {
            mark_cached(block);
        }
    }
    let mut body = Map::new();
    body.insert("model".into(), model.into());
    body.insert("max_tokens".into(), options.max_tokens.into());
    body.insert("system".into(), json!([system]));
    body.insert("messages".into(), messages.into_iter().map(Message::into_json).collect());
    if !request.tools.is_empty() {
        let names = ToolNames::new(&request.tools);
        let tools = request.tools.iter().zip(names.of_server()).map(|(tool, name)| {
            json!({
                "name": name,
                "description": tool.description,
                "input_schema": parameters_schema(tool),
            })
        });
        body.insert("tools".into(), tools.collect());
        if accepted(OptionalParameter::ToolChoice) {
            let choice = json!({"type": "auto", "disable_parallel_tool_use": false});
            body.insert("tool_choice".into(), choice);
        }
    }
    if let Some(temperature) =
        options.temperature.filter(|_| accepted(OptionalParameter::Temperature))
    {
        body.insert("temperature".into(), temperature.into());
    }
    if accepted(OptionalParameter::Thinking) {
        body.insert("thinking".into(), json!({"type": "disabled"}));
    } else if accepted(OptionalParameter::Effort) {
        body.insert("output_config".into(), json!({"effort": "low"}));
    }
    body.insert("stream".into(), true.into());
    body.into()
}

fn mark_cached(block: &mut Value) {
    block["cache_control"] = json!({"type": "ephemeral"});
}

/// A message: content blocks of one role.
struct Message {
    role: &'static str,
    content: Vec<Value>,
}

impl Message {
    fn into_json(self) -> Value {
        json!({"role": self.role, "content": self.content})
    }
}

/// Turns that alternate; the first and the last one are the user's.
///
/// A tool's item becomes a call (`tool_use`) of the agent and its result (`tool_result`) in the
/// user message that follows: the results of all calls of a message first, then text. The excerpts
/// stand before the words of the last message, for which they were found: in the system prompt
/// they would end the prefix that the server caches.
fn messages(request: &Request) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    if let Some(visitor_text) = visitor_message(request) {
        push_text(&mut messages, "user", &visitor_text);
    }
    for step in steps(request) {
        match step {
            Step::Text(role, text) => push_text(&mut messages, role, text),
            Step::Calls { items, first } => push_calls(&mut messages, &items, first),
        }
    }
    if messages.first().is_none_or(|first| first.role != "user") {
        messages.insert(0, Message { role: "user", content: vec![text_block(CALL_BEGINS)] });
    }
    if messages.last().is_some_and(|last| last.role != "user") {
        push_text(&mut messages, "user", USER_IS_SILENT);
    }
    if let (Some(excerpts), Some(last)) = (excerpts(request), messages.last_mut()) {
        let results = last.content.iter().take_while(|block| block["type"] == "tool_result");
        last.content.insert(results.count(), text_block(&format!("{excerpts}\n\n")));
    }
    messages
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// The content of the last message if it has this role, else of a new one.
fn content_of<'a>(messages: &'a mut Vec<Message>, role: &'static str) -> &'a mut Vec<Value> {
    if messages.last().is_none_or(|last| last.role != role) {
        messages.push(Message { role, content: Vec::new() });
    }
    let last = messages.len() - 1;
    &mut messages[last].content
}

fn push_text(messages: &mut Vec<Message>, role: &'static str, text: &str) {
    if text.trim().is_empty() {
        return;
    }
    let content = content_of(messages, role);
    match content.last_mut().filter(|block| block["type"] == "text") {
        Some(block) => {
            let together = format!("{}\n{text}", block["text"].as_str().unwrap_or_default());
            block["text"] = together.into();
        }
        None => content.push(text_block(text)),
    }
}

fn push_calls(messages: &mut Vec<Message>, items: &[&HistoryItem], before: usize) {
    let id = |i: usize| format!("call_{}", before + i + 1);
    let content = content_of(messages, "assistant");
    for (i, item) in items.iter().enumerate() {
        let input = item.arguments.clone().filter(Value::is_object).unwrap_or_else(|| json!({}));
        content.push(json!({
            "type": "tool_use",
            "id": id(i),
            "name": sanitize_tool_name(item.name.as_deref().unwrap_or_default()),
            "input": input,
        }));
    }
    let content = content_of(messages, "user");
    for (i, item) in items.iter().enumerate() {
        let mut result = json!({"type": "tool_result", "tool_use_id": id(i)});
        if !item.text.trim().is_empty() {
            result["content"] = item.text.as_str().into();
        }
        content.push(result);
    }
}

#[cfg(test)]
mod tests;
