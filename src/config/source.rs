//! Reads the values of the configuration and records the location of each, so that an error can
//! name it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::environment::{self, PREFIX};
use super::keys::CONFIG_KEYS;
use super::secret_file::read_secret;
use super::{Config, providers};

/// The section with accounts, which are tables.
pub(super) const PROVIDERS: &str = "providers";

/// Type of a key. It decides how the text of an environment variable is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// The text as it is, even if it resembles a number.
    Text,
    /// A text that only the operator may know. The key with `_file` behind its name names a file
    /// that contains it.
    Secret,
    Number,
    /// `true` or `false`, also `1`, `0`, `yes`, `no`, `on`, `off`.
    Bool,
    /// Strings, separated by commas.
    TextList,
    /// Numbers, separated by commas.
    NumberList,
    /// Addresses, separated by commas. If they need a password: a list as in the file, or as JSON.
    IceServers,
}

/// Where a value was set.
enum Location {
    Line(usize),
    EnvVariable(String),
}

/// The values of file and environment, by section.
pub(super) struct ConfigSource {
    file: PathBuf,
    pub(super) table: Table,
    locations: HashMap<String, Location>,
    /// Sentences about variables that nothing reads.
    pub(super) warnings: Vec<String>,
}

/// Behind the name of a key: the value is in a file.
const FILE_SUFFIX: &str = "_file";

pub(super) fn value_kind(section: &str, key: &str) -> Option<ValueKind> {
    let (_, keys) = CONFIG_KEYS.iter().find(|(name, _)| *name == section)?;
    let kind_of = |key: &str| keys.iter().find(|(name, _)| *name == key).map(|(_, kind)| *kind);
    let is_secret = |key: &&str| kind_of(key) == Some(ValueKind::Secret);
    let of_file = || key.strip_suffix(FILE_SUFFIX).filter(is_secret).map(|_| ValueKind::Text);
    kind_of(key).or_else(of_file)
}

/// The names of all keys, those of files included: section, key and type.
fn all_keys() -> impl Iterator<Item = (&'static str, String, ValueKind)> {
    let keys = CONFIG_KEYS.iter().flat_map(|(s, keys)| keys.iter().map(move |key| (*s, key)));
    keys.flat_map(|(section, &(key, kind))| {
        let file = (kind == ValueKind::Secret)
            .then(|| (section, format!("{key}{FILE_SUFFIX}"), ValueKind::Text));
        [Some((section, key.to_owned(), kind)), file].into_iter().flatten()
    })
}

impl ConfigSource {
    pub(super) fn read(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, String> {
        let mut source = Self {
            file: file.map(Path::to_owned).unwrap_or_default(),
            table: Table::new(),
            locations: HashMap::new(),
            warnings: Vec::new(),
        };
        if let Some(path) = file {
            let text =
                std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
            source.parse_file(&text)?;
        }
        for (name, text) in environment {
            source.apply_variable(&name, &text)?;
        }
        source.warnings.sort();
        source.read_secret_files()?;
        Ok(source)
    }

    /// Replaces the keys that name a file by its content.
    fn read_secret_files(&mut self) -> Result<(), String> {
        let secrets = all_keys().filter(|(.., kind)| *kind == ValueKind::Secret);
        for (section, key, _) in secrets {
            let Some(Value::Table(table)) = self.table.get_mut(section) else { continue };
            let by_file = format!("{key}{FILE_SUFFIX}");
            let Some(file) = table.remove(&by_file) else { continue };
            let has_key = table.contains_key(&key);
            let [full, full_by_file] = [&key, &by_file].map(|key| format!("{section}.{key}"));
            let is_variable =
                |key| matches!(self.locations.get(key), Some(Location::EnvVariable(_)));
            // The environment overrides the file.
            match (has_key, is_variable(&full), is_variable(&full_by_file)) {
                (true, true, false) => continue,
                (true, false, true) | (false, ..) => {}
                _ => {
                    let reason = format!("both {key} and {by_file} are set; keep one of them");
                    return Err(self.with_location(&full_by_file, &reason));
                }
            }
            let secret = match file.as_str() {
                Some(path) => read_secret(Path::new(path)),
                None => Err("must be a string in quotes".to_owned()),
            };
            match secret {
                Ok(secret) => table.insert(key, Value::String(secret)),
                Err(reason) => return Err(self.with_location(&full_by_file, &reason)),
            };
            if let Some(location) = self.locations.remove(&full_by_file) {
                self.locations.insert(full, location);
            }
        }
        Ok(())
    }

    fn parse_file(&mut self, text: &str) -> Result<(), String> {
        let line_of = |at: usize| text.get(..at).unwrap_or(text).matches('\n').count() + 1;
        let at = |line: usize, what: &str| format!("{}:{line}: {what}", self.file.display());
        let wrong = |error: &toml::de::Error| {
            at(
                line_of(error.span().map_or(0, |span| span.start)),
                &error.message().replace('\n', " "),
            )
        };
        let spanned = DeTable::parse(text).map_err(|e| wrong(&e))?;
        let mut locations = HashMap::new();
        for (section, value) in spanned.get_ref() {
            let (section_line, section) = (line_of(section.span().start), &**section.get_ref());
            if !CONFIG_KEYS.iter().any(|(name, _)| *name == section) {
                return Err(at(
                    section_line,
                    &unknown_key(
                        &format!("[{section}]"),
                        section,
                        CONFIG_KEYS.iter().map(|(name, _)| *name),
                    ),
                ));
            }
            let DeValue::Table(entries) = value.get_ref() else {
                return Err(at(
                    section_line,
                    &format!("{section} is a section; write [{section}]"),
                ));
            };
            for (key, value) in entries {
                let (line, key) = (line_of(key.span().start), &**key.get_ref());
                if let (PROVIDERS, DeValue::Table(account)) = (section, value.get_ref()) {
                    check_account(key, account).map_err(|what| at(line, &what))?;
                    for of_account in account.keys() {
                        let full = format!("{section}.{key}.{}", of_account.get_ref());
                        locations.insert(full, Location::Line(line_of(of_account.span().start)));
                    }
                } else if value_kind(section, key).is_none() {
                    let known = all_keys().filter(|(s, ..)| *s == section).map(|(_, key, _)| key);
                    let known: Vec<String> = known.collect();
                    let known = known.iter().map(String::as_str);
                    return Err(at(line, &unknown_key(&format!("{section}.{key}"), key, known)));
                }
                locations.insert(format!("{section}.{key}"), Location::Line(line));
            }
        }
        self.table = text.parse().map_err(|e| wrong(&e))?;
        self.locations = locations;
        Ok(())
    }

    /// An empty variable counts as unset: compose files leave a variable out that way.
    fn apply_variable(&mut self, name: &str, text: &str) -> Result<(), String> {
        let Some(rest) = name.strip_prefix(PREFIX) else { return Ok(()) };
        if environment::is_known(name) || environment::is_service_link(name, text) {
            return Ok(());
        }
        let Some((section, key, kind)) =
            all_keys().find(|(s, k, _)| format!("{s}_{k}").eq_ignore_ascii_case(rest))
        else {
            let keys = all_keys().map(|(s, k, _)| format!("{PREFIX}{s}_{k}").to_uppercase());
            self.warnings.push(environment::unknown_variable(name, keys));
            return Ok(());
        };
        if text.trim().is_empty() {
            return Ok(());
        }
        let value = parse_variable(kind, text).map_err(|reason| format!("{name}: {reason}"))?;
        let section_table = self.table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(table) = section_table {
            table.insert(key.clone(), value);
        }
        self.locations.insert(format!("{section}.{key}"), Location::EnvVariable(name.to_owned()));
        Ok(())
    }

    /// The values, each of the type of its key.
    pub(super) fn deserialize(&self) -> Result<Config, String> {
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
                    let reason = match value {
                        Value::Table(account) if section == PROVIDERS => account_mismatch(account),
                        value => {
                            value_kind(section, key).and_then(|kind| type_mismatch(kind, value))
                        }
                    };
                    let reason = reason.unwrap_or_else(|| error.message().replace('\n', " "));
                    return Err(self.with_location(&format!("{section}.{key}"), &reason));
                }
            }
        }
        Err(error.message().to_owned())
    }

    /// Where the value of a key was set, in the form `FILE:LINE` or `VARIABLE`; `None` for a default.
    pub(super) fn origin(&self, key: &str) -> Option<String> {
        Some(match self.locations.get(key)? {
            Location::Line(line) => format!("{}:{line}", self.file.display()),
            Location::EnvVariable(name) => name.clone(),
        })
    }

    /// An error about the value of a key, with its location.
    pub(super) fn with_location(&self, key: &str, reason: &str) -> String {
        match self.locations.get(key) {
            Some(Location::Line(line)) => {
                format!("{}:{line}: {key}: {reason}", self.file.display())
            }
            Some(Location::EnvVariable(name)) => format!("{name}: {reason}"),
            None => format!("{key}: {reason}"),
        }
    }
}

/// The message for a value that does not have the type of its key. It never contains the value,
/// which may be a password.
fn type_mismatch(kind: ValueKind, value: &Value) -> Option<String> {
    let reason = match kind {
        ValueKind::Text | ValueKind::Secret if !value.is_str() => {
            Some("must be a string in quotes")
        }
        ValueKind::Number if !value.is_integer() && !value.is_float() => Some("must be a number"),
        ValueKind::Number => Some("must be a whole number that is not negative and not too large"),
        ValueKind::Bool => Some("must be true or false"),
        ValueKind::TextList
            if !value.as_array().is_some_and(|list| list.iter().all(Value::is_str)) =>
        {
            Some("must be a list of strings, such as [\"…\"]")
        }
        ValueKind::NumberList => Some("must be a list of numbers, such as [0, 5]"),
        ValueKind::IceServers => Some(
            "must be a list, such as [{ urls = [\"turn:…\"], username = \"…\", \
             credential = \"…\" }]",
        ),
        ValueKind::Text | ValueKind::Secret | ValueKind::TextList => None,
    };
    reason.map(str::to_owned)
}

/// The message for the first value of `[providers.NAME]` that does not have the type of its key.
fn account_mismatch(account: &Table) -> Option<String> {
    account.iter().find_map(|(key, value)| {
        let alone = Table::from_iter([(key.clone(), value.clone())]);
        alone.try_into::<providers::AccountSettings>().err()?;
        let (_, kind) = providers::ACCOUNT_KEYS.into_iter().find(|(name, _)| name == key)?;
        Some(format!("{key} {}", type_mismatch(kind, value)?))
    })
}

/// Converts the text of an environment variable to a value of this type.
fn parse_variable(kind: ValueKind, text: &str) -> Result<Value, String> {
    let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty());
    // A list as in the file.
    if matches!(kind, ValueKind::TextList | ValueKind::NumberList | ValueKind::IceServers)
        && text.trim_start().starts_with('[')
    {
        let parsed =
            format!("v = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("v"));
        return parsed
            .or_else(|| serde_json::from_str(text).ok())
            .ok_or_else(|| "is not a list".to_owned());
    }
    Ok(match kind {
        ValueKind::Text | ValueKind::Secret => Value::String(text.to_owned()),
        ValueKind::Number => parse_number(text)?,
        ValueKind::Bool => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Value::Boolean(true),
            "false" | "0" | "no" | "off" => Value::Boolean(false),
            _ => return Err(format!("\"{text}\" is neither true nor false")),
        },
        ValueKind::TextList => {
            parts().map(str::to_owned).map(Value::String).collect::<Vec<_>>().into()
        }
        ValueKind::NumberList => parts().map(parse_number).collect::<Result<Vec<_>, _>>()?.into(),
        ValueKind::IceServers => {
            let urls: Vec<Value> = parts().map(str::to_owned).map(Value::String).collect();
            vec![Value::Table(Table::from_iter([("urls".to_owned(), urls.into())]))].into()
        }
    })
}

fn parse_number(text: &str) -> Result<Value, String> {
    let text = text.trim();
    let whole = text.parse().map(Value::Integer);
    whole
        .or_else(|_| text.parse().map(Value::Float))
        .map_err(|_| format!("\"{text}\" is not a number"))
}

/// Checks the name and the keys of `[providers.NAME]`.
fn check_account(name: &str, account: &DeTable<'_>) -> Result<(), String> {
    let display_name = format!("[{PROVIDERS}.{name}]");
    if !providers::is_vendor(name) {
        return Err(unknown_key(&display_name, name, providers::names()));
    }
    let known = || providers::ACCOUNT_KEYS.into_iter().map(|(name, _)| name);
    let mut keys = account.keys().map(|key| &**key.get_ref());
    match keys.find(|key| !known().any(|name| name == *key)) {
        Some(key) => {
            let full = format!("{PROVIDERS}.{name}.{key}");
            Err(unknown_key(&full, key, known()))
        }
        None => Ok(()),
    }
}

fn unknown_key<'a>(display_name: &str, key: &str, known: impl Iterator<Item = &'a str>) -> String {
    format!("unknown configuration key {display_name}; did you mean {}?", nearest(key, known))
}

/// The name that is most similar to `key`.
pub(super) fn nearest<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> &'a str {
    known
        .min_by_key(|name| edit_distance(&name.to_lowercase(), &key.to_lowercase()))
        .unwrap_or_default()
}

/// Levenshtein distance, in bytes.
fn edit_distance(a: &str, b: &str) -> usize {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_an_account_with_another_type_is_named_without_the_value() {
        for (text, expected) in [
            ("first_timeout = \"soon\"", "first_timeout must be a number"),
            ("api_key = 12345678", "api_key must be a string in quotes"),
            ("workspaces = \"a\"", "workspaces must be a list of strings, such as [\"…\"]"),
            ("workspaces = [5]", "workspaces must be a list of strings, such as [\"…\"]"),
            ("share_data = \"no\"", "share_data must be true or false"),
        ] {
            let table: Table = format!("[providers.groq]\n{text}").parse().unwrap();
            let source = ConfigSource {
                file: PathBuf::new(),
                table,
                locations: HashMap::default(),
                warnings: Vec::new(),
            };
            let error = source.deserialize().unwrap_err();
            assert_eq!(error, format!("providers.groq: {expected}"));
        }
    }
}
