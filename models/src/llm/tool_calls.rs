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

    /// The event of call number `n` (from 0). The model chose the server's `name`. A call without
    /// an id gets one.
    ///
    /// Arguments that are not a JSON object fail the reply: a tool that runs with unintended
    /// arguments may do harm.
    pub(super) fn call_event(
        &self,
        n: usize,
        id: String,
        name: String,
        arguments: &str,
    ) -> Result<Event, Error> {
        let own = self.pairs.iter().find(|(known, _)| *known == name);
        let name = own.map_or(name, |(_, own)| own.clone());
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
