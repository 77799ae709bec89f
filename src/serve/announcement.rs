//! What a server tells about its start: on standard output for a person, in the log, and to the
//! service manager.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use control_api::FIRST_KEY_FILE;
use engine::{CallEngine, MediaAddresses};

use super::Role;
use crate::config::Config;
use crate::listen::local_link;
use crate::systemd::{self, Notifier};

/// What is announced, without what the start yields.
pub(super) struct Announcement {
    listen: SocketAddr,
    role: Role,
    public_url: Option<String>,
    data: PathBuf,
    models: PathBuf,
    database: String,
    prints_key: bool,
}

impl Announcement {
    /// `listen`: the address of the HTTP listener.
    pub(super) fn new(config: &Config, listen: SocketAddr, role: Role) -> Self {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let database = config.server.database_url.as_deref();
        let database = database.map(control_api::database_address);
        let public_url = config.server.public_url.as_deref();
        Self {
            listen,
            role,
            public_url: public_url.map(|url| url.trim_end_matches('/').to_owned()),
            data: absolute(&config.server.data),
            models: absolute(&config.models.folder()),
            database: database.map_or("SQLite".to_owned(), |at| format!("PostgreSQL at {at}")),
            prints_key: config.server.print_key,
        }
    }

    /// Logs that other machines can open the pages, if nothing protects them.
    pub(super) fn warn_if_open(&self) {
        if self.role == Role::Server && self.is_open() {
            tracing::warn!(
                "the server listens on all addresses of this machine, without https; a browser on \
                 another machine gives the page no microphone. Set server.public_url, or listen on \
                 127.0.0.1"
            );
        }
    }

    fn is_open(&self) -> bool {
        self.listen.ip().is_unspecified() && self.public_url.is_none()
    }

    /// Prints that the server listens. Programs read this line.
    pub(super) fn print_address(&self) {
        println!("Visavis is listening on {}", local_link(self.listen));
    }

    /// Prints the key of a first start, or how to make one. `has_given_key`: the operator has set
    /// one. `options`: of `visavis keys`, with a space before each.
    pub(super) fn print_key(&self, first: Option<&str>, has_given_key: bool, options: &str) {
        let command = format!("visavis keys create --workspace default{options}");
        match first {
            Some(key) if self.prints_key && !systemd::is_stdout_journal() => {
                println!("API key: {key}");
            }
            Some(key) => {
                let file = self.data.join(FIRST_KEY_FILE);
                match write_key(&file, key) {
                    Ok(()) => println!("API key: in {}", file.display()),
                    Err(error) => {
                        tracing::error!(file = %file.display(), %error, "cannot write the API key");
                        println!("API key: not written; create another one with {command}");
                    }
                }
            }
            None if has_given_key => {}
            None => println!("For another API key: {command}"),
        }
    }

    /// Prints the address for other machines, or what they need.
    pub(super) fn print_public_address(&self) {
        match &self.public_url {
            Some(url) => println!("Public address: {url}"),
            None if self.is_open() => {
                println!("Other machines need https: set server.public_url");
            }
            None => {}
        }
    }

    /// Logs with what the server has started.
    pub(super) fn log_start(&self, media: &MediaAddresses) {
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            listen = %self.listen,
            public_url = self.public_url.as_deref(),
            data = %self.data.display(),
            database = self.database,
            models = %self.models.display(),
            media_threads = media.udp_ports.len(),
            media_addresses = joined(&media.addresses),
            this_machine_only = media.loopback_only,
            udp_ports = joined(&media.udp_ports),
            tcp_port = media.tcp_port,
            "{} has started",
            match self.role {
                Role::Server => "the server",
                Role::Worker => "the worker",
            }
        );
    }

    /// Waits until the models are loaded. Then it tells the service manager, and prints the link of
    /// the demo agent, or why it cannot be called.
    pub(super) async fn finish(
        self,
        app: Arc<control_api::App>,
        engine: Arc<CallEngine>,
        notifier: Arc<Notifier>,
    ) {
        let loaded = engine.wait_loaded().await;
        // Also without models: pages and API are served.
        notifier.send("READY=1");
        match loaded {
            Ok(()) => notifier.send_status("ready"),
            Err(missing) => notifier.send_status(&format!("takes no calls: {missing}")),
        }
        if self.role == Role::Server
            && let Err(error) = self.print_demo(&app).await
        {
            tracing::warn!(%error, "cannot read the demo agent");
        }
    }

    async fn print_demo(&self, app: &control_api::App) -> Result<(), control_api::OpenError> {
        let Some(demo) = app.find_demo_agent().await? else { return Ok(()) };
        match app.demo_obstacle(&demo).await? {
            None => {
                let own = || local_link(self.listen);
                let base = self.public_url.clone().unwrap_or_else(own);
                println!("Demo: {base}/embed/{demo}");
            }
            Some(reason) => println!("No demo: {reason}"),
        }
        Ok(())
    }
}

/// Writes a file that only its owner can read.
fn write_key(file: &Path, key: &str) -> io::Result<()> {
    // One of an earlier first start, with other permissions, would keep them.
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(file)?;
    writeln!(file, "{key}")
}

fn joined<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
