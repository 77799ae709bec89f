//! The chat-completions protocol: a request as JSON, and a reply from the chunks of its stream.
//! Pure.

mod messages;

use serde_json::{Map, Value, json};

use self::messages::messages;
use super::server_message::error_message;
use super::stream::{AnswerDelta, StreamParser};
use super::think_filter::ThinkFilter;
use super::tool_calls::{ToolNames, check_limits, parameters_schema};
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
        let names = ToolNames::new(&request.tools);
        let tools = request.tools.iter().zip(names.of_server()).map(|(tool, name)| {
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

/// Parser of a streamed reply.
#[derive(Debug)]
pub(super) struct AnswerParser {
    tool_names: ToolNames,
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

impl AnswerParser {
    pub(super) fn new(tools: &[Tool]) -> Self {
        Self {
            tool_names: ToolNames::new(tools),
            calls: Vec::new(),
            think_filter: ThinkFilter::new("<think>", "</think>"),
            has_text: false,
            finish_reason: None,
            closed: false,
            usage: (0, 0),
        }
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
}

impl StreamParser for AnswerParser {
    fn is_finished(&self) -> bool {
        self.closed || self.finish_reason.is_some()
    }

    fn is_closed(&self) -> bool {
        self.closed
    }

    fn push(&mut self, data: &str) -> Result<AnswerDelta, Error> {
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
        let arguments = self.calls.iter().map(|call| call.arguments.len() + call.name.len()).sum();
        check_limits(self.calls.len(), arguments)?;
        if let Some(reason) = choice["finish_reason"].as_str().filter(|reason| !reason.is_empty()) {
            self.finish_reason = Some(reason.to_owned());
            update.text.push_str(&self.filter_text(ThinkFilter::finish));
        }
        Ok(update)
    }

    /// A tool call whose arguments are not an object fails the reply: a tool that runs with
    /// unintended arguments may do harm.
    fn finish(self) -> Result<Vec<Event>, Error> {
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
            events.push(self.tool_names.call_event(n, call.id, call.name, &call.arguments)?);
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

/// The kind of error of a status other than 2xx.
pub(super) fn status_kind(status: u16) -> ErrorKind {
    match status {
        408 | 504 => ErrorKind::Timeout,
        429 | 503 | 529 => ErrorKind::Busy,
        500.. => ErrorKind::Failed,
        _ => ErrorKind::Rejected,
    }
}

#[cfg(test)]
mod tests;
