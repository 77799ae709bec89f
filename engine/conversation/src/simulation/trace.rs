//! The trace of a call: its inputs and outputs as JSON lines, from which it replays
//! ([`crate::simulation::replay`]).
//!
//! The first line is `{"trace":1,"visavis":"0.1.0","conversation":id,"unix_micros":µs,"spec":{…}}`.
//! Each further line is one of two:
//!
//! - `{"at":µs,"input":…,"out":[…]}`: one input with all outputs that it caused; without `out` if
//!   there were none.
//! - `{"dropped":n}`: n inputs are missing here.
//!
//! A request to the LLM is written with the number of items of its history and their digest,
//! because each committed item was already written as an event. No line is longer than
//! [`MAX_LINE_BYTES`].

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::contract::event::HistoryItem;
use crate::contract::id::ConversationId;
use crate::contract::input::{GenerationId, Input};
use crate::contract::output::Output;
use crate::contract::settings::MAX_SECONDS;
use crate::contract::spec::Spec;
use crate::contract::time::Time;
use crate::simulation::strict_json;

/// Version of the trace format.
pub const FORMAT_VERSION: u32 = 1;

/// The longest line in bytes. A single text from a user, a model or a tool is shorter.
pub const MAX_LINE_BYTES: usize = 4 << 20;

/// The reason for a key that occurs twice in an object.
const DUPLICATE_KEY: &str = "is duplicated";

/// Name of the folder of traces in the data folder.
pub const TRACES_FOLDER: &str = "traces";

/// Version of this program.
pub(crate) const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");

/// File name of a conversation's trace.
#[must_use]
pub fn file_name(conversation: ConversationId) -> String {
    format!("{conversation}.jsonl")
}

/// The first line, with its newline. `unix_micros` is the wall clock at the start of the call.
#[must_use]
pub fn header_line(conversation: ConversationId, unix_micros: u64, spec: &Spec) -> String {
    json_line(&Header {
        trace: FORMAT_VERSION,
        visavis: PROGRAM_VERSION.into(),
        conversation,
        unix_micros,
        spec,
    })
}

/// The line of an input and its outputs, with its newline.
#[must_use]
pub fn step_line(at: Time, input: &Input, outputs: &[Output]) -> String {
    json_line(&StepLine { at, input, outputs: outputs.iter().map(TracedOutput).collect() })
}

/// The line, with its newline, that marks `n` missing inputs.
#[must_use]
pub fn dropped_line(n: u64) -> String {
    format!("{{\"dropped\":{n}}}\n")
}

fn json_line(line: &impl Serialize) -> String {
    // Serialization cannot fail here: every key is a string, and the output is in memory.
    let mut text = serde_json::to_string(line).unwrap_or_default();
    text.push('\n');
    text
}

/// An output in its trace form.
pub(crate) fn output_json(output: &Output) -> String {
    serde_json::to_string(&TracedOutput(output)).unwrap_or_default()
}

#[derive(Serialize)]
struct Header<S> {
    trace: u32,
    visavis: String,
    conversation: ConversationId,
    unix_micros: u64,
    spec: S,
}

#[derive(Serialize)]
struct StepLine<'a> {
    at: Time,
    input: &'a Input,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "out")]
    outputs: Vec<TracedOutput<'a>>,
}

struct TracedOutput<'a>(&'a Output);

impl Serialize for TracedOutput<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct TracedLlmRequest {
            #[serde(rename = "step")]
            generation: GenerationId,
            history: HistoryDigest,
            #[serde(rename = "tools")]
            tools_allowed: bool,
            #[serde(rename = "fallback")]
            use_fallback: bool,
            preemptive: bool,
            #[serde(skip_serializing_if = "core::ops::Not::not")]
            may_stay_silent: bool,
        }
        let Output::RequestLlm(request) = self.0 else { return self.0.serialize(serializer) };
        let traced_request = TracedLlmRequest {
            generation: request.generation,
            history: HistoryDigest::from_history(&request.history),
            tools_allowed: request.tools_allowed,
            use_fallback: request.use_fallback,
            preemptive: request.preemptive,
            may_stay_silent: request.may_stay_silent,
        };
        serializer.serialize_newtype_variant("Output", 0, "AskLlm", &traced_request)
    }
}

/// A digest of a history. With the full history in each request, the trace would grow with the
/// square of the call's length.
#[derive(Serialize)]
struct HistoryDigest {
    items: usize,
    digest: String,
}

impl HistoryDigest {
    fn from_history(history: &[Arc<HistoryItem>]) -> Self {
        let mut hash = FnvHasher(0xcbf2_9ce4_8422_2325);
        for item in history {
            // Hashing cannot fail.
            let _ = serde_json::to_writer(&mut hash, item);
        }
        Self { items: history.len(), digest: format!("{:016x}", hash.0) }
    }
}

/// 64-bit FNV-1a (<http://www.isthe.com/chongo/tech/comp/fnv/>): the same in every build and on
/// every machine.
struct FnvHasher(u64);

impl io::Write for FnvHasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An error in a line: the field (empty for the line as a whole) and the reason.
pub(crate) type FieldError = (String, String);

/// The parsed first line.
pub(crate) struct TraceHeader {
    /// Version of the program that wrote the trace.
    pub(crate) program_version: String,
    pub(crate) spec: Spec,
}

/// A parsed further line.
#[allow(clippy::large_enum_variant)] // destructured immediately, and nearly all lines are steps
pub(crate) enum TraceLine<'a> {
    Step { at: Time, input: Input, outputs: Vec<&'a RawValue> },
    Dropped(u64),
}

/// Parses the first line.
pub(crate) fn read_header(text: &str) -> Result<TraceHeader, FieldError> {
    #[derive(Deserialize)]
    struct Version {
        trace: Option<Value>,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)] // validated, not used
    struct Fields<'a> {
        trace: u32,
        visavis: String,
        conversation: ConversationId,
        unix_micros: u64,
        #[serde(borrow)]
        spec: &'a RawValue,
    }
    let version: Version = parse_object(text)?;
    match version.trace {
        None => return Err(("trace".into(), "is missing: the file is not a call trace".into())),
        Some(version) if version == FORMAT_VERSION => {}
        Some(other) => {
            return Err((
                "trace".into(),
                format!("is {other}, but this program reads version {FORMAT_VERSION}"),
            ));
        }
    }
    let fields: Fields<'_> = parse_json(text, "")?;
    let spec: Spec = parse_known_keys(fields.spec.get(), "spec")?;
    spec.validate().map_err(|bad| (format!("spec.{}", bad.field), bad.reason))?;
    Ok(TraceHeader { program_version: fields.visavis, spec })
}

/// Parses a further line.
pub(crate) fn read_line(text: &str) -> Result<TraceLine<'_>, FieldError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields<'a> {
        at: Option<Time>,
        #[serde(borrow)]
        input: Option<&'a RawValue>,
        #[serde(borrow)]
        out: Option<Vec<&'a RawValue>>,
        dropped: Option<u64>,
    }
    let fields: Fields<'_> = parse_object(text)?;
    let missing = |field: &str| (field.to_owned(), "is missing".to_owned());
    match fields {
        Fields { at: None, input: None, out: None, dropped: Some(n) } => Ok(TraceLine::Dropped(n)),
        Fields { dropped: Some(_), .. } => Err(("dropped".into(), "must be the only field".into())),
        Fields { at: None, .. } => Err(missing("at")),
        Fields { input: None, .. } => Err(missing("input")),
        Fields { at: Some(at), input: Some(input), out, .. } => {
            if at.as_seconds() > MAX_SECONDS {
                return Err(("at".into(), "must be at most 10000000 seconds".into()));
            }
            let input = parse_known_keys(input.get(), "input")?;
            Ok(TraceLine::Step { at, input, outputs: out.unwrap_or_default() })
        }
    }
}

/// Parses a line, which must be an object.
fn parse_object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, FieldError> {
    let is_object = text.trim_start().starts_with('{');
    if !is_object && serde_json::from_str::<&RawValue>(text).is_ok() {
        return Err((String::new(), "must be an object".into()));
    }
    parse_json(text, "")
}

/// Parses JSON. An error names the field by its path below `within`.
fn parse_json<'a, T: Deserialize<'a>>(text: &'a str, within: &str) -> Result<T, FieldError> {
    let mut json = serde_json::Deserializer::from_str(text);
    let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        let error = error.into_inner();
        let reason = error.to_string();
        // Each parsed text is a single line, so the line number is useless.
        let reason = reason.split(" at line 1 column ").next().unwrap_or_default();
        // Replaces names of Rust types, which mean nothing to a reader of the message.
        let reason = ["usize", "u64", "u32"].into_iter().fold(
            reason.replace("struct Duration", "a duration {secs, nanos}"),
            |reason, number| {
                reason.replace(
                    &format!("expected {number}"),
                    "expected a whole number that is not negative",
                )
            },
        );
        let reason = reason.as_str();
        if !error.is_data() {
            // Raw values such as the settings are not parsed on the way; a second parse finds the
            // place.
            let path = match strict_json::parse_strict(text.as_bytes()) {
                Err(strict_json::StrictJsonError::InvalidJson { path, .. }) => path,
                _ => String::new(),
            };
            return (
                join_path(within, &path),
                format!("is not valid JSON: {reason} (column {})", error.column()),
            );
        }
        let named = |prefix: &str| reason.strip_prefix(prefix)?.split('`').next();
        // The path already names the field, or ends above it.
        let at = |field| {
            if path.rsplit('.').next() == Some(field) {
                path.clone()
            } else {
                join_path(&path, field)
            }
        };
        let (path, reason) = if let Some(field) = named("missing field `") {
            (join_path(&path, field), "is missing")
        } else if let Some(field) = named("unknown field `") {
            (at(field), "is unknown")
        } else if let Some(field) = named("duplicate field `") {
            (at(field), DUPLICATE_KEY)
        } else {
            (path, reason)
        };
        (join_path(within, &path), reason.to_owned())
    })?;
    json.end().map_err(|error| {
        (
            within.to_owned(),
            format!("is not valid JSON: trailing characters (column {})", error.column()),
        )
    })?;
    Ok(parsed)
}

fn join_path(path: &str, field: &str) -> String {
    match (path, field) {
        ("", one) | (one, "") => one.to_owned(),
        (path, field) => format!("{path}.{field}"),
    }
}

/// Parses a value that contains only the fields of `T`. An unknown key is an error at any depth.
fn parse_known_keys<'a, T: Deserialize<'a> + Serialize>(
    text: &'a str,
    within: &str,
) -> Result<T, FieldError> {
    let parsed: T = parse_json(text, within)?;
    // If it serializes to the same text, it contains nothing unknown.
    if serde_json::to_string(&parsed).is_ok_and(|again| again == text) {
        return Ok(parsed);
    }
    let raw_value = strict_json::parse_strict(text.as_bytes()).map_err(|bad| match bad {
        strict_json::StrictJsonError::InvalidJson { path, error } => {
            (join_path(within, &path), format!("is not valid JSON: {error}"))
        }
        strict_json::StrictJsonError::DuplicateKey { path, .. } => {
            (join_path(within, &path), DUPLICATE_KEY.into())
        }
    })?;
    let known = serde_json::to_value(&parsed).unwrap_or_default();
    match find_unknown_key(&raw_value, &known, within) {
        Some(path) => Err((path, "is unknown".into())),
        None => Ok(parsed),
    }
}

fn find_unknown_key(raw_value: &Value, known: &Value, path: &str) -> Option<String> {
    match (raw_value, known) {
        (Value::Object(raw_value), Value::Object(known)) => {
            raw_value.iter().find_map(|(key, value)| {
                let path = join_path(path, key);
                match known.get(key) {
                    Some(known) => find_unknown_key(value, known, &path),
                    None => Some(path),
                }
            })
        }
        (Value::Array(raw_value), Value::Array(known)) => {
            raw_value.iter().zip(known).enumerate().find_map(|(i, (raw_value, known))| {
                find_unknown_key(raw_value, known, &format!("{path}[{i}]"))
            })
        }
        _ => None,
    }
}

/// Parses a number; null gives NaN, because JSON has no NaN.
pub(crate) fn number_or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f32::NAN))
}
