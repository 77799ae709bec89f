//! Reads JSON field by field. Each error contains the path of its field.

use core::time::Duration;

use serde_json::{Map, Value};

use crate::contract::settings::{MAX_SECONDS, SpokenMessage};
use crate::simulation::strict_json::to_single_line;

/// A scenario is malformed: the field and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct ScenarioError {
    /// Path of the field, such as `user[1].from`; `file` for the file as a whole.
    pub field: String,
    /// The reason.
    pub reason: String,
}

impl ScenarioError {
    pub(crate) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        let field = to_single_line(field.into());
        // The key is an empty string.
        let field = if field.is_empty() { "\"\"".into() } else { field };
        Self { field, reason: to_single_line(reason.into()) }
    }
}

type ParseResult<T> = Result<T, ScenarioError>;

/// A JSON object with its path.
pub(crate) struct ObjectReader<'a> {
    prefix: String,
    pub(crate) map: &'a Map<String, Value>,
}

impl<'a> ObjectReader<'a> {
    pub(crate) fn new(path: &str, value: &'a Value) -> ParseResult<Self> {
        let field = if path.is_empty() { "file" } else { path };
        let map =
            value.as_object().ok_or_else(|| ScenarioError::new(field, "must be an object"))?;
        Ok(Self { prefix: path.to_owned(), map })
    }

    pub(crate) fn path(&self, key: &str) -> String {
        if self.prefix.is_empty() { key.to_owned() } else { format!("{}.{key}", self.prefix) }
    }

    pub(crate) fn reject_unknown_keys(&self, known: &[&str]) -> ParseResult<()> {
        match self.map.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(ScenarioError::new(self.path(key), "is unknown")),
            None => Ok(()),
        }
    }

    pub(crate) fn contains_key(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    pub(crate) fn missing_error(&self, key: &str) -> ScenarioError {
        ScenarioError::new(self.path(key), "is missing")
    }

    pub(crate) fn text(&self, key: &str) -> ParseResult<Option<String>> {
        let text = |value: &Value| {
            value
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| ScenarioError::new(self.path(key), "must be a string"))
        };
        self.map.get(key).map(text).transpose()
    }

    pub(crate) fn required_text(&self, key: &str) -> ParseResult<String> {
        self.text(key)?.ok_or_else(|| self.missing_error(key))
    }

    pub(crate) fn one_of(
        &self,
        key: &str,
        known: &[&'static str],
    ) -> ParseResult<Option<&'static str>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let found = known.iter().find(|word| **word == text).copied();
        found.map(Some).ok_or_else(|| {
            ScenarioError::new(self.path(key), format!("must be {}", known.join(" or ")))
        })
    }

    pub(crate) fn flag(&self, key: &str) -> ParseResult<Option<bool>> {
        let flag = |value: &Value| {
            value
                .as_bool()
                .ok_or_else(|| ScenarioError::new(self.path(key), "must be true or false"))
        };
        self.map.get(key).map(flag).transpose()
    }

    pub(crate) fn number(&self, key: &str) -> ParseResult<Option<f64>> {
        let number = |value: &Value| {
            value.as_f64().ok_or_else(|| ScenarioError::new(self.path(key), "must be a number"))
        };
        self.map.get(key).map(number).transpose()
    }

    pub(crate) fn time(&self, key: &str) -> ParseResult<Option<Duration>> {
        self.map.get(key).map(|value| parse_time(&self.path(key), value)).transpose()
    }

    pub(crate) fn required_time(&self, key: &str) -> ParseResult<Duration> {
        self.time(key)?.ok_or_else(|| self.missing_error(key))
    }

    pub(crate) fn object(&self, key: &str) -> ParseResult<Option<ObjectReader<'a>>> {
        self.map.get(key).map(|value| ObjectReader::new(&self.path(key), value)).transpose()
    }

    pub(crate) fn list(&self, key: &str) -> ParseResult<Vec<ObjectReader<'a>>> {
        let Some(value) = self.map.get(key) else { return Ok(Vec::new()) };
        let list =
            value.as_array().ok_or_else(|| ScenarioError::new(self.path(key), "must be a list"))?;
        let item =
            |(index, value)| ObjectReader::new(&format!("{}[{index}]", self.path(key)), value);
        list.iter().enumerate().map(item).collect()
    }

    /// Parses `{say, audio}` (with `wait` if allowed) or null.
    pub(crate) fn message(&self, key: &str, wait: bool) -> ParseResult<Option<SpokenMessage>> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.object(key)?.map(|object| read_message(&object, wait)).transpose(),
        }
    }
}

/// Parses `{say, audio}`, with `wait` if allowed.
pub(crate) fn read_message(object: &ObjectReader<'_>, wait: bool) -> ParseResult<SpokenMessage> {
    object.reject_unknown_keys(if wait { &["say", "audio", "wait"] } else { &["say", "audio"] })?;
    let seconds = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64();
    let say = object.required_text("say")?;
    Ok(SpokenMessage {
        text: say,
        audio_seconds: seconds(object.time("audio")?),
        delay_seconds: if wait { seconds(object.time("wait")?) } else { 0.0 },
    })
}

pub(crate) fn parse_time(path: &str, value: &Value) -> ParseResult<Duration> {
    let bad = |reason: &str| ScenarioError::new(path, reason);
    let seconds = value.as_f64().ok_or_else(|| bad("must be a number"))?;
    if seconds < 0.0 {
        return Err(bad("must not be negative"));
    }
    if seconds > MAX_SECONDS {
        return Err(bad("must be at most 10000000 seconds"));
    }
    Ok(Duration::from_micros((seconds * 1e6).round() as u64))
}
