//! Reading JSON field by field, each error with the path of its field.

use core::time::Duration;

use serde_json::{Map, Value};

use crate::scenario::{BadScenario, read_message};
use crate::settings::{LONGEST, Message};

type Parsed<T> = Result<T, BadScenario>;

/// A JSON object with its path.
pub(crate) struct Object<'a> {
    at: String,
    pub(crate) map: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    pub(crate) fn new(at: &str, value: &'a Value) -> Parsed<Self> {
        let field = if at.is_empty() { "file" } else { at };
        let map = value.as_object().ok_or_else(|| BadScenario::new(field, "must be an object"))?;
        Ok(Self { at: at.to_owned(), map })
    }

    pub(crate) fn path(&self, key: &str) -> String {
        if self.at.is_empty() { key.to_owned() } else { format!("{}.{key}", self.at) }
    }

    pub(crate) fn only(&self, known: &[&str]) -> Parsed<()> {
        match self.map.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(BadScenario::new(self.path(key), "is unknown")),
            None => Ok(()),
        }
    }

    pub(crate) fn present(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    pub(crate) fn missing(&self, key: &str) -> BadScenario {
        BadScenario::new(self.path(key), "is missing")
    }

    pub(crate) fn text(&self, key: &str) -> Parsed<Option<String>> {
        let text = |value: &Value| {
            value
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| BadScenario::new(self.path(key), "must be a text"))
        };
        self.map.get(key).map(text).transpose()
    }

    pub(crate) fn needed_text(&self, key: &str) -> Parsed<String> {
        self.text(key)?.ok_or_else(|| self.missing(key))
    }

    pub(crate) fn one_of(&self, key: &str, known: &[&'static str]) -> Parsed<Option<&'static str>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let found = known.iter().find(|word| **word == text).copied();
        found
            .map(Some)
            .ok_or_else(|| BadScenario::new(self.path(key), format!("must be {}", known.join(" or "))))
    }

    pub(crate) fn flag(&self, key: &str) -> Parsed<Option<bool>> {
        let flag = |value: &Value| {
            value.as_bool().ok_or_else(|| BadScenario::new(self.path(key), "must be true or false"))
        };
        self.map.get(key).map(flag).transpose()
    }

    pub(crate) fn number(&self, key: &str) -> Parsed<Option<f64>> {
        let number = |value: &Value| {
            value.as_f64().ok_or_else(|| BadScenario::new(self.path(key), "must be a number"))
        };
        self.map.get(key).map(number).transpose()
    }

    pub(crate) fn time(&self, key: &str) -> Parsed<Option<Duration>> {
        self.map.get(key).map(|value| time(&self.path(key), value)).transpose()
    }

    pub(crate) fn needed_time(&self, key: &str) -> Parsed<Duration> {
        self.time(key)?.ok_or_else(|| self.missing(key))
    }

    pub(crate) fn object(&self, key: &str) -> Parsed<Option<Object<'a>>> {
        self.map.get(key).map(|value| Object::new(&self.path(key), value)).transpose()
    }

    pub(crate) fn list(&self, key: &str) -> Parsed<Vec<Object<'a>>> {
        let Some(value) = self.map.get(key) else { return Ok(Vec::new()) };
        let list = value.as_array().ok_or_else(|| BadScenario::new(self.path(key), "must be a list"))?;
        let item = |(index, value)| Object::new(&format!("{}[{index}]", self.path(key)), value);
        list.iter().enumerate().map(item).collect()
    }

    /// `{say, audio}` or null.
    pub(crate) fn message(&self, key: &str, wait: bool) -> Parsed<Option<Message>> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.object(key)?.map(|object| read_message(&object, wait)).transpose(),
        }
    }
}

pub(crate) fn time(path: &str, value: &Value) -> Parsed<Duration> {
    let bad = |reason: &str| BadScenario::new(path, reason);
    let seconds = value.as_f64().ok_or_else(|| bad("must be a number"))?;
    if seconds < 0.0 {
        return Err(bad("must not be negative"));
    }
    if seconds > LONGEST {
        return Err(bad("must not be greater than 1e7 s"));
    }
    Ok(Duration::from_micros((seconds * 1e6).round() as u64))
}
