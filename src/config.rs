//! The configuration: flag over environment over file over default.
//!
//! Every key of `config/example.toml` is also `VISAVIS_<SECTION>_<KEY>`. An unknown key is refused with its nearest name, because a
//! misspelt limit is worse than a server that does not start.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

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
    pub(crate) limits: Limits,
}

/// `[server]`
#[derive(Clone, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Server {
    pub(crate) listen: SocketAddr,
    pub(crate) data: PathBuf,
    pub(crate) public_url: Option<String>,
    pub(crate) database_url: Option<String>,
    pub(crate) metrics_token: Option<String>,
    pub(crate) retention_days: u32,
    pub(crate) allow_private_targets: Option<bool>,
    pub(crate) allow_scripted: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            data: PathBuf::from("data"),
            public_url: None,
            database_url: None,
            metrics_token: None,
            retention_days: 0,
            allow_private_targets: None,
            allow_scripted: false,
        }
    }
}

impl std::fmt::Debug for Server {
    /// Without the database's password and the metrics token.
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
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { join: 300.0, token: 300.0, closed: 5.0, silence: 25.0, offer: 15.0, drain: 60.0 }
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
    /// The ports of `udp_ports`: `"0"` (any free port), `"50000"` or `"50000-50007"`, one for each media thread.
    pub(crate) fn ports(&self) -> Result<std::ops::RangeInclusive<u16>, String> {
        let wrong = || {
            format!(
                "media.udp_ports: \"{}\" is neither a port nor a range such as \"50000-50007\"",
                self.udp_ports
            )
        };
        let (first, last) = self.udp_ports.split_once('-').unwrap_or((&self.udp_ports, &self.udp_ports));
        let first: u16 = first.trim().parse().map_err(|_| wrong())?;
        let last: u16 = last.trim().parse().map_err(|_| wrong())?;
        if first > last || (first == 0 && last != 0) { Err(wrong()) } else { Ok(first..=last) }
    }
}

/// One entry of `media.ice_servers`, as the browser's `RTCIceServer`.
#[derive(Clone, Deserialize, PartialEq)]
pub(crate) struct IceServer {
    pub(crate) urls: Vec<String>,
    #[serde(default)]
    pub(crate) username: Option<String>,
    #[serde(default)]
    pub(crate) credential: Option<String>,
}

impl std::fmt::Debug for IceServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IceServer").field("urls", &self.urls).finish_non_exhaustive()
    }
}

/// `[stt]`
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Stt {
    /// Decoders; 0 = one a core.
    pub(crate) pool: usize,
}

/// `[models]`
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Models {
    pub(crate) dir: PathBuf,
}

impl Default for Models {
    fn default() -> Self {
        Self { dir: PathBuf::from(".cache/models") }
    }
}

/// `[limits]`: requests a minute; 0 = off.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Limits {
    pub(crate) per_key: u32,
    pub(crate) offers: u32,
    pub(crate) embeds: u32,
    pub(crate) calls: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_key: 0, offers: 30, embeds: 10, calls: 0 }
    }
}

/// All keys, as in `config/example.toml`.
const KEYS: &[(&str, &[&str])] = &[
    (
        "server",
        &[
            "listen",
            "data",
            "public_url",
            "database_url",
            "metrics_token",
            "retention_days",
            "allow_private_targets",
            "allow_scripted",
        ],
    ),
    ("timeouts", &["join", "token", "closed", "silence", "offer", "drain"]),
    ("webhooks", &["schedule", "hold"]),
    ("media", &["public_ip", "udp_ports", "tcp_port", "ice_servers", "threads"]),
    ("stt", &["pool"]),
    ("models", &["dir"]),
    ("limits", &["per_key", "offers", "embeds", "calls"]),
];

/// Variables that begin with `VISAVIS_` and are no keys.
const NOT_KEYS: &[&str] = &["VISAVIS_API_KEY", "VISAVIS_LOG", "VISAVIS_BIN"];

impl Config {
    /// Reads the file, if any, and the environment; flags are laid over it by the caller.
    ///
    /// # Errors
    /// One sentence: the key, its value's fault, and the nearest name where the key is unknown.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, String> {
        let mut table = match file {
            None => Table::new(),
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
                text.parse::<Table>()
                    .map_err(|e| format!("{}: {}", path.display(), e.to_string().replace('\n', " ").trim()))?
            }
        };
        for (section, value) in &table {
            let Some((_, keys)) = KEYS.iter().find(|(name, _)| name == section) else {
                return Err(unknown(&format!("[{section}]"), section, KEYS.iter().map(|(name, _)| *name)));
            };
            let Value::Table(entries) = value else {
                return Err(format!("{section} is a section: write [{section}]"));
            };
            for key in entries.keys() {
                if !keys.contains(&key.as_str()) {
                    return Err(unknown(&format!("{section}.{key}"), key, keys.iter().copied()));
                }
            }
        }
        for (name, text) in environment {
            let Some(rest) = name.strip_prefix("VISAVIS_") else { continue };
            if NOT_KEYS.contains(&name.as_str()) {
                continue;
            }
            let names = KEYS.iter().flat_map(|(s, keys)| keys.iter().map(move |k| (*s, *k)));
            let Some((section, key)) =
                names.clone().find(|(s, k)| format!("{s}_{k}").eq_ignore_ascii_case(rest))
            else {
                let all: Vec<String> =
                    names.map(|(s, k)| format!("VISAVIS_{s}_{k}").to_uppercase()).collect();
                return Err(unknown(&name, &name, all.iter().map(String::as_str)));
            };
            let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(section) = section {
                section.insert(key.to_owned(), scalar(&text));
            }
        }
        let config: Self = Value::Table(table)
            .try_into()
            .map_err(|e: toml::de::Error| e.to_string().replace('\n', " ").trim().to_owned())?;
        config.checked()
    }

    fn checked(self) -> Result<Self, String> {
        let seconds = [
            ("timeouts.join", self.timeouts.join),
            ("timeouts.token", self.timeouts.token),
            ("timeouts.closed", self.timeouts.closed),
            ("timeouts.silence", self.timeouts.silence),
            ("timeouts.offer", self.timeouts.offer),
            ("timeouts.drain", self.timeouts.drain),
            ("webhooks.hold", self.webhooks.hold),
        ];
        for (name, value) in
            seconds.into_iter().chain(self.webhooks.schedule.iter().map(|s| ("webhooks.schedule", *s)))
        {
            if !(0.0..=1e7).contains(&value) {
                return Err(format!("{name}: {value} is not a number of seconds between 0 and 10000000"));
            }
        }
        if self.webhooks.schedule.is_empty() {
            return Err("webhooks.schedule: at least one try is needed".into());
        }
        self.media.ports()?;
        if let Some(url) = &self.server.public_url
            && !(url.starts_with("http://") || url.starts_with("https://"))
        {
            return Err(format!("server.public_url: \"{url}\" is no http or https address"));
        }
        Ok(self)
    }
}

/// An environment variable's value: a TOML value where it is one, else a string; commas make a list of addresses.
fn scalar(text: &str) -> Value {
    let parsed = format!("v = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("v"));
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

fn unknown<'a>(shown: &str, key: &str, known: impl Iterator<Item = &'a str>) -> String {
    let nearest =
        known.min_by_key(|name| distance(&name.to_lowercase(), &key.to_lowercase())).unwrap_or_default();
    format!("unknown configuration key {shown}; did you mean {nearest}?")
}

/// Levenshtein's distance, in bytes.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
        let dir = std::env::temp_dir().join(format!("visavis-config-{}-{}", std::process::id(), file.len()));
        std::fs::write(&dir, file).unwrap();
        let result =
            Config::load(Some(&dir), environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        std::fs::remove_file(dir).unwrap();
        result
    }

    #[test]
    fn environment_wins_over_file_over_default() {
        let config = load(
            "[server]\nlisten = \"127.0.0.1:1\"\n[stt]\npool = 3\n",
            &[
                ("VISAVIS_STT_POOL", "5"),
                ("VISAVIS_MEDIA_PUBLIC_IP", "[\"192.0.2.1\"]"),
                ("VISAVIS_API_KEY", "k"),
            ],
        )
        .unwrap();
        assert_eq!((config.server.listen.port(), config.stt.pool, config.timeouts.join), (1, 5, 300.0));
        assert_eq!(config.media.public_ip, vec![IpAddr::from([192, 0, 2, 1])]);
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_nearest_name() {
        assert_eq!(
            load("[server]\nlisen = 1\n", &[]).unwrap_err(),
            "unknown configuration key server.lisen; did you mean listen?"
        );
        assert_eq!(
            load("[sever]\n", &[]).unwrap_err(),
            "unknown configuration key [sever]; did you mean server?"
        );
        assert_eq!(
            load("", &[("VISAVIS_STT_POOLS", "1")]).unwrap_err(),
            "unknown configuration key VISAVIS_STT_POOLS; did you mean VISAVIS_STT_POOL?"
        );
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        assert!(load("[timeouts]\njoin = -1\n", &[]).unwrap_err().starts_with("timeouts.join"));
        assert!(load("[media]\nudp_ports = \"9-1\"\n", &[]).unwrap_err().starts_with("media.udp_ports"));
        assert!(load("[server]\nlisten = \"nowhere\"\n", &[]).unwrap_err().contains("listen"));
    }

    #[test]
    fn the_example_names_every_key_and_holds_the_defaults() {
        let text = include_str!("../config/example.toml");
        for (section, keys) in KEYS {
            assert!(text.contains(&format!("[{section}]")), "{section}");
            for key in *keys {
                assert!(
                    text.lines().any(|l| l.trim_start_matches('#').trim().starts_with(&format!("{key} ="))),
                    "{section}.{key}"
                );
            }
        }
        assert_eq!(load(text, &[]).unwrap(), Config::default());
    }
}
