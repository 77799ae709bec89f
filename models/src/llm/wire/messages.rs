//! Converts a request to the messages of the protocol.

use conversation::event::HistoryItem;
use serde_json::{Value, json};

use super::super::history::{Step, excerpts, steps, system_prompt, visitor_message};
use super::super::thought_signatures::ThoughtSignatures;
use super::super::tool_calls::sanitize_tool_name;
use super::Request;

/// The system prompt comes first. Then come turns that alternate, because the templates of some
/// servers require it. A tool's item becomes its call and its result.
///
/// The system message is the only one: many servers reject several, or one in the middle.
///
/// Calls get their `signatures`; for `signing_model`, a call without one gets a placeholder.
pub(super) fn messages(
    request: &Request,
    signatures: &ThoughtSignatures,
    signing_model: &str,
) -> Vec<Value> {
    let signature = |item: &HistoryItem, first: bool| {
        let name = item.name.as_deref().unwrap_or_default();
        let empty = json!({});
        let arguments = item.arguments.as_ref().unwrap_or(&empty);
        signatures.of_call(name, arguments, first, signing_model)
    };
    let system: Vec<String> =
        [system_prompt(request)].into_iter().chain(excerpts(request)).collect();
    let mut messages = vec![json!({"role": "system", "content": system.join("\n\n")})];
    if let Some(visitor_text) = visitor_message(request) {
        push_text(&mut messages, "user", &visitor_text);
    }
    for step in steps(request) {
        match step {
            Step::Text(role, text) => push_text(&mut messages, role, text),
            Step::Calls { items, first } => push_calls(&mut messages, &items, first, signature),
        }
    }
    messages
}

fn push_text(messages: &mut Vec<Value>, role: &str, text: &str) {
    if text.trim().is_empty() {
        return;
    }
    if let Some(last) =
        messages.last_mut().filter(|last| last["role"] == role && last.get("tool_calls").is_none())
    {
        let together = format!("{}\n{text}", last["content"].as_str().unwrap_or_default());
        last["content"] = together.into();
    } else {
        messages.push(json!({"role": role, "content": text}));
    }
}

fn push_calls(
    messages: &mut Vec<Value>,
    items: &[&HistoryItem],
    before: usize,
    signature: impl Fn(&HistoryItem, bool) -> Option<String>,
) {
    let id = |i: usize| format!("call_{}", before + i + 1);
    let calls: Vec<Value> = items
        .iter()
        .enumerate()
        .map(|(i, item)| {
            let name = sanitize_tool_name(item.name.as_deref().unwrap_or_default());
            let arguments =
                item.arguments.as_ref().map_or_else(|| "{}".to_owned(), Value::to_string);
            let mut call = json!({
                "id": id(i),
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            });
            if let Some(signature) = signature(item, i == 0) {
                call["extra_content"] = json!({"google": {"thought_signature": signature}});
            }
            call
        })
        .collect();
    match messages
        .last_mut()
        .filter(|last| last["role"] == "assistant" && last.get("tool_calls").is_none())
    {
        Some(last) => last["tool_calls"] = calls.into(),
        None => messages.push(json!({"role": "assistant", "content": null, "tool_calls": calls})),
    }
    for (i, item) in items.iter().enumerate() {
        messages.push(json!({"role": "tool", "tool_call_id": id(i), "content": item.text}));
    }
}
