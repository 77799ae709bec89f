//! The configuration. Precedence: flag, environment, file, default.
//!
//! Every key of `config/example.toml` is also `VISAVIS_<SECTION>_<KEY>`. An unknown key is rejected
//! with the most similar name, because a misspelled limit is worse than a server that does not
//! start. An unknown variable is only a warning, because platforms add variables to the environment
//! ([`environment`]). This file defines the keys, their meaning and their ranges; `source.rs` reads
//! them.

mod branding;
mod environment;
mod ice_servers;
mod keys;
mod livekit;
mod meetings;
mod model_files;
pub(crate) mod providers;
mod recording;
mod secret_file;
mod settings;
mod source;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use control_api::SecretKey;
use serde::Deserialize;

pub(crate) use self::environment::CONFIG_VARIABLE;
use self::ice_servers::IceServer;
pub(crate) use self::model_files::Models;
pub(crate) use self::settings::Setting;
use crate::listen::ListenAddress;

/// The whole configuration, every value present and in range.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Config {
    pub(crate) server: Server,
    pub(crate) timeouts: Timeouts,
    pub(crate) webhooks: Webhooks,
    pub(crate) media: Media,
    pub(crate) stt: Stt,
    pub(crate) models: Models,
    pub(crate) avatars: Avatars,
    pub(crate) knowledge: Knowledge,
    pub(crate) recording: recording::Recording,
    pub(crate) storage: recording::Storage,
    pub(crate) meetings: meetings::Meetings,
    pub(crate) livekit: livekit::LiveKit,
    pub(crate) branding: branding::Branding,
    pub(crate) providers: providers::Providers,
    pub(crate) limits: Limits,
    pub(crate) otlp: Otlp,
    /// The settings of file, environment and flags that differ from their defaults.
    #[serde(skip)]
    pub(crate) changed: Vec<Setting>,
    /// Sentences about variables that nothing reads.
    #[serde(skip)]
    pub(crate) warnings: Vec<String>,
}

/// `[server]`
#[derive(Clone, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Server {
    pub(crate) listen: ListenAddress,
    pub(crate) data: PathBuf,
    pub(crate) public_url: Option<String>,
    pub(crate) database_url: Option<String>,
    /// Seconds for which the start waits for the database at `database_url`.
    pub(crate) database_wait: f64,
    pub(crate) region: String,
    pub(crate) secrets_key: Option<SecretKey>,
    pub(crate) tokens_key: Option<SecretKey>,
    pub(crate) trusted_proxies: Vec<String>,
    pub(crate) cors_origins: Vec<String>,
    pub(crate) metrics_token: Option<String>,
    pub(crate) retention_days: u32,
    pub(crate) allow_private_targets: Option<bool>,
    pub(crate) allow_scripted: bool,
    pub(crate) log_format: crate::log::Format,
    /// `VISAVIS_API_KEY`, which is no key of the file.
    #[serde(skip)]
    pub(crate) api_key: Option<String>,
    /// Whether the first start prints its API key, unless standard output is the journal.
    pub(crate) print_key: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: ListenAddress::default(),
            data: PathBuf::from("data"),
            public_url: None,
            database_url: None,
            database_wait: 60.0,
            region: String::new(),
            secrets_key: None,
            tokens_key: None,
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
            metrics_token: None,
            retention_days: 0,
            allow_private_targets: None,
            allow_scripted: false,
            log_format: crate::log::Format::Text,
            api_key: None,
            print_key: true,
        }
    }
}

impl std::fmt::Debug for Server {
    /// Omits the secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("listen", &self.listen)
            .field("data", &self.data)
            .finish_non_exhaustive()
    }
}

/// `[timeouts]`, in seconds.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Timeouts {
    pub(crate) join: f64,
    pub(crate) token: f64,
    pub(crate) closed: f64,
    pub(crate) silence: f64,
    pub(crate) offer: f64,
    pub(crate) drain: f64,
    pub(crate) request: f64,
    pub(crate) lease: f64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            join: 300.0,
            token: 300.0,
            closed: 5.0,
            silence: 25.0,
            offer: 15.0,
            drain: 60.0,
            request: 30.0,
            lease: 10.0,
        }
    }
}

/// `[webhooks]`, in seconds.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Webhooks {
    pub(crate) schedule: Vec<f64>,
    pub(crate) hold: f64,
}

impl Default for Webhooks {
    fn default() -> Self {
        Self { schedule: vec![0.0, 5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0], hold: 30.0 }
    }
}

/// `[media]`
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Media {
    pub(crate) public_ip: Vec<IpAddr>,
    pub(crate) udp_ports: String,
    pub(crate) tcp_port: u16,
    pub(crate) ice_servers: Vec<IceServer>,
    pub(crate) threads: usize,
}

impl Default for Media {
    fn default() -> Self {
        Self {
            public_ip: Vec::new(),
            udp_ports: String::from("0"),
            tcp_port: 0,
            ice_servers: Vec::new(),
            threads: 0,
        }
    }
}

impl Media {
    /// The ports of `udp_ports`: `"0"` (any free port), `"50000"` or `"50000-50007"`, one for each
    /// media thread.
    pub(crate) fn ports(&self) -> Result<std::ops::RangeInclusive<u16>, String> {
        let wrong = || {
            format!("\"{}\" is neither a port nor a range such as \"50000-50007\"", self.udp_ports)
        };
        let (first, last) =
            self.udp_ports.split_once('-').unwrap_or((&self.udp_ports, &self.udp_ports));
        let first: u16 = first.trim().parse().map_err(|_| wrong())?;
        let last: u16 = last.trim().parse().map_err(|_| wrong())?;
        if first > last || (first == 0 && last != 0) { Err(wrong()) } else { Ok(first..=last) }
    }
}

/// `[stt]`
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Stt {
    /// Number of decodes of Moonshine at a time; 0 = one per core, less one.
    pub(crate) workers: usize,
    /// Number of decoders of PocketSphinx, loaded at start; 0 = one per core, loaded when they are
    /// used.
    pub(crate) pool: usize,
}

/// `[avatars]`
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Avatars {
    /// Folder of pose sets written by `visavis bake`.
    pub(crate) dir: Option<PathBuf>,
    /// Whether an avatar from a photo needs the consent of the person.
    pub(crate) require_consent: bool,
}

/// `[knowledge]`
#[derive(Clone, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Knowledge {
    pub(crate) embeddings_url: Option<String>,
    pub(crate) embeddings_model: Option<String>,
    pub(crate) embeddings_token: Option<String>,
}

impl std::fmt::Debug for Knowledge {
    /// Omits the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Knowledge")
            .field("embeddings_model", &self.embeddings_model)
            .finish_non_exhaustive()
    }
}

impl Knowledge {
    /// The embeddings server, if one is configured.
    pub(crate) fn embeddings_config(&self) -> Option<models::embeddings::Config> {
        Some(models::embeddings::Config {
            url: self.embeddings_url.clone()?,
            model: self.embeddings_model.clone()?,
            token: self.embeddings_token.clone(),
        })
    }
}

/// `[limits]`; 0 = off.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Limits {
    pub(crate) per_key: u32,
    pub(crate) offers: u32,
    pub(crate) embeds: u32,
    pub(crate) calls: u32,
    /// Maximum number of concurrent HTTP connections; 0 = half of the files that the process may
    /// open, at least 16 and at most 4096.
    pub(crate) connections: usize,
    /// Share of the media threads' time above which no new call is admitted, 0 to 1; 0 = off.
    pub(crate) load: f64,
    /// MiB of memory that must be free to admit a call; 0 = off.
    pub(crate) memory: u64,
    /// Maximum number of typed questions per second from the user of a call; 0 = off.
    pub(crate) questions: f64,
    /// Maximum number of concurrent calls per workspace.
    pub(crate) workspace_calls: u32,
    /// Maximum number of new conversations per workspace and day (UTC).
    pub(crate) workspace_conversations: u32,
    /// Maximum number of agents per workspace.
    pub(crate) workspace_agents: u32,
    /// Maximum number of bytes that a workspace stores, without its conversations.
    pub(crate) workspace_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_key: 0,
            offers: 30,
            embeds: 10,
            calls: 0,
            connections: 0,
            load: 0.8,
            memory: 128,
            questions: 1.0,
            workspace_calls: 0,
            workspace_conversations: 0,
            workspace_agents: 0,
            workspace_bytes: 0,
        }
    }
}

/// `[otlp]`
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Otlp {
    pub(crate) endpoint: Option<String>,
}

/// A key, and what is wrong with its value.
type InvalidValue = (&'static str, String);

impl Config {
    /// Reads the file, if any, else the one that `VISAVIS_CONFIG` names, and then the environment.
    /// The caller applies the flags.
    ///
    /// # Errors
    /// One sentence: the location (file and line, or variable), the key, the problem with its
    /// value, and for an unknown key the most similar name.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, String> {
        let environment: HashMap<String, String> = environment.collect();
        // An empty variable counts as unset.
        let variable =
            |name: &str| environment.get(name).filter(|text| !text.trim().is_empty()).cloned();
        let named =
            if file.is_none() { variable(CONFIG_VARIABLE).map(PathBuf::from) } else { None };
        if let Some(path) = &named {
            std::fs::metadata(path)
                .map_err(|error| format!("{CONFIG_VARIABLE}: {}: {error}", path.display()))?;
        }
        let source =
            source::ConfigSource::read(file.or(named.as_deref()), environment.clone().into_iter())?;
        let mut config = source.deserialize()?;
        config
            .providers
            .read_key_files()
            .and_then(|()| config.providers.check_timeouts())
            .and_then(|()| config.providers.check_settings(|name| environment.get(name).cloned()))
            .map_err(|(key, reason)| source.with_location(&key, &reason))?;
        config.livekit.add_standard_variables(|name| environment.get(name).cloned());
        config
            .validate()
            .and_then(|()| config.branding.read())
            .and_then(|()| ice_servers::read_credential_files(&mut config.media.ice_servers))
            .map_err(|(key, reason)| source.with_location(key, &reason))?;
        config.server.api_key = environment::api_key(variable)?;
        config.changed = settings::changed_settings(&source, variable);
        config.warnings = source.warnings;
        let api_key = config.server.api_key.as_deref();
        config.warnings.extend(api_key.and_then(environment::short_key_warning));
        Ok(config)
    }

    fn validate(&self) -> Result<(), InvalidValue> {
        let seconds = [
            ("timeouts.join", self.timeouts.join),
            ("timeouts.token", self.timeouts.token),
            ("timeouts.closed", self.timeouts.closed),
            ("timeouts.silence", self.timeouts.silence),
            ("timeouts.offer", self.timeouts.offer),
            ("timeouts.drain", self.timeouts.drain),
            ("timeouts.request", self.timeouts.request),
            ("timeouts.lease", self.timeouts.lease),
            ("webhooks.hold", self.webhooks.hold),
            ("server.database_wait", self.server.database_wait),
        ];
        for (name, value) in seconds
            .into_iter()
            .chain(self.webhooks.schedule.iter().map(|s| ("webhooks.schedule", *s)))
        {
            if !(0.0..=1e7).contains(&value) {
                return Err((
                    name,
                    format!("{value} is not a number of seconds between 0 and 10000000"),
                ));
            }
        }
        if self.timeouts.request < 0.1 {
            return Err(("timeouts.request", "must be at least 0.1 seconds".into()));
        }
        let load = self.limits.load;
        if !(0.0..=1.0).contains(&load) {
            return Err(("limits.load", format!("{load} is not a number between 0 and 1")));
        }
        let questions = self.limits.questions;
        if !(0.0..=1000.0).contains(&questions) {
            return Err((
                "limits.questions",
                format!("{questions} is not a number between 0 and 1000"),
            ));
        }
        if self.timeouts.lease < 1.0 {
            return Err(("timeouts.lease", "must be at least 1 second".into()));
        }
        if self.webhooks.schedule.is_empty() {
            return Err(("webhooks.schedule", "must contain at least one delay".into()));
        }
        self.recording.validate()?;
        self.storage.validate()?;
        self.meetings.validate()?;
        self.livekit.validate()?;
        self.media.ports().map_err(|reason| ("media.udp_ports", reason))?;
        if let Some(url) = &self.server.public_url {
            let fault = |reason: &str| Err(("server.public_url", format!("\"{url}\" {reason}")));
            match url::Url::parse(url) {
                Ok(parsed) if !matches!(parsed.scheme(), "http" | "https") => {
                    return fault("is not an http or https URL");
                }
                Ok(parsed) if parsed.host_str().is_none_or(str::is_empty) => {
                    return fault("has no host");
                }
                Ok(parsed) if parsed.query().is_some() || parsed.fragment().is_some() => {
                    return fault(
                        "must not have a query or a fragment, because links are made by appending \
                         to it",
                    );
                }
                Ok(_) => {}
                Err(url::ParseError::EmptyHost) => return fault("has no host"),
                Err(error) => return fault(&format!("is not a valid URL: {error}")),
            }
        }
        match (&self.knowledge.embeddings_url, &self.knowledge.embeddings_model) {
            (Some(url), _)
                if !url::Url::parse(url)
                    .is_ok_and(|url| matches!(url.scheme(), "http" | "https")) =>
            {
                return Err((
                    "knowledge.embeddings_url",
                    format!("\"{url}\" is not an http or https URL"),
                ));
            }
            (Some(_), None) => {
                return Err((
                    "knowledge.embeddings_model",
                    "is required if embeddings_url is set".into(),
                ));
            }
            (None, Some(_)) => {
                return Err((
                    "knowledge.embeddings_url",
                    "is required if embeddings_model is set".into(),
                ));
            }
            _ => {}
        }
        if let Some(url) = &self.otlp.endpoint
            && !url::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
        {
            return Err(("otlp.endpoint", format!("\"{url}\" is not an http or https URL")));
        }
        self.trusted_proxies().map_err(|reason| ("server.trusted_proxies", reason))?;
        for origin in &self.server.cors_origins {
            let same = url::Url::parse(origin)
                .is_ok_and(|url| url.origin().ascii_serialization() == *origin);
            if origin != "*" && !(same && origin.starts_with("http")) {
                return Err((
                    "server.cors_origins",
                    format!(
                        "\"{origin}\" is neither an origin such as \"https://shop.example\" nor \
                         \"*\""
                    ),
                ));
            }
        }
        let known = ["postgres://", "postgresql://"];
        if self
            .server
            .database_url
            .as_ref()
            .is_some_and(|url| !known.iter().any(|k| url.starts_with(k)))
        {
            return Err(("server.database_url", "must start with postgres://".into()));
        }
        Ok(())
    }

    /// Sets `livekit.url` and `livekit.agent_name` by flags.
    ///
    /// # Errors
    /// One sentence: the flags or what they need are not valid.
    pub(crate) fn set_livekit(
        &mut self,
        url: Option<String>,
        agent_name: Option<String>,
    ) -> Result<(), String> {
        self.livekit.url = url.or(self.livekit.url.take());
        if let Some(name) = agent_name {
            self.livekit.agent_name = name;
        }
        self.livekit.validate().map_err(|(key, reason)| format!("{key}: {reason}"))
    }

    /// `server.trusted_proxies`.
    ///
    /// # Errors
    /// An entry is not an address or an address range.
    pub(crate) fn trusted_proxies(&self) -> Result<Vec<control_api::Network>, String> {
        self.server.trusted_proxies.iter().map(|text| text.parse()).collect()
    }
}

#[cfg(test)]
mod tests;
