//! The start of a server whose database may start later.

use std::os::fd::AsFd as _;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

use super::plane_configs::http_limits;
use super::wait_for_stop;
use crate::config::Config;
use crate::systemd::Notifier;

/// What the rest of a start may take, for the service manager.
const START_TIME: Duration = Duration::from_secs(60);

/// Waits until the database at `url` accepts connections, for at most `server.database_wait`.
/// Health checks are answered meanwhile.
///
/// # Errors
/// The database did not respond in time, or refuses this server.
pub(super) async fn wait(
    url: &str,
    config: &Config,
    listener: &TcpListener,
    notifier: &Notifier,
) -> anyhow::Result<()> {
    let limit = Duration::from_secs_f64(config.server.database_wait);
    let database = control_api::database_address(url);
    notifier.send(&format!("EXTEND_TIMEOUT_USEC={}", (limit + START_TIME).as_micros()));
    notifier.send_status(&format!("waiting for the database at {database}"));
    let listen = listener.local_addr()?;
    tracing::info!(%listen, %database, "connecting to the database");
    // The same socket. What arrives after the wait stays in its queue for the other routes.
    let socket = std::net::TcpListener::from(listener.as_fd().try_clone_to_owned()?);
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(control_api::serve(
        TcpListener::from_std(socket)?,
        control_api::starting_router(url),
        http_limits(config),
        Box::pin(wait_for_stop(stopped)),
    ));
    let waited = control_api::wait_for_database(url, limit).await;
    let _ = stop.send(true);
    let _ = serving.await;
    Ok(waited?)
}
