//! A reply from the events of its stream. Pure.

use std::collections::HashSet;

use serde_json::Value;

use super::super::failure::Failure;
use super::super::stream::{
    AnswerDelta, StreamParser, cut_off_call, early_end, filtered, parse_event,
};
use super::super::tool_calls::{ToolNames, Usage, check_limits};
use crate::Error;
use crate::llm::{Event, Tool};

/// Parser of a streamed reply. Unknown events, items and fields are ignored.
#[derive(Debug)]
pub(super) struct ResponseParser {
    /// Name of the vendor in errors.
    vendor: &'static str,
    tool_names: ToolNames,
    /// For errors.
    model: String,
    /// Places of the messages that are no part of the reply.
    comments: HashSet<u64>,
    calls: Vec<ToolCall>,
    /// Bytes of the arguments that have arrived in fragments.
    argument_bytes: usize,
    has_text: bool,
    /// Whether the limit of tokens ended the reply, or its content filter. `None` until the end.
    end: Option<End>,
    usage: Usage,
}

/// A complete tool call.
#[derive(Debug)]
struct ToolCall {
    /// Place of its item.
    place: u64,
    id: String,
    name: String,
    arguments: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    Limit,
    Filter,
}

impl ResponseParser {
    /// A parser of the reply of `model` to a request with `tools`.
    pub(super) fn new(vendor: &'static str, tools: &[Tool], model: &str) -> Self {
        Self {
            vendor,
            tool_names: ToolNames::new(tools),
            model: model.to_owned(),
            comments: HashSet::new(),
            calls: Vec::new(),
            argument_bytes: 0,
            has_text: false,
            end: None,
            usage: Usage::default(),
        }
    }

    fn start_item(&mut self, place: u64, item: &Value) {
        // What a model says about its own work.
        if item["phase"] == "commentary" {
            self.comments.insert(place);
        }
    }

    fn add_text(&mut self, place: u64, text: &Value) -> AnswerDelta {
        let text = text.as_str().filter(|_| !self.comments.contains(&place)).unwrap_or_default();
        self.has_text |= !text.trim().is_empty();
        AnswerDelta::of_text(text.to_owned())
    }

    fn end_item(&mut self, place: u64, item: &Value) -> Result<AnswerDelta, Error> {
        if item["type"] != "function_call" || self.calls.iter().any(|call| call.place == place) {
            return Ok(AnswerDelta::default());
        }
        let field = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        let (id, name) = (field("call_id"), field("name"));
        self.calls.push(ToolCall { place, id, name, arguments: field("arguments") });
        self.check_calls()?;
        Ok(AnswerDelta { progressed: true, ..AnswerDelta::default() })
    }

    fn add_argument_bytes(&mut self, fragment: &Value) -> Result<AnswerDelta, Error> {
        self.argument_bytes += fragment.as_str().map_or(0, str::len);
        check_limits(self.calls.len(), self.argument_bytes)?;
        Ok(AnswerDelta { progressed: true, ..AnswerDelta::default() })
    }

    fn check_calls(&self) -> Result<(), Error> {
        let bytes = self.calls.iter().map(|call| call.arguments.len() + call.name.len());
        check_limits(self.calls.len(), bytes.sum())
    }

    /// The end of the reply. A server that does not stream sends all of it here.
    fn end(&mut self, response: &Value) -> Result<AnswerDelta, Error> {
        let mut rest = AnswerDelta::default();
        let nothing_yet = !self.has_text;
        for (place, item) in (0..).zip(response["output"].as_array().into_iter().flatten()) {
            self.start_item(place, item);
            for part in item["content"].as_array().into_iter().flatten() {
                if nothing_yet && matches!(part["type"].as_str(), Some("output_text" | "refusal")) {
                    let words = if part["text"].is_string() { "text" } else { "refusal" };
                    rest.append(self.add_text(place, &part[words]));
                }
            }
            rest.append(self.end_item(place, item)?);
        }
        let count = |value: &Value| value.as_u64().unwrap_or(0);
        let usage = &response["usage"];
        self.usage = Usage {
            prompt: count(&usage["input_tokens"]),
            cached: count(&usage["input_tokens_details"]["cached_tokens"]),
            completion: count(&usage["output_tokens"]),
        };
        self.end = Some(match response["incomplete_details"]["reason"].as_str() {
            Some("content_filter") => End::Filter,
            Some(_) => End::Limit,
            None => End::Complete,
        });
        Ok(rest)
    }

    fn fail(&self, data: &Value) -> Error {
        let failure = Failure::of_event(self.vendor, data);
        failure.log();
        failure.into_error(&self.model)
    }
}

impl StreamParser for ResponseParser {
    fn push(&mut self, data: &str) -> Result<AnswerDelta, Error> {
        // Some proxies end a stream as that of the other protocol.
        if data.trim() == "[DONE]" {
            return Ok(AnswerDelta::default());
        }
        let Some(event) = parse_event(self.vendor, data)? else {
            return Ok(AnswerDelta::default());
        };
        let place = event["output_index"].as_u64().unwrap_or_default();
        match event["type"].as_str() {
            Some("response.output_item.added") => self.start_item(place, &event["item"]),
            Some("response.output_text.delta" | "response.refusal.delta") => {
                return Ok(self.add_text(place, &event["delta"]));
            }
            Some("response.function_call_arguments.delta") => {
                return self.add_argument_bytes(&event["delta"]);
            }
            Some("response.output_item.done") => return self.end_item(place, &event["item"]),
            Some("response.completed" | "response.incomplete") => {
                return self.end(&event["response"]);
            }
            Some("response.failed") => return Err(self.fail(&event["response"])),
            Some("error") => return Err(self.fail(&event)),
            None if event["error"].is_object() => return Err(self.fail(&event)),
            None if event["object"] == "response" => return self.end(&event),
            _ => {}
        }
        Ok(AnswerDelta::default())
    }

    fn is_finished(&self) -> bool {
        self.end.is_some()
    }

    fn is_closed(&self) -> bool {
        self.end.is_some()
    }

    fn finish(&mut self) -> Result<Vec<Event>, Error> {
        match self.end {
            None => return Err(early_end()),
            Some(End::Filter) => return Err(filtered()),
            Some(End::Limit)
                if self.calls.last().is_some_and(|call| call.arguments.trim().is_empty()) =>
            {
                return Err(cut_off_call());
            }
            _ => {}
        }
        let calls = std::mem::take(&mut self.calls);
        let calls = calls.into_iter().map(|call| (call.id, call.name, call.arguments));
        self.tool_names.reply_events(self.has_text, calls, self.usage)
    }
}

#[cfg(test)]
mod tests;
