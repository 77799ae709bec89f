//! Configuration of the control plane, with the defaults of `config/example.toml`.

mod branding;
mod livekit;

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use models::llm::local_servers::{LocalPort, STANDARD_PORTS};
use models::registry::Registry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::branding::{BrandColor, Branding, Logo};
pub(crate) use self::branding::{DARK_TEXT, MIN_CONTRAST, Rgb};
pub use self::livekit::LiveKitConfig;
use crate::meeting_services::{MediaMode, SERVICES};
use crate::secret_key::SecretKey;
use crate::store::crash_points::CrashHook;

/// Everything that concerns this plane. The binary parses files and environment and fills it in.
#[derive(Clone)]
pub struct Config {
    /// `server.listen`: address of the API. Determines the Host check and the default of
    /// `allow_private_targets`.
    pub listen: SocketAddr,
    /// `server.data`: folder of the database and the key files; created if absent.
    pub data: PathBuf,
    /// `server.database_url`: a PostgreSQL database that several servers may share; `None` = SQLite
    /// in the data folder. Servers that share a database have the same keys.
    pub database_url: Option<String>,
    /// `server.region`: a name that the list of servers shows.
    pub region: String,
    /// `server.secrets_key`: encrypts the secrets of the store; `None` = `secrets.key` in the data
    /// folder, created if absent.
    pub secrets_key: Option<SecretKey>,
    /// `server.tokens_key`: signs session tokens and links; `None` = `tokens.key` in the data folder,
    /// created if absent.
    pub tokens_key: Option<SecretKey>,
    /// `server.public_url`: `{base_url}`, without a trailing slash; otherwise `http://` and the
    /// request's checked Host.
    pub public_url: Option<String>,
    /// `server.trusted_proxies`: peers whose `X-Forwarded-For` is trusted, in addition to this
    /// machine's.
    pub trusted_proxies: Vec<Network>,
    /// `server.cors_origins`: origins whose pages may call the REST plane, such as
    /// `https://shop.example`; `*` = any. Signaling accepts every origin in any case.
    pub cors_origins: Vec<String>,
    /// `server.metrics_token`: permits access to `/metrics` for peers other than loopback.
    pub metrics_token: Option<String>,
    /// `server.retention_days`: ended conversations older than this are erased; 0 = never.
    pub retention_days: u32,
    /// `server.allow_private_targets`; `None` = allowed if `listen` is loopback and there is no
    /// `public_url`.
    pub allow_private_targets: Option<bool>,
    /// `VISAVIS_API_KEY`: a predefined key of the first workspace.
    pub api_key: Option<String>,
    /// `timeouts.*`
    pub timeouts: Timeouts,
    /// `webhooks.*`
    pub webhooks: Webhooks,
    /// `limits.*`
    pub limits: Limits,
    /// `media.ice_servers`, sent to pages and clients.
    pub ice_servers: Vec<IceServer>,
    /// `[storage]`
    pub storage: StorageConfig,
    /// How recordings are delivered.
    pub recordings: Recordings,
    /// How videos are made.
    pub videos: Videos,
    /// `[meetings]`
    pub meetings: MeetingsConfig,
    /// `[livekit]`; `None` = no agent joins LiveKit rooms.
    pub livekit: Option<LiveKitConfig>,
    /// `[branding]`
    pub branding: Branding,
    /// Program and arguments that read a document from standard input and run
    /// [`extract_as_child`](crate::extract_as_child). The document's type is appended. `None` =
    /// this program with the argument `extract`.
    pub extract_command: Option<Vec<OsString>>,
    /// Program and arguments that check a photo like `visavis photo`. `None` = this program with the
    /// argument `photo`.
    pub photo_command: Option<Vec<OsString>>,
    /// `avatars.require_consent`: whether an avatar from a photo needs the person's consent.
    pub require_consent: bool,
    /// Program and arguments that draw avatars like `visavis`. `bake …` or `draw` is appended.
    /// `None` = this program.
    pub bake_command: Option<Vec<OsString>>,
    /// The visemes, with their lip shapes, for the character editor.
    pub visemes: Vec<Viseme>,
    /// `knowledge.embeddings_*`: the source of embeddings; `None` = knowledge is searched by words
    /// only.
    pub embeddings: Option<models::embeddings::Config>,
    /// The models of all providers, shared with the engine; `None` = the built-in providers are
    /// listed, and none can be tried.
    pub registry: Option<Arc<Registry>>,
    /// The ports on which LLM servers of this machine are looked for, if the operator asks.
    pub local_llm_ports: Vec<LocalPort>,
    /// Called at each crash point, for tests that stop the process there. The server itself sets
    /// none.
    pub crash_hook: Option<CrashHook>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            data: PathBuf::from("data"),
            database_url: None,
            region: String::new(),
            secrets_key: None,
            tokens_key: None,
            public_url: None,
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
            metrics_token: None,
            retention_days: 0,
            allow_private_targets: None,
            api_key: None,
            timeouts: Timeouts::default(),
            webhooks: Webhooks::default(),
            limits: Limits::default(),
            ice_servers: Vec::new(),
            storage: StorageConfig::default(),
            recordings: Recordings::default(),
            videos: Videos::default(),
            meetings: MeetingsConfig::default(),
            livekit: None,
            branding: Branding::default(),
            extract_command: None,
            photo_command: None,
            require_consent: false,
            bake_command: None,
            visemes: Vec::new(),
            embeddings: None,
            registry: None,
            local_llm_ports: STANDARD_PORTS.to_vec(),
            crash_hook: None,
        }
    }
}

impl fmt::Debug for Config {
    /// Without keys and tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("listen", &self.listen)
            .field("data", &self.data)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Whether only this machine can reach the server: loopback listener, no public URL.
    #[must_use]
    pub fn is_local_only(&self) -> bool {
        self.listen.ip().is_loopback() && self.public_url.is_none()
    }

    /// Whether webhooks may go to private addresses.
    #[must_use]
    pub fn allows_private_targets(&self) -> bool {
        self.allow_private_targets.unwrap_or_else(|| self.is_local_only())
    }
}

/// `timeouts.*`
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Time from creation after which a conversation that no client joined ends.
    pub join: Duration,
    /// Time from creation within which the first join must happen.
    pub token: Duration,
    /// Time that an offer has to connect.
    pub offer: Duration,
    /// Time for which a renewal of this server's lease holds. Others take over what belongs to a
    /// server whose process has ended, or whose lease ran out `silence` ago.
    pub lease: Duration,
    /// Time for which a call goes on without its client: the engine's `timeouts.silence`.
    pub silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            join: Duration::from_secs(300),
            token: Duration::from_secs(300),
            offer: Duration::from_secs(15),
            lease: Duration::from_secs(10),
            silence: Duration::from_secs(25),
        }
    }
}

/// `webhooks.*`
#[derive(Clone, Debug)]
pub struct Webhooks {
    /// Delays before each attempt, including the first one. After the last failure the delivery is
    /// a dead letter.
    pub schedule: Vec<Duration>,
    /// How long a failing event holds the next one of its conversation back.
    pub hold: Duration,
    /// Timeout of an attempt. Shorter than `hold`, so that a receiver that hangs delays the next
    /// event no longer than `hold`.
    pub timeout: Duration,
    /// A retry that is further away waits in the store instead of in memory.
    pub memory_horizon: Duration,
}

impl Default for Webhooks {
    fn default() -> Self {
        let schedule = [0, 5, 300, 1800, 7200, 18_000, 36_000].map(Duration::from_secs).to_vec();
        Self {
            schedule,
            hold: Duration::from_secs(30),
            timeout: Duration::from_secs(15),
            memory_horizon: Duration::from_secs(120),
        }
    }
}

/// `limits.*`; 0 = off.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests of one API key per minute.
    pub per_key: u32,
    /// Offers of one address per minute.
    pub offers: u32,
    /// Conversations that one address starts at embedded agents, per minute.
    pub embeds: u32,
    /// Concurrent calls of one workspace.
    pub workspace_calls: u32,
    /// Conversations that one workspace creates per day (UTC).
    pub workspace_conversations: u32,
    /// Agents of one workspace.
    pub workspace_agents: u32,
    /// Bytes that one workspace stores, in their stored form: records and their documents, custom
    /// avatars; not conversations.
    pub workspace_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_key: 0,
            offers: 30,
            embeds: 10,
            workspace_calls: 0,
            workspace_conversations: 0,
            workspace_agents: 0,
            workspace_bytes: 0,
        }
    }
}

/// `[storage]`: where recordings are stored.
#[derive(Clone, Default)]
pub struct StorageConfig {
    /// `storage.url`; `None` = a folder in the data folder.
    pub url: Option<String>,
    /// Names and values of the vendors' standard variables: `AWS_…`, `AZURE_…`, `GOOGLE_…`. They
    /// contain credentials.
    pub options: Vec<(String, String)>,
}

impl fmt::Debug for StorageConfig {
    /// Without the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorageConfig").field("url", &self.url).finish_non_exhaustive()
    }
}

impl StorageConfig {
    /// Checks the form of a URL.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn check_url(url: &str) -> Result<(), String> {
        let url = url::Url::parse(url).map_err(|error| format!("is not a valid URL: {error}"))?;
        if url.password().is_some() || url.query().is_some() {
            return Err("must contain neither a password nor a query".into());
        }
        match (url.scheme(), url.host_str()) {
            ("file", None) => Ok(()),
            ("file", Some(_)) => Err("must have three slashes before the path".into()),
            ("s3" | "gs" | "az", Some(bucket)) if !bucket.is_empty() => Ok(()),
            ("s3" | "gs" | "az", _) => Err("names no bucket".into()),
            _ => Err("must start with file://, s3://, gs:// or az://".into()),
        }
    }
}

/// How recordings are delivered.
#[derive(Clone, Debug)]
pub struct Recordings {
    /// `recording.link_seconds`: how long a link to a recording is valid.
    pub link_validity: Duration,
    /// Delay before the first repetition of a step that failed; it doubles up to ten minutes.
    pub retry_delay: Duration,
    /// Program and arguments that write the delivered files like `visavis`.
    /// `deliver-recording …` or `convert-recording …` is appended. `None` = this program.
    pub command: Option<Vec<OsString>>,
    /// Path of ffmpeg, which MP4 needs.
    pub ffmpeg: Option<PathBuf>,
    /// `recording.min_free` in bytes: while less is free on the disk of the data folder, recordings
    /// wait for their delivery. 0 = no limit.
    pub min_free: u64,
}

impl Default for Recordings {
    fn default() -> Self {
        Self {
            link_validity: Duration::from_secs(3600),
            retry_delay: Duration::from_secs(10),
            command: None,
            ffmpeg: None,
            min_free: 0,
        }
    }
}

/// How videos are made. What they share with recordings is in [`Recordings`]: ffmpeg, the command
/// that converts, the delays, the links, and the space that stays free.
#[derive(Clone, Debug, Default)]
pub struct Videos {
    /// Program and arguments that render videos like `visavis`. `render-video` is appended. `None` =
    /// this program.
    pub command: Option<Vec<OsString>>,
    /// `models.dir`: folder of the built-in voices.
    pub models: PathBuf,
    /// `avatars.dir`: folder of further stock avatars.
    pub avatars: Option<PathBuf>,
}

/// `[meetings]`: the meeting-bot service of the workspaces without their own, and the times of all
/// meetings.
#[derive(Clone)]
pub struct MeetingsConfig {
    /// `meetings.provider`; `None` = only workspaces with their own account send agents into
    /// meetings.
    pub provider: Option<String>,
    /// `meetings.url`: base URL of the service; `None` = its own.
    pub url: Option<String>,
    /// `meetings.key`. Secret.
    pub key: Option<String>,
    /// `meetings.webhook_secret`. Secret.
    pub webhook_secret: Option<String>,
    /// `meetings.media`: how a service that can choose delivers media, `page` or `socket`.
    pub media: String,
    /// `meetings.lobby_timeout`: time for joining, including the admission.
    pub lobby_timeout: Duration,
    /// `meetings.alone_timeout`: time after which an agent that is alone leaves.
    pub alone_timeout: Duration,
    /// `meetings.max_duration`: maximum time in a meeting, unless the agent states one.
    pub max_duration: Duration,
    /// `meetings.reconnect_timeout`: time for which a call waits for its page or socket.
    pub reconnect_timeout: Duration,
    /// `meetings.message`: posted to the meeting's chat; `None` = a sentence about the agent, empty =
    /// nothing.
    pub message: Option<String>,
    /// `meetings.login_groups`: groups of accounts at Attendee, by the `email` of agents.
    pub login_groups: Vec<(String, String)>,
}

impl Default for MeetingsConfig {
    fn default() -> Self {
        Self {
            provider: None,
            url: None,
            key: None,
            webhook_secret: None,
            media: "page".to_owned(),
            lobby_timeout: Duration::from_secs(600),
            alone_timeout: Duration::from_secs(60),
            max_duration: Duration::from_secs(14_400),
            reconnect_timeout: Duration::from_secs(60),
            message: None,
            login_groups: Vec::new(),
        }
    }
}

impl fmt::Debug for MeetingsConfig {
    /// Without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeetingsConfig").field("provider", &self.provider).finish_non_exhaustive()
    }
}

impl MeetingsConfig {
    /// Checks `meetings.provider`.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn check_provider(name: &str) -> Result<(), String> {
        if SERVICES.iter().any(|(known, _)| *known == name) {
            return Ok(());
        }
        let names: Vec<&str> = SERVICES.iter().map(|(known, _)| *known).collect();
        Err(format!("is not a meeting service; known are {}", names.join(", ")))
    }

    /// How a service that can choose delivers media.
    pub(crate) fn preferred_media(&self) -> MediaMode {
        if self.media == "socket" { MediaMode::Socket } else { MediaMode::Page }
    }
}

/// One entry of `media.ice_servers`, as a browser's `RTCIceServer`.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct IceServer {
    /// `stun:` and `turn:` URLs.
    pub urls: Vec<String>,
    /// For TURN.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub username: Option<String>,
    /// For TURN.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub credential: Option<String>,
}

impl fmt::Debug for IceServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IceServer").field("urls", &self.urls).finish_non_exhaustive()
    }
}

/// A stock avatar, as in the response of `GET /v1/ext/avatars`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StockAvatar {
    /// Id used when an agent is created.
    pub avatar_key_id: String,
    /// Default name.
    pub avatar_name: String,
    /// `male` or `female`.
    pub gender: String,
    /// Picture, as a base64 data URI.
    pub display_picture: String,
    /// The built-in voice that speaks unless another one is selected. Not in responses.
    #[serde(skip)]
    pub voice: String,
}

/// A viseme: a lip shape of speech.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Viseme {
    /// Its common name: `PP`, `aa` …
    pub name: &'static str,
    /// The shape of the mouth.
    pub mouth: models::face::Mouth,
}

/// An address, or a range of addresses such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        net.map(|net| Self(to_canonical(net))).map_err(|_| {
            format!("\"{text}\" is neither an address nor a range such as \"10.0.0.0/8\"")
        })
    }
}

/// A range of IPv4 addresses that is written in IPv6 (`::ffff:10.0.0.0/104`), as one of IPv4: the
/// addresses of peers are compared in that form.
fn to_canonical(net: IpNet) -> IpNet {
    let IpNet::V6(v6) = net else { return net };
    let mapped = v6.network().to_ipv4_mapped();
    let length = v6.prefix_len().checked_sub(96);
    let v4 = mapped.zip(length).and_then(|(ip, length)| Ipv4Net::new(ip, length).ok());
    v4.map_or(net, IpNet::V4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_network_may_be_written_in_ipv6() {
        for (network, address, expected) in [
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "11.1.2.3", false),
            ("::ffff:10.1.2.3", "10.1.2.3", true),
            ("fd00::/8", "fd00::1", true),
            ("::/0", "10.1.2.3", false),
        ] {
            let network: Network = network.parse().unwrap();
            assert_eq!(
                network.contains(address.parse().unwrap()),
                expected,
                "{network:?} {address}"
            );
        }
    }

    #[test]
    fn an_invalid_network_is_rejected() {
        for text in ["", "10.0.0.0/33", "proxy.example", "10.0.0"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
