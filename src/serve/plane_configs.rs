//! The configurations of the two planes and of the HTTP server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use conversation::id::ConversationId;
use engine::recorder::{self, RecorderConfig};
use engine::show::visemes::Viseme;
use engine::transport::socket;
use models::llm::local_servers::STANDARD_PORTS;

use crate::config::Config;
use crate::deliver;

/// Maximum number of HTTP connections without a configured limit. Each one costs memory.
const MAX_HTTP_CONNECTIONS: u64 = 4096;

/// Limits for HTTP clients. Calls, their ICE-TCP connections, the store and outgoing requests need
/// files too, so HTTP gets half of them.
pub(super) fn http_limits(config: &Config) -> control_api::HttpLimits {
    let connections = match config.limits.connections {
        0 => usize::try_from((open_file_limit() / 2).clamp(16, MAX_HTTP_CONNECTIONS))
            .unwrap_or(usize::MAX),
        configured => configured,
    };
    control_api::HttpLimits {
        request_timeout: Duration::from_secs_f64(config.timeouts.request),
        max_connections: connections,
        // Validated with the configuration.
        trusted_proxies: config.trusted_proxies().unwrap_or_default(),
    }
}

/// Raises the limit of open files to the system's maximum. The default is low for the sake of
/// `select`, which this program does not use.
pub(super) fn raise_file_limit() {
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!(%error, limit = open_file_limit(), "cannot raise the limit of open files");
    }
}

/// Maximum number of open files of this process.
fn open_file_limit() -> u64 {
    // The default of most systems.
    rlimit::Resource::NOFILE.get_soft().unwrap_or(1024)
}

pub(super) fn control_config(config: &Config, listen: SocketAddr) -> control_api::Config {
    let seconds = Duration::from_secs_f64;
    control_api::Config {
        listen,
        data: config.server.data.clone(),
        database_url: config.server.database_url.clone(),
        region: config.server.region.clone(),
        secrets_key: config.server.secrets_key.clone(),
        tokens_key: config.server.tokens_key.clone(),
        public_url: config
            .server
            .public_url
            .as_deref()
            .map(|url| url.trim_end_matches('/').to_owned()),
        // Validated with the configuration.
        trusted_proxies: config.trusted_proxies().unwrap_or_default(),
        cors_origins: config.server.cors_origins.clone(),
        metrics_token: config.server.metrics_token.clone(),
        retention_days: config.server.retention_days,
        allow_private_targets: config.server.allow_private_targets,
        api_key: config.server.api_key.clone(),
        timeouts: control_api::Timeouts {
            join: seconds(config.timeouts.join),
            token: seconds(config.timeouts.token),
            offer: seconds(config.timeouts.offer),
            lease: seconds(config.timeouts.lease),
            silence: seconds(config.timeouts.silence),
        },
        webhooks: control_api::Webhooks {
            schedule: config.webhooks.schedule.iter().copied().map(seconds).collect(),
            hold: seconds(config.webhooks.hold),
            ..control_api::Webhooks::default()
        },
        limits: control_api::Limits {
            per_key: config.limits.per_key,
            offers: config.limits.offers,
            embeds: config.limits.embeds,
            workspace_calls: config.limits.workspace_calls,
            workspace_conversations: config.limits.workspace_conversations,
            workspace_agents: config.limits.workspace_agents,
            workspace_bytes: config.limits.workspace_bytes,
        },
        ice_servers: config
            .media
            .ice_servers
            .iter()
            .map(|s| control_api::IceServer {
                urls: s.urls.clone(),
                username: s.username.clone(),
                credential: s.credential.clone(),
            })
            .collect(),
        storage: config.storage.config(),
        meetings: config.meetings.config(),
        livekit: config.livekit.config(),
        branding: config.branding.appearance.clone(),
        recordings: control_api::Recordings {
            link_validity: Duration::from_secs(config.recording.link_seconds),
            ffmpeg: deliver::find_ffmpeg(),
            min_free: config.recording.min_free << 20,
            ..control_api::Recordings::default()
        },
        videos: control_api::Videos {
            command: None,
            models: config.models.folder(),
            avatars: config.avatars.dir.clone(),
        },
        extract_command: None,
        photo_command: std::env::current_exe().ok().map(|program| {
            let models = config.models.folder();
            vec![program.into(), "photo".into(), "--models".into(), models.into()]
        }),
        require_consent: config.avatars.require_consent,
        bake_command: None,
        visemes: Viseme::ALL.map(named_viseme).to_vec(),
        embeddings: config.knowledge.embeddings_config(),
        // Needs the client, whose policy this configuration determines.
        registry: None,
        local_llm_ports: STANDARD_PORTS.to_vec(),
        crash_hook: None,
    }
}

/// The recorder's configuration; `None` if the server cannot record. Completes the files of a
/// process that was killed.
pub(super) fn prepare_recorder(
    config: &Config,
    on_complete: Arc<dyn Fn(ConversationId) + Send + Sync>,
) -> Option<RecorderConfig> {
    let folder = config.server.data.join(engine_api::RECORDINGS_FOLDER);
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700);
    let prepared = builder.create(&folder).and_then(|()| recorder::complete_old_captures(&folder));
    if let Err(error) = prepared {
        tracing::error!(folder = %folder.display(), %error, "calls cannot be recorded");
        return None;
    }
    Some(RecorderConfig { folder, min_free: config.recording.min_free << 20, on_complete })
}

fn named_viseme(viseme: Viseme) -> control_api::Viseme {
    control_api::Viseme { name: viseme.name(), mouth: viseme.mouth() }
}

/// `listen`: the address of the HTTP listener.
pub(super) fn engine_config(config: &Config, listen: SocketAddr) -> anyhow::Result<engine::Config> {
    let ports = config.media.ports().map_err(|e| anyhow!(e))?;
    let seconds = Duration::from_secs_f64;
    Ok(engine::Config {
        threads: config.media.threads,
        max_calls: config.limits.calls as usize,
        // A browser on this machine connects over loopback in every network; Firefox never does.
        host_addresses: socket::host_addresses(listen.ip().is_loopback()),
        // Other machines can neither open a page here nor have they been told of an address.
        loopback_only: listen.ip().is_loopback()
            && config.server.public_url.is_none()
            && config.media.public_ip.is_empty(),
        public_addresses: config.media.public_ip.clone(),
        udp_ports: (*ports.start() != 0).then_some(ports),
        tcp_port: Some(config.media.tcp_port),
        timeouts: engine::Timeouts {
            offer: seconds(config.timeouts.offer),
            closed: seconds(config.timeouts.closed),
            silence: seconds(config.timeouts.silence),
        },
        max_load: config.limits.load,
        min_free_memory: config.limits.memory << 20,
        max_questions_per_second: config.limits.questions,
        trace_dir: Some(config.server.data.join(conversation::trace::TRACES_FOLDER)),
        recorder: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_is_local_only_if_no_other_machine_can_be_a_client() {
        let is_local = |listen: &str, public_url: Option<&str>, public_ip: Option<&str>| {
            let mut config = Config::default();
            config.server.public_url = public_url.map(str::to_owned);
            config.media.public_ip = public_ip.map(|ip| ip.parse().unwrap()).into_iter().collect();
            engine_config(&config, listen.parse().unwrap()).unwrap().loopback_only
        };
        let url = Some("https://talk.example.com");
        assert!(is_local("127.0.0.1:8080", None, None));
        assert!(is_local("[::1]:8080", None, None));
        assert!(!is_local("127.0.0.1:8080", url, None), "a proxy on this machine");
        assert!(!is_local("127.0.0.1:8080", None, Some("203.0.113.7")));
        assert!(!is_local("0.0.0.0:8080", None, None));
        assert!(!is_local("[::]:8080", None, None));
        assert!(!is_local("192.0.2.7:8080", None, None));
    }

    #[test]
    fn as_many_files_may_be_open_as_the_system_allows() {
        let hard = rlimit::Resource::NOFILE.get_hard().unwrap();
        rlimit::Resource::NOFILE.set(hard.min(256), hard).unwrap();
        let config = Config::default();
        let few = http_limits(&config).max_connections;
        raise_file_limit();
        assert_eq!(rlimit::Resource::NOFILE.get().unwrap(), (hard, hard));
        assert_eq!(few as u64, hard.min(256) / 2);
        assert_eq!(
            http_limits(&config).max_connections as u64,
            (hard / 2).clamp(16, MAX_HTTP_CONNECTIONS)
        );
    }
}
