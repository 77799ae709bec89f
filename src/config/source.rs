//! Reads the values of the configuration and records the location of each, so that an error can
//! name it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::{Config, KEYS, NOT_KEYS};

/// Type of a key. It decides how the text of an environment variable is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The text as it is, even if it resembles a number.
    Text,
    Number,
    /// `true` or `false`, also `1`, `0`, `yes`, `no`, `on`, `off`.
    Flag,
    /// Strings, separated by commas.
    Texts,
    /// Numbers, separated by commas.
    Numbers,
    /// Addresses, separated by commas. If they need a password: a list as in the file, or as JSON.
    Servers,
}

/// Where a value was set.
enum Place {
    Line(usize),
    Variable(String),
}

/// The values of file and environment, by section.
pub(super) struct Source {
    file: PathBuf,
    table: Table,
    places: HashMap<String, Place>,
}

fn kind(section: &str, key: &str) -> Option<Kind> {
    let (_, keys) = KEYS.iter().find(|(name, _)| *name == section)?;
    keys.iter().find(|(name, _)| *name == key).map(|(_, kind)| *kind)
}

impl Source {
    pub(super) fn read(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, String> {
        let mut source = Self {
            file: file.map(Path::to_owned).unwrap_or_default(),
            table: Table::new(),
            places: HashMap::new(),
        };
        if let Some(path) = file {
            let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
            source.take_file(&text)?;
        }
        for (name, text) in environment {
            source.take_variable(&name, &text)?;
        }
        Ok(source)
    }

    fn take_file(&mut self, text: &str) -> Result<(), String> {
        let line = |at: usize| text.get(..at).unwrap_or(text).matches('\n').count() + 1;
        let at = |line: usize, what: &str| format!("{}:{line}: {what}", self.file.display());
        let wrong = |error: &toml::de::Error| {
            at(line(error.span().map_or(0, |span| span.start)), &error.message().replace('\n', " "))
        };
        let spanned = DeTable::parse(text).map_err(|e| wrong(&e))?;
        let mut places = HashMap::new();
        for (section, value) in spanned.get_ref() {
            let (begin, section) = (line(section.span().start), &**section.get_ref());
            let Some((_, keys)) = KEYS.iter().find(|(name, _)| *name == section) else {
                return Err(at(
                    begin,
                    &unknown(&format!("[{section}]"), section, KEYS.iter().map(|(name, _)| *name)),
                ));
            };
            let DeValue::Table(entries) = value.get_ref() else {
                return Err(at(begin, &format!("{section} is a section; write [{section}]")));
            };
            for key in entries.keys() {
                let (line, key) = (line(key.span().start), &**key.get_ref());
                if kind(section, key).is_none() {
                    let known = keys.iter().map(|(name, _)| *name);
                    return Err(at(line, &unknown(&format!("{section}.{key}"), key, known)));
                }
                places.insert(format!("{section}.{key}"), Place::Line(line));
            }
        }
        self.table = text.parse().map_err(|e| wrong(&e))?;
        self.places = places;
        Ok(())
    }

    /// An empty variable counts as unset: compose files leave a variable out that way.
    fn take_variable(&mut self, name: &str, text: &str) -> Result<(), String> {
        let Some(rest) = name.strip_prefix("VISAVIS_") else { return Ok(()) };
        if NOT_KEYS.contains(&name) {
            return Ok(());
        }
        let all = KEYS.iter().flat_map(|(s, keys)| keys.iter().map(move |(k, kind)| (*s, *k, *kind)));
        let Some((section, key, kind)) =
            all.clone().find(|(s, k, _)| format!("{s}_{k}").eq_ignore_ascii_case(rest))
        else {
            let all: Vec<String> = all.map(|(s, k, _)| format!("VISAVIS_{s}_{k}").to_uppercase()).collect();
            return Err(unknown(name, name, all.iter().map(String::as_str)));
        };
        if text.trim().is_empty() {
            return Ok(());
        }
        let value = natural(kind, text).map_err(|reason| format!("{name}: {reason}"))?;
        let section_table = self.table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(table) = section_table {
            table.insert(key.to_owned(), value);
        }
        self.places.insert(format!("{section}.{key}"), Place::Variable(name.to_owned()));
        Ok(())
    }

    /// The values, each of the type of its key.
    pub(super) fn config(&self) -> Result<Config, String> {
        let error = match self.table.clone().try_into::<Config>() {
            Ok(config) => return Ok(config),
            Err(error) => error,
        };
        // The error does not name the key, so each value is tried alone.
        for (section, entries) in &self.table {
            for (key, value) in entries.as_table().into_iter().flatten() {
                let alone = Table::from_iter([(
                    section.clone(),
                    Table::from_iter([(key.clone(), value.clone())]).into(),
                )]);
                if let Err(error) = alone.try_into::<Config>() {
                    let reason = kind(section, key).and_then(|kind| mistyped(kind, value));
                    let reason = reason.map_or_else(|| error.message().replace('\n', " "), str::to_owned);
                    return Err(self.blame(&format!("{section}.{key}"), &reason));
                }
            }
        }
        Err(error.message().to_owned())
    }

    /// An error about the value of a key, with its location.
    pub(super) fn blame(&self, key: &str, reason: &str) -> String {
        match self.places.get(key) {
            Some(Place::Line(line)) => format!("{}:{line}: {key}: {reason}", self.file.display()),
            Some(Place::Variable(name)) => format!("{name}: {reason}"),
            None => format!("{key}: {reason}"),
        }
    }
}

/// The message for a value that does not have the type of its key. It never contains the value,
/// which may be a password.
fn mistyped(kind: Kind, value: &Value) -> Option<&'static str> {
    match kind {
        Kind::Text if !value.is_str() => Some("must be a string in quotes"),
        Kind::Number if !value.is_integer() && !value.is_float() => Some("must be a number"),
        Kind::Number => Some("must be a whole number that is not negative and not too large"),
        Kind::Flag => Some("must be true or false"),
        Kind::Texts if !value.is_array() => Some("must be a list of strings, such as [\"…\"]"),
        Kind::Numbers => Some("must be a list of numbers, such as [0, 5]"),
        Kind::Servers => {
            Some("must be a list, such as [{ urls = [\"turn:…\"], username = \"…\", credential = \"…\" }]")
        }
        Kind::Text | Kind::Texts => None,
    }
}

/// Converts the text of an environment variable to a value of this type.
fn natural(kind: Kind, text: &str) -> Result<Value, String> {
    let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty());
    // A list as in the file.
    if matches!(kind, Kind::Texts | Kind::Numbers | Kind::Servers) && text.trim_start().starts_with('[') {
        let parsed = format!("v = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("v"));
        return parsed.or_else(|| serde_json::from_str(text).ok()).ok_or_else(|| "is not a list".to_owned());
    }
    Ok(match kind {
        Kind::Text => Value::String(text.to_owned()),
        Kind::Number => number(text)?,
        Kind::Flag => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Value::Boolean(true),
            "false" | "0" | "no" | "off" => Value::Boolean(false),
            _ => return Err(format!("\"{text}\" is neither true nor false")),
        },
        Kind::Texts => parts().map(str::to_owned).map(Value::String).collect::<Vec<_>>().into(),
        Kind::Numbers => parts().map(number).collect::<Result<Vec<_>, _>>()?.into(),
        Kind::Servers => {
            let urls: Vec<Value> = parts().map(str::to_owned).map(Value::String).collect();
            vec![Value::Table(Table::from_iter([("urls".to_owned(), urls.into())]))].into()
        }
    })
}

fn number(text: &str) -> Result<Value, String> {
    let text = text.trim();
    let whole = text.parse().map(Value::Integer);
    whole.or_else(|_| text.parse().map(Value::Float)).map_err(|_| format!("\"{text}\" is not a number"))
}

fn unknown<'a>(shown: &str, key: &str, known: impl Iterator<Item = &'a str>) -> String {
    let nearest =
        known.min_by_key(|name| distance(&name.to_lowercase(), &key.to_lowercase())).unwrap_or_default();
    format!("unknown configuration key {shown}; did you mean {nearest}?")
}

/// Levenshtein distance, in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (corner + usize::from(x != y)).min(above + 1).min(row[j] + 1);
            corner = above;
        }
    }
    row[b.len()]
}
