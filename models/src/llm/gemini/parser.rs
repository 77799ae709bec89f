//! A reply from the chunks of its stream. Pure.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::super::failure::Failure;
use super::super::stream::{AnswerDelta, Repetition, StreamParser, early_end, parse_event};
use super::super::thought_signatures::ThoughtSignatures;
use super::super::tool_calls::{ToolNames, Usage, check_limits};
use super::VENDOR;
use crate::llm::{Event, Tool};
use crate::{Error, ErrorKind};

/// Reasons of a reply that a filter stopped.
const FILTERS: [&str; 8] = [
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "MODEL_ARMOR",
];

/// Reasons of a reply that may be right when it is requested again.
const MISTAKES: [&str; 3] =
    ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"];

/// Parser of a streamed reply. Unknown parts and fields are ignored. The stream has no end mark but
/// the reason in its last chunk.
#[derive(Debug)]
pub(super) struct ContentParser {
    tool_names: ToolNames,
    /// For errors.
    model: String,
    signatures: Arc<ThoughtSignatures>,
    calls: Vec<ToolCall>,
    has_text: bool,
    finish_reason: Option<String>,
    has_usage: bool,
    usage: Usage,
}

/// A tool call, which arrives whole.
#[derive(Debug)]
struct ToolCall {
    id: String,
    name: String,
    arguments: String,
}

impl ContentParser {
    /// A parser of the reply of `model` to a request with `tools`. It adds to `signatures`.
    pub(super) fn new(tools: &[Tool], model: &str, signatures: Arc<ThoughtSignatures>) -> Self {
        Self {
            tool_names: ToolNames::new(tools),
            model: model.to_owned(),
            signatures,
            calls: Vec::new(),
            has_text: false,
            finish_reason: None,
            has_usage: false,
            usage: Usage::default(),
        }
    }

    fn add_chunk(&mut self, chunk: &Value) -> Result<AnswerDelta, Error> {
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            let failure = Failure::of_event(VENDOR, chunk);
            failure.log();
            return Err(failure.into_error(&self.model));
        }
        if let Some(reason) = chunk["promptFeedback"]["blockReason"].as_str() {
            let reason = reason.to_lowercase().replace('_', " ");
            let message = format!("Google's filter blocked the request ({reason})");
            return Err(Error::new(ErrorKind::Rejected, message));
        }
        let mut update = AnswerDelta::default();
        let candidate = &chunk["candidates"][0];
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            update.append(self.add_part(part)?);
        }
        if let Some(reason) = candidate["finishReason"].as_str() {
            self.finish_reason = Some(reason.to_owned());
        }
        self.add_usage(&chunk["usageMetadata"]);
        Ok(update)
    }

    fn add_part(&mut self, part: &Value) -> Result<AnswerDelta, Error> {
        if part["thought"] == true {
            return Ok(AnswerDelta::default());
        }
        if let Some(call) = part["functionCall"].as_object() {
            let field = |name: &str| call.get(name).and_then(Value::as_str).unwrap_or_default();
            let arguments = call.get("args").cloned().unwrap_or_else(|| Value::Object(Map::new()));
            let name = field("name").to_owned();
            if let Some(signature) = part["thoughtSignature"].as_str() {
                let tool = self.tool_names.of_agent(&name);
                self.signatures.remember(tool, &arguments, signature);
            }
            let (id, arguments) = (field("id").to_owned(), arguments.to_string());
            self.calls.push(ToolCall { id, name, arguments });
            let bytes = self.calls.iter().map(|call| call.arguments.len() + call.name.len());
            check_limits(self.calls.len(), bytes.sum())?;
            return Ok(AnswerDelta { progressed: true, ..AnswerDelta::default() });
        }
        let text = part["text"].as_str().unwrap_or_default();
        self.has_text |= !text.trim().is_empty();
        Ok(AnswerDelta::of_text(text.to_owned()))
    }

    /// Takes the counts of a chunk, which are cumulative.
    fn add_usage(&mut self, usage: &Value) {
        if !usage.is_object() {
            return;
        }
        let count = |name: &str| usage[name].as_u64().unwrap_or(0);
        self.has_usage = true;
        self.usage = Usage {
            prompt: count("promptTokenCount"),
            cached: count("cachedContentTokenCount"),
            completion: count("candidatesTokenCount").saturating_add(count("thoughtsTokenCount")),
        };
    }
}

impl StreamParser for ContentParser {
    fn push(&mut self, data: &str) -> Result<AnswerDelta, Error> {
        let Some(event) = parse_event(VENDOR, data)? else {
            return Ok(AnswerDelta::default());
        };
        let mut update = AnswerDelta::default();
        // A server that does not stream sends a list of chunks.
        let chunks = event.as_array().map_or(std::slice::from_ref(&event), Vec::as_slice);
        for chunk in chunks {
            update.append(self.add_chunk(chunk)?);
        }
        Ok(update)
    }

    fn is_finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    fn is_closed(&self) -> bool {
        self.finish_reason.is_some() && self.has_usage
    }

    fn finish(&mut self) -> Result<Vec<Event>, Error> {
        let Some(reason) = self.finish_reason.as_deref() else { return Err(early_end()) };
        if FILTERS.contains(&reason) {
            let reason = reason.to_lowercase().replace('_', " ");
            let message = format!("Google's filter stopped the answer ({reason})");
            return Err(Error::new(ErrorKind::Rejected, message));
        }
        if MISTAKES.contains(&reason) {
            return Err(Error::new(ErrorKind::Failed, "the model called a tool wrongly"));
        }
        let calls = std::mem::take(&mut self.calls);
        let calls = calls.into_iter().map(|call| (call.id, call.name, call.arguments));
        self.tool_names.reply_events(self.has_text, calls, self.usage)
    }

    fn repetition(&self) -> Option<Repetition> {
        let reason = self.finish_reason.as_deref().filter(|_| !self.has_text)?;
        MISTAKES.contains(&reason).then_some(Repetition::Same)
    }
}

#[cfg(test)]
mod tests;
