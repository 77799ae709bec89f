//! The chat-completions protocol: a request as JSON, and a reply from the chunks of its stream.
//! Pure.

mod messages;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use self::messages::messages;
use super::driver::TOOLS;
use super::failure::Failure;
use super::stream::{
    AnswerDelta, Repetition, StreamParser, cut_off_call, early_end, filtered, parse_event,
};
use super::think_filter::ThinkFilter;
use super::thought_signatures::ThoughtSignatures;
use super::tool_calls::{ToolNames, Usage, check_limits, parameters_schema, parse_arguments};
use super::{Event, Request, Tool};
use crate::{Error, ErrorKind};

/// Requests the token counts.
pub(super) const STREAM_OPTIONS: &str = "stream_options";

/// The part of a request's body that is the same for all servers, without the parameters that are
/// `omitted`. `signing_model` as in [`messages`].
pub(super) fn request_body(
    request: &Request,
    model: &str,
    omitted: &[&'static str],
    signatures: &ThoughtSignatures,
    signing_model: &str,
) -> Map<String, Value> {
    let mut body = Map::new();
    // Servers with a single model accept no name.
    if !model.is_empty() {
        body.insert("model".into(), model.into());
    }
    body.insert("messages".into(), messages(request, signatures, signing_model).into());
    body.insert("stream".into(), true.into());
    if !omitted.contains(&STREAM_OPTIONS) {
        body.insert(STREAM_OPTIONS.into(), json!({"include_usage": true}));
    }
    if !request.tools.is_empty() && !omitted.contains(&TOOLS) {
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
    body
}

/// Parser of a streamed reply.
#[derive(Debug)]
pub(super) struct AnswerParser {
    /// Name of the vendor in errors.
    vendor: &'static str,
    tool_names: ToolNames,
    signatures: Arc<ThoughtSignatures>,
    calls: Vec<PartialToolCall>,
    think_filter: ThinkFilter,
    has_text: bool,
    finish_reason: Option<String>,
    closed: bool,
    usage: Usage,
    repetition: Option<Repetition>,
}

/// A tool call, assembled from fragments.
#[derive(Debug, Default)]
struct PartialToolCall {
    index: u64,
    id: String,
    name: String,
    arguments: String,
    /// Signature of the thoughts before the call.
    signature: String,
}

impl AnswerParser {
    /// A parser of a reply of `vendor` to a request with `tools`. It adds to `signatures`.
    pub(super) fn new(
        vendor: &'static str,
        tools: &[Tool],
        signatures: Arc<ThoughtSignatures>,
    ) -> Self {
        Self {
            vendor,
            tool_names: ToolNames::new(tools),
            signatures,
            calls: Vec::new(),
            think_filter: ThinkFilter::new("<think>", "</think>"),
            has_text: false,
            finish_reason: None,
            closed: false,
            usage: Usage::default(),
            repetition: None,
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
        let arguments = match &function["arguments"] {
            Value::String(more) => more.clone(),
            Value::Null => String::new(),
            whole => whole.to_string(),
        };
        // Some servers do not number the calls, or give all the same number. Then a new call begins
        // with a new id, or, without ids, with a name after complete arguments.
        let index = fragment["index"]
            .as_u64()
            .unwrap_or_else(|| self.calls.last().map_or(0, |call| call.index));
        let known = self.calls.iter().rposition(|call| call.index == index);
        let fresh = known.is_none_or(|i| {
            let call = &self.calls[i];
            let another = !id.is_empty() && !call.id.is_empty() && call.id != id;
            let complete = id.is_empty()
                && !arguments.is_empty()
                && !call.arguments.trim().is_empty()
                && parse_arguments(&call.arguments).is_some();
            !name.is_empty() && (another || complete)
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
        if function["arguments"].is_object() {
            call.arguments = arguments;
        } else {
            call.arguments.push_str(&arguments);
        }
        if let Some(signature) = fragment["extra_content"]["google"]["thought_signature"].as_str() {
            signature.clone_into(&mut call.signature);
        }
    }

    fn add_usage(&mut self, chunk: &Value) {
        let usage = [&chunk["usage"], &chunk["x_groq"]["usage"]];
        let Some(usage) = usage.into_iter().find(|usage| usage.is_object()) else { return };
        let count = |value: &Value| value.as_u64().unwrap_or(0);
        let cached = &usage["prompt_tokens_details"]["cached_tokens"];
        self.usage = Usage {
            prompt: count(&usage["prompt_tokens"]),
            // The second name is that of DeepSeek.
            cached: count(cached).max(count(&usage["prompt_cache_hit_tokens"])),
            completion: count(&usage["completion_tokens"]),
        };
    }

    fn add_choice(&mut self, choice: &Value) -> Result<AnswerDelta, Error> {
        // A server that does not stream sends its whole message.
        let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        let mut update = AnswerDelta::default();
        for words in [&delta["content"], &delta["refusal"]] {
            let text = content_text(words);
            if !text.is_empty() {
                let text = self.filter_text(|thoughts| thoughts.push(&text));
                update.append(AnswerDelta::of_text(text));
            }
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
}

impl StreamParser for AnswerParser {
    fn is_finished(&self) -> bool {
        self.closed || self.finish_reason.is_some()
    }

    fn is_closed(&self) -> bool {
        self.closed
    }

    fn push(&mut self, data: &str) -> Result<AnswerDelta, Error> {
        if data.trim() == "[DONE]" {
            self.closed = true;
            let text = self.filter_text(ThinkFilter::finish);
            return Ok(AnswerDelta { text, progressed: false });
        }
        let Some(chunk) = parse_event(self.vendor, data)? else {
            return Ok(AnswerDelta::default());
        };
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            let failure = Failure::of_event(self.vendor, &chunk);
            if failure.is_wrong_tool_call() && !self.has_text {
                self.repetition = Some(Repetition::WithoutTools);
            }
            failure.log();
            return Err(failure.into_error(chunk["model"].as_str().unwrap_or_default()));
        }
        self.add_usage(&chunk);
        self.add_choice(&chunk["choices"][0])
    }

    fn finish(&mut self) -> Result<Vec<Event>, Error> {
        match self.finish_reason.as_deref() {
            _ if !self.is_finished() => return Err(early_end()),
            Some("content_filter") => return Err(filtered()),
            Some("error") => {
                return Err(Error::new(
                    ErrorKind::Failed,
                    "the server stopped the answer with an error",
                ));
            }
            Some("length")
                if self.calls.last().is_some_and(|call| call.arguments.trim().is_empty()) =>
            {
                return Err(cut_off_call());
            }
            _ => {}
        }
        let calls = std::mem::take(&mut self.calls);
        let signatures: Vec<String> = calls.iter().map(|call| call.signature.clone()).collect();
        let calls = calls.into_iter().map(|call| (call.id, call.name, call.arguments));
        let events = self.tool_names.reply_events(self.has_text, calls, self.usage)?;
        for (event, signature) in events.iter().zip(&signatures) {
            if let Event::ToolCall { name, arguments, .. } = event {
                self.signatures.remember(name, arguments, signature);
            }
        }
        Ok(events)
    }

    fn repetition(&self) -> Option<Repetition> {
        self.repetition
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

#[cfg(test)]
mod tests;
