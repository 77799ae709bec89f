//! The words of the chat-completions protocol: a question as its JSON, an answer from the pieces of its stream. Pure.

mod messages;

use serde_json::{Map, Value, json};

use self::messages::messages;
use super::{Event, Request, Tool};
use crate::{Error, Kind};

/// The body of a question. `usage`: ask for the number of tokens.
pub(super) fn body(request: &Request, model: &str, usage: bool) -> Value {
    let mut body = Map::new();
    // Servers of one model want no name.
    if !model.is_empty() {
        body.insert("model".into(), model.into());
    }
    body.insert("messages".into(), messages(request).into());
    body.insert("stream".into(), true.into());
    if usage {
        body.insert("stream_options".into(), json!({"include_usage": true}));
    }
    if !request.tools.is_empty() {
        let names = names(&request.tools);
        let tools = request.tools.iter().zip(names).map(|(tool, name)| {
            json!({"type": "function", "function": {"name": name, "description": tool.description, "parameters": schema(tool)}})
        });
        body.insert("tools".into(), tools.collect());
    }
    body.into()
}

/// The names under which the server knows the tools: letters, digits, `_` and `-`, at most 64, each once.
fn names(tools: &[Tool]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(tools.len());
    for tool in tools {
        let name = clean_name(&tool.name);
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

fn clean_name(name: &str) -> String {
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).take(60).collect();
    if name.is_empty() { "tool".into() } else { name }
}

/// An object's schema, whatever the tool was made with.
fn schema(tool: &Tool) -> Value {
    match &tool.parameters {
        Value::Object(schema) if schema.get("type").is_some_and(|kind| kind == "object") => {
            tool.parameters.clone()
        }
        _ => json!({"type": "object", "properties": {}}),
    }
}

/// Calls of one answer, and bytes of their arguments together: a model that makes more has lost its end.
const CALLS: usize = 64;
const ARGUMENTS: usize = 256 << 10;

/// An answer as it comes.
#[derive(Debug)]
pub(super) struct Answer {
    /// (as the server knows it, as the agent does).
    names: Vec<(String, String)>,
    calls: Vec<Call>,
    thoughts: Thoughts,
    spoke: bool,
    reason: Option<String>,
    done: bool,
    usage: (u32, u32),
}

/// A call of a tool, put together from fragments.
#[derive(Debug, Default)]
struct Call {
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

/// What a piece of the stream was.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Words to be spoken.
    pub(super) text: String,
    /// Whether the answer went on: words, or part of a call.
    pub(super) token: bool,
}

impl Answer {
    pub(super) fn new(tools: &[Tool]) -> Self {
        let names = names(tools).into_iter().zip(tools.iter().map(|tool| tool.name.clone())).collect();
        Self {
            names,
            calls: Vec::new(),
            thoughts: Thoughts::default(),
            spoke: false,
            reason: None,
            done: false,
            usage: (0, 0),
        }
    }

    /// Whether its end mark has come.
    pub(super) fn ended(&self) -> bool {
        self.done || self.reason.is_some()
    }

    /// Whether nothing more can come.
    pub(super) fn done(&self) -> bool {
        self.done
    }

    /// Takes an event's data. The error's words are the server's: still to be cleaned of secrets.
    pub(super) fn take(&mut self, data: &str) -> Result<News, Error> {
        let data = data.trim();
        if data == "[DONE]" {
            self.done = true;
            return Ok(News { text: self.say(Thoughts::end), token: false });
        }
        let Ok(piece) = serde_json::from_str::<Value>(data) else {
            return if data.is_empty() {
                Ok(News::default())
            } else {
                Err(Error::new(Kind::Broken, "the server sent something that is no JSON"))
            };
        };
        if let Some(error) = piece.get("error").filter(|error| !error.is_null()) {
            let kind = match error["code"].as_u64().or_else(|| error["status"].as_u64()) {
                Some(code) => status_kind(u16::try_from(code).unwrap_or(500)),
                None => Kind::Broken,
            };
            return Err(Error::new(kind, words_of(&piece)));
        }
        if let Some(usage) = piece.get("usage").filter(|usage| usage.is_object()) {
            let count = |name: &str| usage[name].as_u64().map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX));
            self.usage = (count("prompt_tokens"), count("completion_tokens"));
        }
        let choice = &piece["choices"][0];
        // A server that does not stream sends its whole message.
        let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        let mut news = News::default();
        let text = content(&delta["content"]);
        if !text.is_empty() {
            news.text = self.say(|thoughts| thoughts.push(&text));
            news.token = !news.text.is_empty();
        }
        for fragment in delta["tool_calls"].as_array().into_iter().flatten() {
            news.token = true;
            self.fragment(fragment);
        }
        let arguments: usize = self.calls.iter().map(|call| call.arguments.len() + call.name.len()).sum();
        if self.calls.len() > CALLS || arguments > ARGUMENTS {
            return Err(Error::new(Kind::Broken, "the model's calls of tools do not end"));
        }
        if let Some(reason) = choice["finish_reason"].as_str().filter(|reason| !reason.is_empty()) {
            self.reason = Some(reason.to_owned());
            news.text.push_str(&self.say(Thoughts::end));
        }
        Ok(news)
    }

    fn say(&mut self, words: impl FnOnce(&mut Thoughts) -> String) -> String {
        let text = words(&mut self.thoughts);
        self.spoke |= !text.trim().is_empty();
        text
    }

    fn fragment(&mut self, fragment: &Value) {
        let id = fragment["id"].as_str().unwrap_or_default();
        let function = &fragment["function"];
        let name = function["name"].as_str().unwrap_or_default();
        // Some servers number no calls, or all alike: then a new id with a name begins a new one.
        let index =
            fragment["index"].as_u64().unwrap_or_else(|| self.calls.last().map_or(0, |call| call.index));
        let known = self.calls.iter().rposition(|call| call.index == index);
        let fresh = known.is_none_or(|i| {
            !id.is_empty() && !name.is_empty() && !self.calls[i].id.is_empty() && self.calls[i].id != id
        });
        let i = match known {
            Some(i) if !fresh => i,
            _ => {
                self.calls.push(Call { index, ..Call::default() });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[i];
        if call.id.is_empty() {
            call.id = id.to_owned();
        }
        // Most send the name once, some again with each fragment.
        if call.name != name {
            call.name.push_str(name);
        }
        match &function["arguments"] {
            Value::String(more) => call.arguments.push_str(more),
            Value::Null => {}
            whole => call.arguments = whole.to_string(),
        }
    }

    /// The stream is over: its calls, then its end.
    ///
    /// A call whose arguments are no object fails the answer: run with others than the model meant, a tool may do harm.
    pub(super) fn finish(self) -> Result<Vec<Event>, Error> {
        match self.reason.as_deref() {
            _ if !self.ended() => return Err(Error::new(Kind::Broken, "the stream broke off")),
            Some("content_filter") => {
                return Err(Error::new(Kind::Refused, "the server's content filter stopped the answer"));
            }
            Some("error") => {
                return Err(Error::new(Kind::Broken, "the server stopped the answer with an error"));
            }
            _ => {}
        }
        if !self.spoke && self.calls.is_empty() {
            return Err(Error::new(Kind::Broken, "the answer is empty"));
        }
        let mut events = Vec::with_capacity(self.calls.len() + 1);
        for (n, call) in self.calls.into_iter().enumerate() {
            let name = self
                .names
                .iter()
                .find(|(known, _)| *known == call.name)
                .map_or(call.name, |(_, own)| own.clone());
            let arguments = arguments(&call.arguments).ok_or_else(|| {
                Error::new(
                    Kind::Broken,
                    format!("the model called {name:?} with arguments that are no JSON object"),
                )
            })?;
            let id = if call.id.is_empty() { format!("call_{}", n + 1) } else { call.id };
            events.push(Event::Call { id, name, arguments });
        }
        events.push(Event::End { prompt_tokens: self.usage.0, completion_tokens: self.usage.1 });
        Ok(events)
    }
}

/// Text, or a list of parts of which some are text.
fn content(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// No arguments at all are an empty object; an object written as a string is that object.
fn arguments(text: &str) -> Option<Value> {
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

/// The words of an error's body, in the shapes that servers use.
pub(super) fn words_of(body: &Value) -> String {
    let error = &body["error"];
    [&error["message"], error, &body["message"], &body["detail"]]
        .into_iter()
        .find_map(Value::as_str)
        .unwrap_or("no reason given")
        .to_owned()
}

/// What a status that is no success means.
pub(super) fn status_kind(status: u16) -> Kind {
    match status {
        408 | 504 => Kind::Timeout,
        429 | 503 | 529 => Kind::Busy,
        500.. => Kind::Broken,
        _ => Kind::Refused,
    }
}

/// Leaves out what a model thinks aloud before it answers: `<think>…</think>` at the beginning.
#[derive(Debug, Default)]
enum Thoughts {
    /// Whether it thinks is not told yet.
    #[default]
    Unknown,
    /// The beginning may be that of the mark.
    Maybe(String),
    /// Thinking; the end of what came.
    Inside(String),
    /// Blanks before the answer's first word.
    After,
    /// The answer.
    Outside,
}

impl Thoughts {
    fn push(&mut self, text: &str) -> String {
        const OPEN: &str = "<think>";
        const CLOSE: &str = "</think>";
        let held = match std::mem::replace(self, Self::Outside) {
            Self::Outside => return text.to_owned(),
            Self::Unknown => text.to_owned(),
            Self::Maybe(held) => held + text,
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
                        let keep = (0..=held.len().min(CLOSE.len()))
                            .rev()
                            .find(|n| held.is_char_boundary(held.len() - n))
                            .unwrap_or(0);
                        *self = Self::Inside(held[held.len() - keep..].to_owned());
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
            *self = Self::Maybe(held);
            return String::new();
        }
        held
    }

    /// No more text comes: what was held back was no mark.
    fn end(&mut self) -> String {
        match std::mem::replace(self, Self::Outside) {
            Self::Maybe(held) => held,
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests;
