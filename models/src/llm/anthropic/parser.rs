//! A reply from the events of its stream. Pure.

use serde_json::Value;

use super::super::failure::Failure;
use super::super::stream::{AnswerDelta, StreamParser, cut_off_call, early_end, parse_event};
use super::super::think_filter::ThinkFilter;
use super::super::tool_calls::{self, ToolNames, check_limits};
use super::VENDOR;
use crate::llm::{Event, Tool};
use crate::{Error, ErrorKind};

/// Parser of a streamed reply. Unknown events, content blocks and fields are ignored.
#[derive(Debug)]
pub(super) struct MessageParser {
    tool_names: ToolNames,
    /// For errors.
    model: String,
    /// The text block that is open: its index, and the filter of its thoughts.
    text_block: Option<(u64, ThinkFilter)>,
    calls: Vec<PartialToolCall>,
    has_text: bool,
    stop_reason: Option<String>,
    closed: bool,
    usage: Usage,
}

/// A tool call, assembled from fragments.
#[derive(Debug)]
struct PartialToolCall {
    /// Index of its content block.
    index: u64,
    id: String,
    name: String,
    /// Arguments in the start of the block; servers that do not send fragments fill them.
    whole_input: Value,
    /// The fragments so far.
    arguments: String,
}

impl PartialToolCall {
    /// The arguments as JSON; empty if the server sent none.
    fn arguments(&self) -> String {
        let whole = self.whole_input.as_object().is_some_and(|input| !input.is_empty());
        if whole && self.arguments.trim().is_empty() {
            self.whole_input.to_string()
        } else {
            self.arguments.clone()
        }
    }
}

/// Tokens. The prompt's are counted in three parts.
#[derive(Debug, Default)]
struct Usage {
    input: u64,
    cache_creation: u64,
    cache_read: u64,
    output: u64,
}

impl Usage {
    /// Takes the counts of an event, which are cumulative.
    fn update(&mut self, usage: &Value) {
        let take = |name: &str, count: &mut u64| {
            if let Some(n) = usage[name].as_u64() {
                *count = n;
            }
        };
        take("input_tokens", &mut self.input);
        take("cache_creation_input_tokens", &mut self.cache_creation);
        take("cache_read_input_tokens", &mut self.cache_read);
        take("output_tokens", &mut self.output);
    }

    fn total(&self) -> tool_calls::Usage {
        tool_calls::Usage {
            prompt: self.input.saturating_add(self.cache_creation).saturating_add(self.cache_read),
            cached: self.cache_read,
            completion: self.output,
        }
    }
}

impl MessageParser {
    /// A parser of the reply of `model` to a request with `tools`.
    pub(super) fn new(tools: &[Tool], model: &str) -> Self {
        Self {
            tool_names: ToolNames::new(tools),
            model: model.to_owned(),
            text_block: None,
            calls: Vec::new(),
            has_text: false,
            stop_reason: None,
            closed: false,
            usage: Usage::default(),
        }
    }

    fn start_block(&mut self, index: u64, block: &Value) -> Result<AnswerDelta, Error> {
        let mut text = self.end_text_block();
        let mut progressed = false;
        match block["type"].as_str() {
            Some("text") => {
                text += &self.add_text(index, block["text"].as_str().unwrap_or_default());
            }
            Some("tool_use") => {
                let field = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
                self.calls.push(PartialToolCall {
                    index,
                    id: field("id"),
                    name: field("name"),
                    whole_input: block["input"].clone(),
                    arguments: String::new(),
                });
                self.check_calls()?;
                progressed = true;
            }
            _ => {}
        }
        Ok(AnswerDelta { progressed: progressed || !text.is_empty(), text })
    }

    fn add_delta(&mut self, index: u64, delta: &Value) -> Result<AnswerDelta, Error> {
        let mut update = AnswerDelta::default();
        match delta["type"].as_str() {
            Some("text_delta") => {
                let text = self.add_text(index, delta["text"].as_str().unwrap_or_default());
                update = AnswerDelta::of_text(text);
            }
            Some("input_json_delta") => {
                if let Some(call) = self.calls.iter_mut().rfind(|call| call.index == index) {
                    call.arguments.push_str(delta["partial_json"].as_str().unwrap_or_default());
                    update.progressed = true;
                }
                self.check_calls()?;
            }
            _ => {}
        }
        Ok(update)
    }

    fn add_text(&mut self, index: u64, text: &str) -> String {
        let mut words = String::new();
        if self.text_block.as_ref().is_none_or(|(open, _)| *open != index) {
            words = self.end_text_block();
            // Some models with tools write their thoughts at the start of a block.
            self.text_block = Some((index, ThinkFilter::new("<thinking>", "</thinking>")));
        }
        if let Some((_, filter)) = self.text_block.as_mut().filter(|_| !text.is_empty()) {
            words += &filter.push(text);
        }
        self.has_text |= !words.trim().is_empty();
        words
    }

    /// Ends the open text block; returns text that the filter held back.
    fn end_text_block(&mut self) -> String {
        let words = self.text_block.take().map_or_else(String::new, |(_, mut f)| f.finish());
        self.has_text |= !words.trim().is_empty();
        words
    }

    fn check_calls(&self) -> Result<(), Error> {
        let bytes = self
            .calls
            .iter()
            .map(|call| call.arguments.len() + call.name.len())
            .fold(0, usize::saturating_add);
        check_limits(self.calls.len(), bytes)
    }

    fn stop(&mut self, reason: &Value) -> String {
        let Some(reason) = reason.as_str().filter(|reason| !reason.is_empty()) else {
            return String::new();
        };
        self.stop_reason = Some(reason.to_owned());
        self.end_text_block()
    }

    /// A whole message, from a server that does not stream.
    fn add_message(&mut self, message: &Value) -> Result<AnswerDelta, Error> {
        let mut whole = AnswerDelta::default();
        for (index, block) in (0..).zip(message["content"].as_array().into_iter().flatten()) {
            whole.text += &self.start_block(index, block)?.text;
        }
        whole.text += &self.end_text_block();
        whole.text += &self.stop(&message["stop_reason"]);
        self.usage.update(&message["usage"]);
        self.closed = true;
        whole.progressed = true;
        Ok(whole)
    }
}

impl StreamParser for MessageParser {
    fn push(&mut self, data: &str) -> Result<AnswerDelta, Error> {
        let Some(event) = parse_event(VENDOR, data)? else {
            return Ok(AnswerDelta::default());
        };
        let index = || event["index"].as_u64().unwrap_or_default();
        match event["type"].as_str() {
            Some("message_start") => self.usage.update(&event["message"]["usage"]),
            Some("content_block_start") => {
                return self.start_block(index(), &event["content_block"]);
            }
            Some("content_block_delta") => return self.add_delta(index(), &event["delta"]),
            Some("content_block_stop") => {
                let open = self.text_block.as_ref().map(|(open, _)| *open);
                let text =
                    if open == Some(index()) { self.end_text_block() } else { String::new() };
                return Ok(AnswerDelta::of_text(text));
            }
            Some("message_delta") => {
                self.usage.update(&event["usage"]);
                return Ok(AnswerDelta::of_text(self.stop(&event["delta"]["stop_reason"])));
            }
            Some("message_stop") => {
                self.closed = true;
                return Ok(AnswerDelta::of_text(self.end_text_block()));
            }
            Some("error") => {
                let failure = Failure::of_event(VENDOR, &event);
                failure.log();
                return Err(failure.into_error(&self.model));
            }
            Some("message") => return self.add_message(&event),
            _ => {}
        }
        Ok(AnswerDelta::default())
    }

    fn is_finished(&self) -> bool {
        self.closed || self.stop_reason.is_some()
    }

    fn is_closed(&self) -> bool {
        self.closed
    }

    fn finish(&mut self) -> Result<Vec<Event>, Error> {
        if !self.is_finished() {
            return Err(early_end());
        }
        match self.stop_reason.as_deref() {
            Some("refusal") => {
                return Err(Error::new(ErrorKind::Rejected, "the model declined to answer"));
            }
            // Missing arguments of the last call may be those that the limit cut off.
            Some("max_tokens" | "model_context_window_exceeded")
                if self.calls.last().is_some_and(|call| call.arguments().trim().is_empty()) =>
            {
                return Err(cut_off_call());
            }
            _ => {}
        }
        let calls = std::mem::take(&mut self.calls).into_iter().map(|call| {
            let arguments = call.arguments();
            (call.id, call.name, arguments)
        });
        self.tool_names.reply_events(self.has_text, calls, self.usage.total())
    }
}

#[cfg(test)]
mod tests;
