//! `visavis serve`: connects the control plane to the engine and runs the process.
//!
//! ```text
//! start ──listening──► serving ──signal──► draining ──► stopping ──► exit
//!                                           │  all calls ended,
//!                                           │  `timeouts.drain` elapsed,
//!                                           └─ or a second signal
//! ```
//!
//! Draining admits no new calls. Stopping exports the last spans, finishes the HTTP requests, and
//! then closes the store, within 5 s.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use conversation::id::ConversationId;
use engine::recorder::{self, RecorderConfig};
use engine::show::Avatars;
use engine::show::visemes::Viseme;
use models::llm::local_servers::STANDARD_PORTS;
use models::registry::{Accounts, Vendor};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::ServeArgs;
use crate::config::Config;
use crate::{CommandError, deliver, load_config, local_models, log, otlp};

/// What the process serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Pages, API and calls; LiveKit rooms if they are configured.
    Server,
    /// Only LiveKit rooms.
    Worker,
}

pub(crate) fn run(options: &ServeArgs, role: Role) -> Result<ExitCode, CommandError> {
    let mut config = load_config(&options.paths)?;
    config
        .set_livekit(options.livekit.clone(), options.agent_name.clone())
        .map_err(CommandError::Usage)?;
    if role == Role::Worker {
        check_worker(&config).map_err(CommandError::Usage)?;
    }
    if let Some(listen) = options.listen {
        config.server.listen = listen;
    }
    if options.allow_private_targets.is_some() {
        config.server.allow_private_targets = options.allow_private_targets;
    }
    config.server.allow_scripted |= options.allow_scripted;
    if let Some(format) = options.log_format {
        config.server.log_format = format;
    }
    log::init(config.server.log_format).map_err(CommandError::Usage)?;
    engine::thread::log_panics();
    raise_file_limit();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().thread_name("net").enable_all().build()?;
    let result = runtime.block_on(serve(config, role));
    // Nothing needs the tasks that still run on the pool.
    runtime.shutdown_background();
    result?;
    // The threads of models may still run.
    models::exit_process(0)
}

/// Checks what a worker needs.
fn check_worker(config: &Config) -> Result<(), String> {
    if config.server.database_url.is_none() {
        let why = "a worker needs server.database_url, the PostgreSQL database of the fleet; \
                   without one, run `visavis serve --livekit URL`";
        return Err(why.to_owned());
    }
    if config.livekit.url.is_none() {
        return Err("a worker needs --livekit URL, or livekit.url".to_owned());
    }
    Ok(())
}

async fn serve(config: Config, role: Role) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // With a handler, a write beyond the file-size limit fails, as on a full disk. Without one, the
    // signal would end the process.
    let _file_size_signal = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
    let listen_address = config.server.listen;
    let listener = TcpListener::bind(listen_address).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => {
            anyhow!(
                "{listen_address} is in use: stop the other program, or choose another port with \
                 --listen"
            )
        }
        _ => anyhow!("cannot listen on {listen_address}: {e}"),
    })?;
    let listen = listener.local_addr()?;

    let mut avatars = Avatars::built_in().context("cannot read the built-in avatars")?;
    if let Some(dir) = &config.avatars.dir {
        avatars.add_dir(dir).context("avatars.dir")?;
    }
    let stock = avatars.stock_avatars().into_iter().map(|a| control_api::StockAvatar {
        avatar_key_id: a.avatar_key_id,
        avatar_name: a.avatar_name,
        gender: a.gender,
        display_picture: a.display_picture,
        voice: a.voice,
    });
    if !documents::Sandbox::available().refuses_files() {
        tracing::warn!(
            "the kernel has neither Landlock nor seccomp: an exploited document parser can read \
             everything that the server can"
        );
    }
    let mut control = control_config(&config, listen);
    let client =
        egress::Client::new(egress::Policy { allow_private: control.allows_private_targets() })?;
    let accounts = provider_accounts(&config).await?;
    let runtime = tokio::runtime::Handle::current();
    let registry = local_models::create_registry(&config, accounts, client.clone(), &runtime);
    control.registry = Some(Arc::clone(&registry));
    let app = Arc::new(control_api::App::open(control, stock.collect(), client.clone()).await?);
    let (event_sink, exporter) = match otlp_collector(&config) {
        Some(collector) => {
            let (event_sink, exporter) = otlp::start_exporter(app.event_sink(), collector, &client);
            (event_sink, Some(exporter))
        }
        None => (app.event_sink(), None),
    };
    let models = local_models::create_models(&config, registry);
    let engine = engine::CallEngine::start(
        engine::Config {
            recorder: prepare_recorder(&config, app.recorded_hook()),
            ..engine_config(&config, listen.ip())?
        },
        models,
        avatars,
        client,
        event_sink,
        tokio::runtime::Handle::current(),
    )
    .context("cannot start the engine")?;

    // A worker leaves the first start of a database to a server with the API.
    let first_key = if role == Role::Server { app.bootstrap().await? } else { None };
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let (close, closed) = tokio::sync::watch::channel(false);
    let background = tokio::spawn({
        let app = Arc::clone(&app);
        async move { app.run_background(Box::pin(wait_for_stop(closed))).await }
    });
    let router = match role {
        Role::Server => app.router(Arc::clone(&engine) as _),
        Role::Worker => app.worker_router(Arc::clone(&engine) as _),
    };
    let serving = tokio::spawn(control_api::serve(
        listener,
        router,
        http_limits(&config),
        Box::pin(wait_for_stop(stopped)),
    ));

    println!("Visavis is listening on http://{listen}");
    if let Some(key) = first_key {
        println!("API key: {key}");
    }
    if role == Role::Server
        && let Some(demo) = app.find_demo_agent().await?
    {
        println!("Demo: http://{listen}/embed/{demo}");
    }

    let hooks = control_api::WorkerHooks {
        on_registered: Box::new(|registration| {
            let control_api::Registration { worker, url, agent_name } = registration;
            println!("Visavis worker {worker} is registered with {url} as {agent_name}");
        }),
    };
    let mut livekit = tokio::spawn(app.run_livekit(hooks));

    if !config.livekit.is_used() {
        wait_for_signal(&mut terminate, &mut interrupt).await;
    } else {
        tokio::select! {
            () = wait_for_signal(&mut terminate, &mut interrupt) => {}
            ended = &mut livekit => {
                ended?.map_err(|why| anyhow!(why))?;
            }
        }
    }
    tracing::info!(
        "draining: no new calls are accepted; a second signal stops the server immediately"
    );
    app.drain();
    tokio::select! {
        () = engine.drain(Duration::from_secs_f64(config.timeouts.drain)) => {}
        // These calls end with events too, which must precede the closing of the store.
        () = wait_for_signal(&mut terminate, &mut interrupt) => engine.drain(Duration::ZERO).await,
    }
    if let Some(exporter) = exporter {
        exporter.shutdown().await;
    }
    // Requests in progress finish before the store is closed. The events of the last calls are
    // stored before the process exits.
    let _ = stop.send(true);
    let _ = serving.await;
    let _ = close.send(true);
    let _ = tokio::time::timeout(Duration::from_secs(5), background).await;
    Ok(())
}

/// The operator's accounts at vendors, with the ids of their workspaces.
async fn provider_accounts(config: &Config) -> anyhow::Result<Accounts> {
    let mut accounts = config.providers.accounts();
    if accounts.name_workspaces() {
        let (data, url) = (&config.server.data, config.server.database_url.as_deref());
        let workspaces = control_api::workspaces::prepare(data, url).await?;
        for (vendor, entry) in accounts.resolve_workspaces(&workspaces) {
            tracing::warn!("{}", unknown_workspace(vendor, &entry));
        }
    }
    Ok(accounts)
}

/// A sentence about an entry of an account's `workspaces`.
pub(crate) fn unknown_workspace(vendor: &Vendor, entry: &str) -> String {
    let name = vendor.name;
    format!(
        "providers.{name}.workspaces: no workspace has the name or id {entry:?}; \
         `visavis keys list` prints the names"
    )
}

/// The collector for spans, if any: from the configuration, else from the variables that all
/// OpenTelemetry programs read.
fn otlp_collector(config: &Config) -> Option<otlp::Collector> {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
    let endpoint =
        config.otlp.endpoint.clone().or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT"))?;
    let headers = variable("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
    Some(otlp::Collector::new(&endpoint, &headers))
}

async fn wait_for_stop(mut stopped: tokio::sync::watch::Receiver<bool>) {
    // An error means that the sender is gone, which also means stop.
    let _ = stopped.wait_for(|stop| *stop).await;
}

async fn wait_for_signal(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Maximum number of HTTP connections without a configured limit. Each one costs memory.
const MAX_HTTP_CONNECTIONS: u64 = 4096;

/// Limits for HTTP clients. Calls, their ICE-TCP connections, the store and outgoing requests need
/// files too, so HTTP gets half of them.
fn http_limits(config: &Config) -> control_api::HttpLimits {
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
fn raise_file_limit() {
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!(%error, limit = open_file_limit(), "cannot raise the limit of open files");
    }
}

/// Maximum number of open files of this process.
fn open_file_limit() -> u64 {
    // The default of most systems.
    rlimit::Resource::NOFILE.get_soft().unwrap_or(1024)
}

fn control_config(config: &Config, listen: SocketAddr) -> control_api::Config {
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
        api_key: std::env::var("VISAVIS_API_KEY").ok().filter(|key| !key.is_empty()),
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
            models: config.models.dir.clone(),
            avatars: config.avatars.dir.clone(),
        },
        extract_command: None,
        photo_command: std::env::current_exe().ok().map(|program| {
            let models = config.models.dir.clone();
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
fn prepare_recorder(
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

fn engine_config(config: &Config, listen: IpAddr) -> anyhow::Result<engine::Config> {
    let ports = config.media.ports().map_err(|e| anyhow!(e))?;
    let seconds = Duration::from_secs_f64;
    Ok(engine::Config {
        threads: config.media.threads,
        max_calls: config.limits.calls as usize,
        // A browser on this machine connects fastest over loopback, and in every network.
        host_addresses: engine::transport::socket::host_addresses(listen.is_loopback()),
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
