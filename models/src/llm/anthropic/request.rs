//! A request as JSON. Pure.

use serde_json::{Map, Value, json};

use super::super::driver::TOOLS;
use super::super::history::system_prompt;
use super::super::tool_calls::{ToolNames, parameters_schema};
use super::super::turns::{Block, Speaker, Turn, turns};
use super::Options;
use crate::llm::Request;

/// Turns off thinking, which delays the first word.
const THINKING: &str = "thinking";

/// Shortens the thoughts of a model whose thinking cannot be turned off.
const EFFORT: &str = "output_config";

/// The agent's choice.
const TEMPERATURE: &str = "temperature";

/// States that the model decides about tool calls.
const TOOL_CHOICE: &str = "tool_choice";

/// Marks the ends of the prefixes that the server caches.
const CACHE_CONTROL: &str = "cache_control";

/// The parameters that some models or servers refuse, and without which a request works too.
pub(super) const OPTIONAL_PARAMETERS: [&str; 5] =
    [THINKING, EFFORT, TEMPERATURE, TOOL_CHOICE, CACHE_CONTROL];

/// The body of a request, without the parameters that are `omitted`.
pub(super) fn request_body(
    request: &Request,
    model: &str,
    options: Options,
    omitted: &[&'static str],
) -> Value {
    let accepted = |parameter| !omitted.contains(&parameter);
    let mut system = json!({"type": "text", "text": system_prompt(request)});
    let mut messages: Vec<Value> = turns(request).into_iter().map(message).collect();
    if accepted(CACHE_CONTROL) {
        mark_cached(&mut system);
        // The last message is the turn to answer, with the excerpts for it. What is before is the
        // same in the next request.
        let stable = messages.iter_mut().rev().nth(1).and_then(|m| m["content"].as_array_mut());
        if let Some(block) = stable.and_then(|content| content.last_mut()) {
            mark_cached(block);
        }
    }
    let mut body = Map::new();
    body.insert("model".into(), model.into());
    body.insert("max_tokens".into(), options.max_tokens.into());
    body.insert("system".into(), json!([system]));
    body.insert("messages".into(), messages.into());
    if !request.tools.is_empty() && accepted(TOOLS) {
        let names = ToolNames::new(&request.tools);
        let tools = request.tools.iter().zip(names.of_server()).map(|(tool, name)| {
            json!({
                "name": name,
                "description": tool.description,
                "input_schema": parameters_schema(tool),
            })
        });
        body.insert("tools".into(), tools.collect());
        if accepted(TOOL_CHOICE) {
            let choice = json!({"type": "auto", "disable_parallel_tool_use": false});
            body.insert("tool_choice".into(), choice);
        }
    }
    if let Some(temperature) = options.temperature.filter(|_| accepted(TEMPERATURE)) {
        body.insert("temperature".into(), temperature.into());
    }
    if options.effort.is_none() && accepted(THINKING) {
        body.insert("thinking".into(), json!({"type": "disabled"}));
    } else if accepted(EFFORT) {
        let effort = options.effort.unwrap_or("low");
        body.insert("output_config".into(), json!({ "effort": effort }));
    }
    body.insert("stream".into(), true.into());
    body.into()
}

fn mark_cached(block: &mut Value) {
    block["cache_control"] = json!({"type": "ephemeral"});
}

fn message(turn: Turn) -> Value {
    let role = match turn.speaker {
        Speaker::User => "user",
        Speaker::Agent => "assistant",
    };
    let content: Vec<Value> = turn.blocks.into_iter().map(content_block).collect();
    json!({"role": role, "content": content})
}

fn content_block(block: Block) -> Value {
    match block {
        Block::Text(text) => json!({"type": "text", "text": text}),
        Block::Call { id, name, arguments, .. } => {
            json!({"type": "tool_use", "id": id, "name": name, "input": arguments})
        }
        Block::Result { id, text, .. } => {
            let mut result = json!({"type": "tool_result", "tool_use_id": id});
            if !text.trim().is_empty() {
                result["content"] = text.into();
            }
            result
        }
    }
}

#[cfg(test)]
mod tests;
