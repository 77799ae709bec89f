//! `visavis serve`: the planes put together, and the life of the process.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use engine::show::Avatars;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::Serve;
use crate::config::Config;
use crate::{Failure, configuration, local};

pub(crate) fn run(options: &Serve) -> Result<ExitCode, Failure> {
    let mut config = configuration(&options.place)?;
    if let Some(listen) = options.listen {
        config.server.listen = listen;
    }
    if options.allow_private_targets.is_some() {
        config.server.allow_private_targets = options.allow_private_targets;
    }
    config.server.allow_scripted |= options.allow_scripted;
    log().map_err(Failure::Usage)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().thread_name("net").enable_all().build()?;
    let result = runtime.block_on(serve(config));
    // What still runs on the pool is nobody's any more.
    runtime.shutdown_background();
    result?;
    Ok(ExitCode::SUCCESS)
}

/// Logs go to stderr, one line each; `VISAVIS_LOG` filters (`info`, `visavis_engine=debug` …).
fn log() -> Result<(), String> {
    let wanted = std::env::var_os("VISAVIS_LOG").filter(|text| !text.is_empty());
    let wanted = wanted.map_or_else(|| "info,str0m=warn".into(), |text| text.to_string_lossy().into_owned());
    let filter = filter(&wanted).map_err(|reason| {
        format!("VISAVIS_LOG: {reason}; write a level (off, error, warn, info, debug, trace) or \"info,str0m=debug\"")
    })?;
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal).init();
    Ok(())
}

/// A filter of levels. A word alone must be a level: as the name of a module it would silence everything else.
fn filter(text: &str) -> Result<tracing_subscriber::EnvFilter, String> {
    for part in text.split(',').map(str::trim).filter(|part| !part.contains(['=', '['])) {
        if part.parse::<tracing_subscriber::filter::LevelFilter>().is_err() {
            return Err(format!("\"{part}\" is no level"));
        }
    }
    text.parse().map_err(|_| format!("\"{text}\" is no filter"))
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let wanted = config.server.listen;
    let listener = TcpListener::bind(wanted).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => {
            anyhow!("{wanted} is in use: stop the program that listens there, or choose another port with --listen")
        }
        _ => anyhow!("cannot listen on {wanted}: {e}"),
    })?;
    let listen = listener.local_addr()?;

    let avatars = Avatars::built_in().context("the built-in faces cannot be read")?;
    let stock = avatars.stock().into_iter().map(|a| control_api::StockAvatar {
        avatar_key_id: a.avatar_key_id,
        avatar_name: a.avatar_name,
        gender: a.gender,
        display_picture: a.display_picture,
    });
    let control = control_config(&config, listen);
    let client = models::net::Client::new(models::net::Policy { allow_private: control.private_targets() })?;
    let app = Arc::new(control_api::App::open(control, stock.collect(), client.clone()).await?);
    let voices = local::models(&config, client.clone(), &tokio::runtime::Handle::current());
    let engine = engine::Engine::start(
        engine_config(&config, listen.ip())?,
        voices,
        avatars,
        client,
        app.ledger(),
        tokio::runtime::Handle::current(),
    )
    .context("the media threads cannot start")?;

    let first_key = app.first_start().await?;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let background = tokio::spawn({
        let (app, stopped) = (Arc::clone(&app), stopped.clone());
        async move { app.run_background(until(stopped)).await }
    });
    let router = app.router(Arc::clone(&engine) as _);
    let serving = tokio::spawn(control_api::serve(listener, router, bounds(&config), until(stopped)));

    println!("Visavis is listening on http://{listen}");
    if let Some(key) = first_key {
        println!("API key: {key}");
    }
    if let Some(demo) = app.demo_agent().await? {
        println!("Demo: http://{listen}/embed/{demo}");
    }

    asked_to_stop(&mut terminate, &mut interrupt).await;
    tracing::info!("draining: no new calls; a second signal ends at once");
    app.drain();
    tokio::select! {
        () = engine.drain(Duration::from_secs_f64(config.timeouts.drain)) => {}
        () = asked_to_stop(&mut terminate, &mut interrupt) => engine.stop(false),
    }
    // The facts of the calls that just ended are kept before the process goes.
    let _ = stop.send(true);
    let _ = tokio::time::timeout(Duration::from_secs(5), background).await;
    serving.abort();
    Ok(())
}

async fn until(mut stopped: tokio::sync::watch::Receiver<bool>) {
    // An error means that the sender is gone, which is the end as well.
    let _ = stopped.wait_for(|stop| *stop).await;
}

async fn asked_to_stop(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// What HTTP clients may take. Calls, their ICE-TCP connections, the store and requests to others need files too: half of them.
fn bounds(config: &Config) -> control_api::Bounds {
    let connections = match config.limits.connections {
        0 => (open_files() / 2).max(16),
        given => given,
    };
    control_api::Bounds { request: Duration::from_secs_f64(config.timeouts.request), connections }
}

/// How many files this process may have open.
fn open_files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    // 1024 is what systems without this file allow as well.
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(1024)
}

fn control_config(config: &Config, listen: SocketAddr) -> control_api::Config {
    let seconds = Duration::from_secs_f64;
    control_api::Config {
        listen,
        data: config.server.data.clone(),
        public_url: config.server.public_url.as_deref().map(|url| url.trim_end_matches('/').to_owned()),
        metrics_token: config.server.metrics_token.clone(),
        retention_days: config.server.retention_days,
        allow_private_targets: config.server.allow_private_targets,
        api_key: std::env::var("VISAVIS_API_KEY").ok().filter(|key| !key.is_empty()),
        timeouts: control_api::Timeouts {
            join: seconds(config.timeouts.join),
            token: seconds(config.timeouts.token),
            offer: seconds(config.timeouts.offer),
        },
        webhooks: control_api::Webhooks {
            schedule: config.webhooks.schedule.iter().copied().map(seconds).collect(),
            hold: seconds(config.webhooks.hold),
        },
        limits: control_api::Limits {
            per_key: config.limits.per_key,
            offers: config.limits.offers,
            embeds: config.limits.embeds,
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
    }
}

fn engine_config(config: &Config, listen: IpAddr) -> anyhow::Result<engine::Config> {
    let ports = config.media.ports().map_err(|e| anyhow!(e))?;
    let seconds = Duration::from_secs_f64;
    Ok(engine::Config {
        threads: config.media.threads,
        calls: config.limits.calls as usize,
        // A page of this machine connects fastest, and in every network, over loopback.
        hosts: engine::transport::socket::hosts(listen.is_loopback()),
        public: config.media.public_ip.clone(),
        udp_ports: (*ports.start() != 0).then_some(ports),
        tcp_port: Some(config.media.tcp_port),
        timeouts: engine::Timeouts {
            offer: seconds(config.timeouts.offer),
            closed: seconds(config.timeouts.closed),
            silence: seconds(config.timeouts.silence),
        },
        traces: Some(config.server.data.join("traces")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_filter_that_means_nothing_is_refused() {
        for good in ["info", "WARN", "off", "info,str0m=warn", "visavis_engine=debug", "engine[span]=trace"] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["inof", "a=b", "info,,x", "!?", "info,str0m=wran"] {
            let reason = filter(bad).unwrap_err();
            assert!(reason.starts_with('"'), "{bad}: {reason}");
        }
    }

    #[test]
    fn the_limit_of_open_files_is_known() {
        assert!(open_files() >= 64, "{}", open_files());
    }
}
