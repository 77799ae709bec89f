//! The chat-completions protocol: a request as JSON, and a reply from the chunks of its stream.
//! Pure.
//!
//! Some models write their thoughts before the reply, as `<think>…</think>`. [`ThinkFilter`]
//! removes them:
//!
//! ```text
//!                       incomplete `<think>`
//!             Start ───────────────────────────► PartialTag ─┐ still incomplete
//!              │ │                                │  │  ▲    │
//!              │ └── `<think>` ──► Inside ◄───────┘  │  └────┘
//!              │                     │ `</think>`    │
//!              │                     ▼               │ other text, or the end
//!              │                   After             │
//!              │ other text          │ first word    │
//!              └─────────────────────┴───────────────┴──► Outside
//! ```

mod messages;

use serde_json::{Map, Value, json};

use self::messages::messages;
use super::{Event, Request, Tool};
use crate::{Error, ErrorKind};

/// The body of a request. `usage`: request the token counts.
pub(super) fn request_body(request: &Request, model: &str, usage: bool) -> Value {
    let mut body = Map::new();
    // Servers with a single model accept no name.
    if !model.is_empty() {
        body.insert("model".into(), model.into());
    }
    body.insert("messages".into(), messages(request).into());
    body.insert("stream".into(), true.into());
    if usage {
        body.insert("stream_options".into(), json!({"include_usage": true}));
    }
    if !request.tools.is_empty() {
        let names = server_tool_names(&request.tools);
        let tools = request.tools.iter().zip(names).map(|(tool, name)| {
            json!({
                "type": "function",
                "function": {
                    "name": name,
                    "description": tool.description,
                    "parameters": parameters_schema(tool),
                },
            })
        });
        body.insert("tools".into(), tools.collect());
    }
    body.into()
}

/// The names under which the server knows the tools: letters, digits, `_` and `-`, at most 64
/// characters, each unique.
fn server_tool_names(tools: &[Tool]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(tools.len());
    for tool in tools {
        let name = sanitize_tool_name(&tool.name);
        let mut unique = name.clone();
        for n in 2.. {
            if !names.contains(&unique) {
                break;
            }
            unique = format!("{name}_{n}");
        }
        names.push(unique);
    }
    names
}

fn sanitize_tool_name(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' })
        .take(60)
        .collect();
    if name.is_empty() { "tool".into() } else { name }
}

/// The schema of an object, even if the tool's own schema is none.
fn parameters_schema(tool: &Tool) -> Value {
    match &tool.parameters {
        Value::Object(schema) if schema.get("type").is_some_and(|kind| kind == "object") => {
            tool.parameters.clone()
        }
        _ => json!({"type": "object", "properties": {}}),
    }
}

/// Maximum number of tool calls in one reply, and of bytes in all their names and arguments. A
/// model that exceeds them does not stop on its own.
const MAX_TOOL_CALLS: usize = 64;
const MAX_ARGUMENT_BYTES: usize = 256 << 10;

/// Parser of a streamed reply.
#[derive(Debug)]
pub(super) struct AnswerParser {
    /// Pairs: the server's name of a tool, and the agent's.
    tool_names: Vec<(String, String)>,
    calls: Vec<PartialToolCall>,
    think_filter: ThinkFilter,
    has_text: bool,
    finish_reason: Option<String>,
    closed: bool,
    usage: (u32, u32),
}

/// A tool call, assembled from fragments.
#[derive(Debug, Default)]
struct PartialToolCall {
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

/// Content of one chunk of the stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AnswerDelta {
    /// Text to be spoken.
    pub(super) text: String,
    /// Whether the reply progressed: text, or part of a tool call.
    pub(super) progressed: bool,
}

impl AnswerParser {
    pub(super) fn new(tools: &[Tool]) -> Self {
        let names = server_tool_names(tools)
            .into_iter()
            .zip(tools.iter().map(|tool| tool.name.clone()))
            .collect();
        Self {
            tool_names: names,
            calls: Vec::new(),
            think_filter: ThinkFilter::default(),
            has_text: false,
            finish_reason: None,
            closed: false,
            usage: (0, 0),
        }
    }

    /// Whether the end mark has arrived.
    pub(super) fn is_finished(&self) -> bool {
        self.closed || self.finish_reason.is_some()
    }

    /// Whether no more data can arrive.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Processes the data of an event. An error contains the server's message, from which the
    /// caller must remove secrets.
    pub(super) fn push(&mut self, data: &str) -> Result<AnswerDelta, Error> {
        let data = data.trim();
        if data == "[DONE]" {
            self.closed = true;
            return Ok(AnswerDelta {
                text: self.filter_text(ThinkFilter::finish),
                progressed: false,
            });
        }
        let Ok(chunk) = serde_json::from_str::<Value>(data) else {
            return if data.is_empty() {
                Ok(AnswerDelta::default())
            } else {
                Err(Error::new(ErrorKind::Failed, "the server sent an event that is not JSON"))
            };
        };
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let kind = match error["code"].as_u64().or_else(|| error["status"].as_u64()) {
                Some(code) => status_kind(u16::try_from(code).unwrap_or(500)),
                None => ErrorKind::Failed,
            };
            return Err(Error::new(kind, error_message(&chunk)));
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            let count = |name: &str| {
                usage[name].as_u64().map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX))
            };
            self.usage = (count("prompt_tokens"), count("completion_tokens"));
        }
        let choice = &chunk["choices"][0];
        // A server that does not stream sends its whole message.
        let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        let mut update = AnswerDelta::default();
        let text = content_text(&delta["content"]);
        if !text.is_empty() {
            update.text = self.filter_text(|thoughts| thoughts.push(&text));
            update.progressed = !update.text.is_empty();
        }
        for fragment in delta["tool_calls"].as_array().into_iter().flatten() {
            update.progressed = true;
            self.add_call_fragment(fragment);
        }
        let arguments: usize =
            self.calls.iter().map(|call| call.arguments.len() + call.name.len()).sum();
        if self.calls.len() > MAX_TOOL_CALLS || arguments > MAX_ARGUMENT_BYTES {
            return Err(Error::new(ErrorKind::Failed, "the model's tool calls exceed the limit"));
        }
        if let Some(reason) = choice["finish_reason"].as_str().filter(|reason| !reason.is_empty()) {
            self.finish_reason = Some(reason.to_owned());
            update.text.push_str(&self.filter_text(ThinkFilter::finish));
        }
        Ok(update)
    }

    fn filter_text(&mut self, words: impl FnOnce(&mut ThinkFilter) -> String) -> String {
        let text = words(&mut self.think_filter);
        self.has_text |= !text.trim().is_empty();
        text
    }

    fn add_call_fragment(&mut self, fragment: &Value) {
        let id = fragment["id"].as_str().unwrap_or_default();
        let function = &fragment["function"];
        let name = function["name"].as_str().unwrap_or_default();
        // Some servers do not number the calls, or give all the same number. Then a new id with a
        // name starts a new call.
        let index = fragment["index"]
            .as_u64()
            .unwrap_or_else(|| self.calls.last().map_or(0, |call| call.index));
        let known = self.calls.iter().rposition(|call| call.index == index);
        let fresh = known.is_none_or(|i| {
            !id.is_empty()
                && !name.is_empty()
                && !self.calls[i].id.is_empty()
                && self.calls[i].id != id
        });
        let i = match known {
            Some(i) if !fresh => i,
            _ => {
                self.calls.push(PartialToolCall { index, ..PartialToolCall::default() });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[i];
        if call.id.is_empty() {
            call.id = id.to_owned();
        }
        // Most servers send the name once, some with each fragment.
        if call.name != name {
            call.name.push_str(name);
        }
        match &function["arguments"] {
            Value::String(more) => call.arguments.push_str(more),
            Value::Null => {}
            whole => call.arguments = whole.to_string(),
        }
    }

    /// Ends the stream: returns its tool calls, then its end.
    ///
    /// A tool call whose arguments are not an object fails the reply: a tool that runs with
    /// unintended arguments may do harm.
    pub(super) fn finish(self) -> Result<Vec<Event>, Error> {
        match self.finish_reason.as_deref() {
            _ if !self.is_finished() => {
                return Err(Error::new(ErrorKind::Failed, "the stream ended early"));
            }
            Some("content_filter") => {
                return Err(Error::new(
                    ErrorKind::Rejected,
                    "the server's content filter stopped the answer",
                ));
            }
            Some("error") => {
                return Err(Error::new(
                    ErrorKind::Failed,
                    "the server stopped the answer with an error",
                ));
            }
            _ => {}
        }
        if !self.has_text && self.calls.is_empty() {
            return Err(Error::new(ErrorKind::Failed, "the answer is empty"));
        }
        let mut events = Vec::with_capacity(self.calls.len() + 1);
        for (n, call) in self.calls.into_iter().enumerate() {
            let name = self
                .tool_names
                .iter()
                .find(|(known, _)| *known == call.name)
                .map_or(call.name, |(_, own)| own.clone());
            let arguments = parse_arguments(&call.arguments).ok_or_else(|| {
                Error::new(
                    ErrorKind::Failed,
                    format!("the model called {name:?} with arguments that are not a JSON object"),
                )
            })?;
            let id = if call.id.is_empty() { format!("call_{}", n + 1) } else { call.id };
            events.push(Event::ToolCall { id, name, arguments });
        }
        events.push(Event::End { prompt_tokens: self.usage.0, completion_tokens: self.usage.1 });
        Ok(events)
    }
}

/// Text, or the text parts of a list.
fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// Missing arguments are an empty object. An object in a string is that object.
fn parse_arguments(text: &str) -> Option<Value> {
    if text.trim().is_empty() {
        return Some(json!({}));
    }
    match serde_json::from_str(text).ok()? {
        object @ Value::Object(_) => Some(object),
        Value::Null => Some(json!({})),
        Value::String(inner) => serde_json::from_str(&inner).ok().filter(Value::is_object),
        _ => None,
    }
}

/// The message in an error's body, in the shapes that servers use.
pub(super) fn error_message(body: &Value) -> String {
    let error = &body["error"];
    [&error["message"], error, &body["message"], &body["detail"]]
        .into_iter()
        .find_map(Value::as_str)
        .unwrap_or("no reason given")
        .to_owned()
}

/// The kind of error of a status other than 2xx.
pub(super) fn status_kind(status: u16) -> ErrorKind {
    match status {
        408 | 504 => ErrorKind::Timeout,
        429 | 503 | 529 => ErrorKind::Busy,
        500.. => ErrorKind::Failed,
        _ => ErrorKind::Rejected,
    }
}

/// Removes the thoughts of a model before its reply: `<think>…</think>` at the start.
#[derive(Debug, Default)]
enum ThinkFilter {
    /// No text yet.
    #[default]
    Start,
    /// The text may be the start of the tag.
    PartialTag(String),
    /// In the thoughts; holds the end of the text so far.
    Inside(String),
    /// Before the first word of the reply.
    After,
    /// In the reply.
    Outside,
}

impl ThinkFilter {
    fn push(&mut self, text: &str) -> String {
        const OPEN: &str = "<think>";
        const CLOSE: &str = "</think>";
        let held = match std::mem::replace(self, Self::Outside) {
            Self::Outside => return text.to_owned(),
            Self::Start => text.to_owned(),
            Self::PartialTag(held) => held + text,
            Self::After => {
                let text = text.trim_start();
                if text.is_empty() {
                    *self = Self::After;
                }
                return text.to_owned();
            }
            Self::Inside(held) => {
                let held = held + text;
                return match held.split_once(CLOSE) {
                    Some((_, after)) => {
                        *self = Self::After;
                        self.push(after)
                    }
                    None => {
                        let tail_length = (0..=held.len().min(CLOSE.len()))
                            .rev()
                            .find(|n| held.is_char_boundary(held.len() - n))
                            .unwrap_or(0);
                        *self = Self::Inside(held[held.len() - tail_length..].to_owned());
                        String::new()
                    }
                };
            }
        };
        let start = held.trim_start();
        if let Some(inside) = start.strip_prefix(OPEN) {
            *self = Self::Inside(String::new());
            return self.push(inside);
        }
        if OPEN.starts_with(start) {
            *self = Self::PartialTag(held);
            return String::new();
        }
        held
    }

    /// The text ends. Held-back text was no tag, so it is returned.
    fn finish(&mut self) -> String {
        match std::mem::replace(self, Self::Outside) {
            Self::PartialTag(held) => held,
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests;
