//! Tools and their calls in the form that the servers of all protocols accept.

use serde_json::{Value, json};

use super::{Event, Tool};
use crate::{Error, ErrorKind};

/// The names under which a server knows the tools of a request.
#[derive(Debug)]
pub(super) struct ToolNames {
    /// Pairs: the server's name of a tool, and the agent's.
    pairs: Vec<(String, String)>,
}

impl ToolNames {
    pub(super) fn new(tools: &[Tool]) -> Self {
        let names = server_tool_names(tools).into_iter();
        Self { pairs: names.zip(tools.iter().map(|tool| tool.name.clone())).collect() }
    }

    /// The server's names, in the order of the tools.
    pub(super) fn of_server(&self) -> impl Iterator<Item = &str> {
        self.pairs.iter().map(|(name, _)| name.as_str())
    }

    /// The agent's name of the tool that the server knows as `name`.
    pub(super) fn of_agent<'a>(&'a self, name: &'a str) -> &'a str {
        self.pairs.iter().find(|(known, _)| known == name).map_or(name, |(_, own)| own)
    }

    /// The events of a complete reply: its calls, as (id, server's name, arguments as JSON), and
    /// its end.
    ///
    /// Arguments that are not a JSON object fail the reply: a tool that runs with unintended
    /// arguments may do harm.
    pub(super) fn reply_events(
        &self,
        has_text: bool,
        calls: impl IntoIterator<Item = (String, String, String)>,
        usage: Usage,
    ) -> Result<Vec<Event>, Error> {
        let calls = (0..).zip(calls);
        let mut events = calls
            .map(|(n, (id, name, arguments))| self.call_event(n, id, &name, &arguments))
            .collect::<Result<Vec<Event>, Error>>()?;
        if !has_text && events.is_empty() {
            return Err(Error::new(ErrorKind::Failed, "the answer is empty"));
        }
        events.push(usage.end());
        Ok(events)
    }

    /// The event of call number `n` (from 0). A call without an id gets one.
    fn call_event(
        &self,
        n: usize,
        id: String,
        name: &str,
        arguments: &str,
    ) -> Result<Event, Error> {
        let name = self.of_agent(name).to_owned();
        let arguments = parse_arguments(arguments).ok_or_else(|| {
            Error::new(
                ErrorKind::Failed,
                format!("the model called {name:?} with arguments that are not a JSON object"),
            )
        })?;
        let id = if id.is_empty() { format!("call_{}", n + 1) } else { id };
        Ok(Event::ToolCall { id, name, arguments })
    }
}

/// Tokens of a reply, 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Tokens of the prompt, with the cached ones.
    pub(super) prompt: u64,
    /// Tokens of the prompt that the server had cached.
    pub(super) cached: u64,
    /// Tokens of the reply, with those of its thoughts.
    pub(super) completion: u64,
}

impl Usage {
    fn end(self) -> Event {
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Event::End {
            prompt_tokens: count(self.prompt),
            cached_tokens: count(self.cached),
            completion_tokens: count(self.completion),
        }
    }
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

/// `name` with only the characters that servers accept.
pub(super) fn sanitize_tool_name(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' })
        .take(60)
        .collect();
    if name.is_empty() { "tool".into() } else { name }
}

/// The schema of an object, even if the tool's own schema is none.
pub(super) fn parameters_schema(tool: &Tool) -> Value {
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

/// Checks the number of tool calls of a reply, and of bytes in their names and arguments.
pub(super) fn check_limits(calls: usize, bytes: usize) -> Result<(), Error> {
    if calls > MAX_TOOL_CALLS || bytes > MAX_ARGUMENT_BYTES {
        return Err(Error::new(ErrorKind::Failed, "the model's tool calls exceed the limit"));
    }
    Ok(())
}

/// Missing arguments are an empty object. An object in a string is that object.
pub(super) fn parse_arguments(text: &str) -> Option<Value> {
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
