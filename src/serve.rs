//! `visavis serve`: connects the control plane to the engine and runs the process.
//!
//! ```text
//! start ──listening──► serving ──signal──► draining ──► stopping ──► exit
//!                                           │  all calls ended,
//!                                           │  `timeouts.drain` elapsed,
//!                                           └─ or a second SIGTERM or SIGINT
//! ```
//!
//! Draining admits no new calls. Stopping exports the last spans, finishes the HTTP requests, and
//! then closes the store, within 5 s.

mod announcement;
mod database;
mod plane_configs;
mod signals;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use engine::show::Avatars;
use models::registry::{Accounts, Vendor};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use self::announcement::Announcement;
use self::plane_configs::{
    control_config, engine_config, http_limits, prepare_recorder, raise_file_limit,
};
use self::signals::StopSignals;
use crate::cli::ServeArgs;
use crate::config::Config;
use crate::listen::ListenAddress;
use crate::systemd::Notifier;
use crate::{CommandError, local_models, log, otlp, read_config};

/// What the process serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Pages, API and calls; LiveKit rooms if they are configured.
    Server,
    /// Only LiveKit rooms.
    Worker,
}

pub(crate) fn run(options: &ServeArgs, role: Role) -> Result<ExitCode, CommandError> {
    let mut config = read_config(&options.paths)?;
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
    config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    engine::thread::log_panics();
    raise_file_limit();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().thread_name("net").enable_all().build()?;
    let result = runtime.block_on(serve(config, role, &keys_options(options)));
    // Nothing needs the tasks that still run on the pool.
    runtime.shutdown_background();
    result?;
    // The threads of models may still run.
    models::exit_process(0)
}

/// The options of `visavis keys` for the data of these arguments, as text of a command.
fn keys_options(options: &ServeArgs) -> String {
    let given = [("--config", &options.paths.config), ("--data", &options.paths.data)];
    let given = given.into_iter().filter_map(|(name, path)| Some((name, path.as_ref()?)));
    given.map(|(name, path)| format!(" {name} {}", quoted(&path.display().to_string()))).collect()
}

/// The text as one word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn bind(address: ListenAddress) -> anyhow::Result<TcpListener> {
    address.bind().map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            anyhow!(
                "{address} is in use: stop the other program, or choose another port with --listen"
            )
        }
        _ => anyhow!("cannot listen on {address}: {error}"),
    })
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

/// `keys_options`: see [`keys_options`].
async fn serve(config: Config, role: Role, keys_options: &str) -> anyhow::Result<()> {
    let mut signals = StopSignals::new()?;
    // With a handler, a write beyond the file-size limit fails, as on a full disk. Without one, the
    // signal would end the process.
    let _file_size_signal = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
    let notifier = Arc::new(Notifier::from_environment());
    let listener = bind(config.server.listen)?;
    let listen = listener.local_addr()?;
    let announcement = Announcement::new(&config, listen, role);
    announcement.warn_if_open();
    if let Some(url) = &config.server.database_url {
        tokio::select! {
            waited = database::wait(url, &config, &listener, &notifier) => waited?,
            () = signals.next() => return Ok(()),
        }
    }

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
    let has_given_key = control.api_key.is_some();
    let client =
        egress::Client::new(egress::Policy { allow_private: control.allows_private_targets() })?;
    let accounts = provider_accounts(&config).await?;
    let workspaces = local_models::account_workspaces(&accounts);
    let runtime = tokio::runtime::Handle::current();
    let registry = local_models::create_registry(&config, accounts, client.clone(), &runtime);
    control.registry = Some(Arc::clone(&registry));
    let app = Arc::new(control_api::App::open(control, stock.collect(), client.clone()).await?);
    // A worker leaves the first start of a database to a server with the API. This may fail, so it
    // precedes the threads that load models.
    let first_key = if role == Role::Server { app.bootstrap().await? } else { None };
    let (event_sink, exporter) = match otlp_collector(&config) {
        Some(collector) => {
            let (event_sink, exporter) = otlp::start_exporter(app.event_sink(), collector, &client);
            (event_sink, Some(exporter))
        }
        None => (app.event_sink(), None),
    };
    let models = local_models::create_models(&config, registry, workspaces);
    let engine = engine::CallEngine::start(
        engine::Config {
            recorder: prepare_recorder(&config, app.recorded_hook()),
            ..engine_config(&config, listen)?
        },
        models,
        avatars,
        client,
        event_sink,
        tokio::runtime::Handle::current(),
    )
    .context("cannot start the engine")?;

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

    announcement.print_address();
    if role == Role::Server {
        announcement.print_key(first_key.as_deref(), has_given_key, keys_options);
        announcement.print_public_address();
    }
    announcement.log_start(engine.media_addresses());
    let ready = announcement.finish(Arc::clone(&app), Arc::clone(&engine), Arc::clone(&notifier));
    tokio::spawn(ready);
    tokio::spawn({
        let notifier = Arc::clone(&notifier);
        async move { notifier.feed_watchdog().await }
    });

    let hooks = control_api::WorkerHooks {
        on_registered: Box::new(|registration| {
            let control_api::Registration { worker, url, agent_name } = registration;
            println!("Visavis worker {worker} is registered with {url} as {agent_name}");
        }),
    };
    let mut livekit = tokio::spawn(app.run_livekit(hooks));

    if !config.livekit.is_used() {
        signals.next().await;
    } else {
        tokio::select! {
            () = signals.next() => {}
            ended = &mut livekit => {
                ended?.map_err(|why| anyhow!(why))?;
            }
        }
    }
    tracing::info!(
        "draining: no new calls are accepted; a second SIGTERM or SIGINT stops the server immediately"
    );
    notifier.send("STOPPING=1");
    notifier.send_status("draining: no new calls are accepted");
    app.drain();
    tokio::select! {
        () = engine.drain(Duration::from_secs_f64(config.timeouts.drain)) => {}
        // These calls end with events too, which must precede the closing of the store.
        () = signals.next_deliberate() => engine.drain(Duration::ZERO).await,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_command_is_one_word() {
        for (text, expected) in
            [("/var/lib/v-1", "/var/lib/v-1"), ("my data", "'my data'"), ("it's", r"'it'\''s'")]
        {
            assert_eq!(quoted(text), expected);
        }
    }
}
