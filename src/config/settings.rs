//! The settings that differ from their defaults, each with the place where it was set.

use models::registry::{VENDORS, Vendor};
use toml::{Table, Value};
use url::Url;

use super::source::{ConfigSource, PROVIDERS, ValueKind, value_kind};
use super::{Config, environment};

/// What is shown in place of a secret.
const HIDDEN: &str = "***";

/// A setting that differs from its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The key, such as `server.listen`.
    pub(crate) key: String,
    /// The value as in a configuration file; secrets are replaced.
    pub(crate) value: String,
    /// `FILE:LINE`, a variable or a flag.
    pub(crate) origin: String,
}

impl Setting {
    fn new(key: String, value: Value, origin: &str) -> Self {
        Self { key, value: redact(value).to_string(), origin: origin.to_owned() }
    }

    fn secret(key: String, origin: &str) -> Self {
        Self::new(key, Value::from(HIDDEN), origin)
    }

    /// The setting of a flag.
    pub(crate) fn of_flag(key: &str, value: &str, flag: &str) -> Self {
        Self::new(key.to_owned(), Value::from(value), flag)
    }
}

/// The settings of file and environment. `variable` reads the environment; an empty variable is
/// absent.
pub(super) fn changed_settings(
    source: &ConfigSource,
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<Setting> {
    let mut settings = of_source(source);
    for (key, name) in [
        ("livekit.url", "LIVEKIT_URL"),
        ("livekit.api_key", "LIVEKIT_API_KEY"),
        ("livekit.api_secret", "LIVEKIT_API_SECRET"),
    ] {
        if let Some(value) = variable(name)
            && settings.iter().all(|setting| setting.key != key)
        {
            settings.push(of_variable(key, value, name));
        }
    }
    let of_vendors = take_vendor_settings(&mut settings, &variable);
    settings.extend(of_vendors);
    let key = environment::API_KEY_VARIABLE;
    let file = environment::API_KEY_FILE_VARIABLE;
    if let Some(origin) = [key, file].into_iter().find(|name| variable(name).is_some()) {
        settings.push(Setting::secret(key.to_owned(), origin));
    }
    settings.sort_by(|a, b| a.key.cmp(&b.key));
    settings
}

/// The settings of the keys.
fn of_source(source: &ConfigSource) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (section, entries) in &source.table {
        for (key, value) in entries.as_table().into_iter().flatten() {
            let full = format!("{section}.{key}");
            let origin = |key: &str| source.origin(key).unwrap_or_default();
            if let (PROVIDERS, Value::Table(account)) = (section.as_str(), value) {
                for (of_account, value) in account {
                    let full = format!("{full}.{of_account}");
                    let origin = origin(&full);
                    settings.push(of_key(full, value, of_account == "api_key", &origin));
                }
            } else if differs_from_default(section, key, value) {
                let is_secret = value_kind(section, key) == Some(ValueKind::Secret);
                let origin = origin(&full);
                settings.push(of_key(full, value, is_secret, &origin));
            }
        }
    }
    settings
}

fn of_key(key: String, value: &Value, is_secret: bool, origin: &str) -> Setting {
    if is_secret { Setting::secret(key, origin) } else { Setting::new(key, value.clone(), origin) }
}

fn of_variable(key: &str, value: String, name: &str) -> Setting {
    of_key(key.to_owned(), &Value::from(value), key.ends_with("_secret"), name)
}

fn differs_from_default(section: &str, key: &str, value: &Value) -> bool {
    let entry = Table::from_iter([(key.to_owned(), value.clone())]);
    let alone = Table::from_iter([(section.to_owned(), Value::Table(entry))]);
    alone.try_into::<Config>().map_or(true, |config| config != Config::default())
}

/// The settings of the vendors' own variables, in place of those of the file.
fn take_vendor_settings(
    settings: &mut Vec<Setting>,
    variable: &impl Fn(&str) -> Option<String>,
) -> Vec<Setting> {
    let mut found = Vec::new();
    for vendor in &VENDORS {
        for (end, key) in [("API_KEY", "api_key"), ("BASE_URL", "base_url"), ("MODEL", "model")] {
            let mut names = vendor.variable_names(end).flat_map(|name| {
                let by_file = (key == "api_key").then(|| format!("{name}_FILE"));
                [Some(name), by_file].into_iter().flatten()
            });
            let set = names.find_map(|name| Some((variable(&name)?, name)));
            let Some((value, name)) = set else { continue };
            settings.retain(|setting| !is_of_vendor(&setting.key, vendor, key));
            let full = format!("{PROVIDERS}.{}.{key}", vendor.name);
            found.push(of_key(full, &Value::from(value), key == "api_key", &name));
        }
    }
    found
}

/// Whether `full` is the key of `vendor`, by any of its names.
fn is_of_vendor(full: &str, vendor: &Vendor, key: &str) -> bool {
    let mut parts = full.split('.');
    parts.next() == Some(PROVIDERS)
        && parts.next().and_then(Vendor::find).is_some_and(|other| other.name == vendor.name)
        && parts.next().is_some_and(|part| part == key || part == format!("{key}_file"))
}

/// The value without what only the operator may know: passwords and queries of URLs, credentials of
/// ICE servers.
fn redact(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(redact_url(text)),
        Value::Array(list) => Value::Array(list.into_iter().map(redact).collect()),
        Value::Table(table) => {
            let hide = |(key, value): (String, Value)| {
                let is_secret = matches!(&*key, "credential" | "username");
                let value = if is_secret { Value::from(HIDDEN) } else { redact(value) };
                (key, value)
            };
            Value::Table(table.into_iter().map(hide).collect())
        }
        other => other,
    }
}

fn redact_url(text: String) -> String {
    let Ok(mut url) = Url::parse(&text) else { return text };
    if url.username().is_empty() && url.password().is_none() && url.query().is_none() {
        return text;
    }
    if url.query().is_some() {
        url.set_query(Some(HIDDEN));
    }
    // A URL without a host has neither.
    let has_user = !url.username().is_empty() || url.password().is_some();
    if has_user && (url.set_username(HIDDEN).is_err() || url.set_password(None).is_err()) {
        return HIDDEN.to_owned();
    }
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::load_toml;

    fn lines(file: &str, variables: &[(&str, &str)]) -> Vec<String> {
        let settings = load_toml(file, variables).unwrap().changed;
        let line = |s: &Setting| {
            let origin = s.origin.rsplit('/').next().unwrap();
            let origin = if origin.starts_with("visavis-config-") {
                format!("FILE:{}", origin.rsplit(':').next().unwrap())
            } else {
                origin.to_owned()
            };
            format!("{} = {} ({origin})", s.key, s.value)
        };
        settings.iter().map(line).collect()
    }

    #[test]
    fn settings_that_differ_from_the_default_name_their_file_and_line_or_variable() {
        let file = "[server]\nlisten = \"127.0.0.1:8080\"\nregion = \"eu\"\n\n[timeouts]\n\
                    join = 300\nclosed = 6\n[webhooks]\nschedule = [0, 1.5]\n";
        assert_eq!(
            lines(file, &[("VISAVIS_SERVER_LISTEN", "[::1]:9"), ("VISAVIS_STT_POOL", "")]),
            [
                "server.listen = \"[::1]:9\" (VISAVIS_SERVER_LISTEN)",
                "server.region = \"eu\" (FILE:3)",
                "timeouts.closed = 6 (FILE:7)",
                "webhooks.schedule = [0, 1.5] (FILE:9)",
            ]
        );
        assert_eq!(lines("", &[]), [""; 0]);
    }

    #[test]
    fn secrets_are_hidden() {
        let file = "[server]\nmetrics_token = \"secret\"\n[media]\nice_servers = [{ urls = \
                    [\"turn:a\"], username = \"secret\", credential = \"secret\" }]\n\
                    [otlp]\nendpoint = \"http://user:secret@c.example:4318/x?key=secret\"\n\
                    [providers.groq]\napi_key = \"secret\"\nmodel = \"m\"\n";
        let variables = [
            ("VISAVIS_SERVER_DATABASE_URL", "postgres://user:secret@host/name"),
            ("VISAVIS_API_KEY", "secret"),
            ("LIVEKIT_URL", "ws://127.0.0.1:7880"),
            ("LIVEKIT_API_KEY", "id"),
            ("LIVEKIT_API_SECRET", "secret-of-at-least-32-characters"),
            ("GROQ_API_KEY", "secret"),
            ("OPENAI_BASE_URL", "http://h.example/v1?key=secret"),
        ];
        let shown = lines(file, &variables);
        assert_eq!(
            shown,
            [
                "VISAVIS_API_KEY = \"***\" (VISAVIS_API_KEY)",
                "livekit.api_key = \"id\" (LIVEKIT_API_KEY)",
                "livekit.api_secret = \"***\" (LIVEKIT_API_SECRET)",
                "livekit.url = \"ws://127.0.0.1:7880\" (LIVEKIT_URL)",
                "media.ice_servers = [{ credential = \"***\", urls = [\"turn:a\"], username = \
                 \"***\" }] (FILE:4)",
                "otlp.endpoint = \"http://***@c.example:4318/x?***\" (FILE:6)",
                "providers.groq.api_key = \"***\" (GROQ_API_KEY)",
                "providers.groq.model = \"m\" (FILE:9)",
                "providers.openai.base_url = \"http://h.example/v1?***\" (OPENAI_BASE_URL)",
                "server.database_url = \"***\" (VISAVIS_SERVER_DATABASE_URL)",
                "server.metrics_token = \"***\" (FILE:2)",
            ]
        );
    }
}
