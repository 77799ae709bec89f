//! The control plane as the binary sees it: opens the data folder, and runs every part.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use engine_api::{Engine, EventSink};
use futures_util::future::BoxFuture;
use models::embeddings::EmbeddingClient;
use tokio::sync::{Notify, broadcast, mpsc};

use crate::cluster::{erasure, lease, recovery};
use crate::config::{Config, StockAvatar};
use crate::http::key_usage;
use crate::resources::knowledge::{embeddings, ingestion};
use crate::resources::{characters, custom_avatars, demo};
use crate::scope::Scope;
use crate::state::api_key::{self, Given};
use crate::state::join_token::Signer;
use crate::state::key_usage::Uses;
use crate::state::knowledge_search::{Cache, Meaning};
use crate::state::preview_queue::Painter;
use crate::state::rate_limit::Limit;
use crate::state::registry::{Beginning, Connections, Pending, Unconfirmed};
use crate::state::supervise::{LEDGER, spawn};
use crate::state::webhook_queue::{News, Notice};
use crate::state::{AppState, Limits, event_queue};
use crate::store::vault::{self, Vault};
use crate::store::{self, Place, Store};
use crate::webhooks::{self, guardrail_callback};
use crate::{events, router};

/// Name of the workspace that the first start creates.
const FIRST_WORKSPACE: &str = "default";
/// Number of commits that a slow reader of events may lag behind before it reads the store again.
const NEWS_DEPTH: usize = 1024;

/// The control plane could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data folder cannot be used.
    #[error("{0}: {1}")]
    Data(PathBuf, #[source] io::Error),
    /// The database was created by servers with other key files.
    #[error(
        "the database belongs to servers with other keys: copy secrets.key and tokens.key from one of their data folders to {0}"
    )]
    Keys(PathBuf),
    /// Another server runs on the data folder.
    #[error("{0} is used by another running server")]
    InUse(PathBuf),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] store::Error),
}

struct Background {
    facts: event_queue::Queue,
    outbox: mpsc::UnboundedReceiver<News>,
    notices: mpsc::UnboundedReceiver<Notice>,
}

/// The control plane of one data folder.
pub struct App {
    shared: Arc<AppState>,
    background: Mutex<Option<Background>>,
    /// Held as long as the server runs.
    _lock: File,
}

/// Creates the data folder if it is absent, for its owner only.
pub(crate) fn prepare(data: &Path) -> Result<(), OpenError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let fail = |e| OpenError::Data(data.to_owned(), e);
    builder.create(data).map_err(fail)?;
    // An existing folder keeps its mode; the files in it are private in any case.
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(data).map_err(fail)?.permissions()) & 0o077
        != 0
    {
        tracing::warn!(folder = %data.display(), "other users can list the data folder; run chmod 700 on it");
    }
    // SQLite gives its other files the mode of the first one.
    let mut options = File::options();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(database(data)).map_err(fail)?;
    Ok(())
}

/// Opens a file for appending that only its owner may read. It is created if absent, and its mode
/// is corrected.
fn private(file: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let opened = options.open(file)?;
    #[cfg(unix)]
    if let Err(error) = opened.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)) {
        tracing::warn!(file = %file.display(), %error, "cannot restrict the file's permissions to its owner");
    }
    Ok(opened)
}

/// Path of the database file.
pub(crate) fn database(data: &Path) -> PathBuf {
    data.join("visavis.db")
}

/// This server's id: created once and stored in its data folder.
fn identity(file: &Path) -> io::Result<String> {
    match std::fs::read_to_string(file) {
        Ok(id) if !id.trim().is_empty() => Ok(id.trim().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => {
            let id = store::fresh_id();
            private(file)?.write_all(id.as_bytes())?;
            Ok(id)
        }
    }
}

/// Opens the database of a data folder, or the one at `url`.
pub(crate) async fn open_store(data: &Path, url: Option<&str>) -> store::Result<Store> {
    let file = database(data);
    Store::open(url.map_or(Place::File(&file), Place::Url)).await
}

/// The futures are boxed, so that their code is compiled once, in this crate. Without that, each
/// crate that awaits one compiles the whole of it again.
impl App {
    /// Opens the data folder (created if absent): database, key files, the lock against a second
    /// server. Ends the conversations that a crash left open. `net` sends the webhooks; its policy
    /// should be [`Config::allows_private_targets`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        config: Config,
        avatars: Vec<StockAvatar>,
        net: egress::Client,
    ) -> BoxFuture<'static, Result<Self, OpenError>> {
        Box::pin(Self::open_folder(config, avatars, net))
    }

    async fn open_folder(
        mut config: Config,
        avatars: Vec<StockAvatar>,
        net: egress::Client,
    ) -> Result<Self, OpenError> {
        config.api_key = config.api_key.filter(|key| !key.is_empty());
        let data = config.data.clone();
        let fail = |e| OpenError::Data(data.clone(), e);
        prepare(&data)?;
        let lock = private(&data.join("lock")).map_err(fail)?;
        lock.try_lock().map_err(|_| OpenError::InUse(data.clone()))?;
        let keys = [
            vault::key_file(&data.join("secrets.key")).map_err(fail)?,
            vault::key_file(&data.join("tokens.key")).map_err(fail)?,
        ];
        let (vault, tokens) = (Vault::new(&keys[0]), Signer::new(&keys[1]));
        let server = identity(&data.join("server.id")).map_err(fail)?;
        let mut store = open_store(&data, config.database_url.as_deref()).await?;
        store.watch = config.watch;
        let known = store.first_to_remember("keys", &vault::fingerprint(&keys.concat())).await?;
        if known != vault::fingerprint(&keys.concat()) {
            return Err(OpenError::Keys(data));
        }
        let mut tx = store.write().await?;
        let (workspace, _) = store::api_key::workspace(&mut tx, FIRST_WORKSPACE).await?;
        tx.commit().await?;
        let offer_time = config.timeouts.offer;
        let this = std::env::current_exe().map_err(fail)?;
        let extractor =
            config.extractor.clone().unwrap_or_else(|| vec![this.clone().into(), "extract".into()]);
        let baker = config.baker.clone().unwrap_or_else(|| vec![this.into()]);
        let limits = Limits {
            keys: Limit::new(config.limits.per_key),
            offers: Limit::new(config.limits.offers),
            embeds: Limit::new(config.limits.embeds),
        };
        let (facts, facts_queue) = event_queue::channel();
        let (outbox, outbox_queue) = mpsc::unbounded_channel();
        let (notices, notices_queue) = mpsc::unbounded_channel();
        let meaning =
            config.embeddings.clone().map(|to| Arc::new(Meaning::new(EmbeddingClient::new(to, &net))));
        let shared = AppState {
            given: Given::new(config.api_key.as_deref().map(|key| (key, workspace.as_str()))),
            uses: Uses::default(),
            config,
            store,
            vault,
            tokens,
            limits,
            avatars,
            workspace,
            server,
            host: OnceLock::new(),
            facts,
            news: broadcast::Sender::new(NEWS_DEPTH),
            outbox,
            notices,
            pending: Pending::new(offer_time),
            beginning: Beginning::default(),
            unconfirmed: Unconfirmed::default(),
            connections: Connections::default(),
            jobs: Notify::new(),
            drawings: Notify::new(),
            shown: Mutex::default(),
            painter: Painter::default(),
            baker,
            uploads: Notify::new(),
            read: Notify::new(),
            meaning,
            extractor,
            knowledge: Cache::default(),
            net,
            tasks: Arc::default(),
            draining: AtomicBool::new(false),
        };
        // Deliveries that are taken over are in the store, where the dispatcher finds them.
        lease::renew(&shared).await?;
        // Files of conversations that were erased meanwhile, and files that a crash left.
        erasure::sweep(&shared).await?;
        // Before the first request: conversations that a crash left open have ended.
        recovery::recover(&shared).await;
        let background = Background { facts: facts_queue, outbox: outbox_queue, notices: notices_queue };
        Ok(Self { shared: Arc::new(shared), background: Mutex::new(Some(background)), _lock: lock })
    }

    /// On the first start of a data folder: creates the demo agent and, unless the environment
    /// provides one, an API key, which is returned only here. `None` on every later start, and if
    /// the environment provides the key.
    ///
    /// # Errors
    /// The database failed.
    pub fn first_start(&self) -> BoxFuture<'_, Result<Option<String>, OpenError>> {
        Box::pin(self.create_first_key())
    }

    async fn create_first_key(&self) -> Result<Option<String>, OpenError> {
        let store = &self.shared.store;
        if store.setting("first_start").await?.is_some() {
            return Ok(None);
        }
        demo::create(&self.shared).await?;
        let key = match self.shared.config.api_key {
            Some(_) => None,
            None => {
                let key = api_key::fresh_key();
                let (prefix, hash) = (api_key::prefix(&key), api_key::stored(&key));
                let workspace = &self.shared.workspace;
                let mut tx = store.write().await?;
                let draft = store::api_key::Draft {
                    workspace,
                    name: "first start",
                    prefix,
                    hash: &hash,
                    expires_at: None,
                    scope: Scope::Administer,
                };
                store::api_key::insert(&mut tx, &draft).await?;
                tx.commit().await?;
                Some(key)
            }
        };
        store.remember("first_start", &crate::clock::iso(crate::clock::now())).await?;
        Ok(key)
    }

    /// The demo agent's id, while it exists and may be embedded: its page is `/embed/{id}`.
    ///
    /// # Errors
    /// The database failed.
    pub fn demo_agent(&self) -> BoxFuture<'_, Result<Option<String>, OpenError>> {
        Box::pin(async { Ok(demo::find(&self.shared).await?) })
    }

    /// Every route, over the engine `host`. Serve it with [`serve`](crate::serve), which gives
    /// handlers their peer's address.
    ///
    /// # Panics
    /// If called twice.
    pub fn router(&self, host: Arc<dyn Engine>) -> axum::Router {
        assert!(self.shared.host.set(host).is_ok(), "the engine is set only once");
        router::router(&self.shared)
    }

    /// The shared state, for unit tests.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<AppState> {
        &self.shared
    }

    /// The sink for the engine's events. They are stored once [`App::run_background`] runs.
    pub fn ledger(&self) -> Arc<dyn EventSink> {
        Arc::new(self.shared.facts.clone())
    }

    /// Refuses new calls and reports it at `/readyz`. Running calls continue and may still move to
    /// a new connection.
    pub fn drain(&self) {
        self.shared.draining.store(true, Ordering::Relaxed);
    }

    /// Stores events, delivers webhooks and ends conversations that no client joined, until
    /// `shutdown`. Then it stores the remaining events, closes the store, and returns. Call it
    /// once, in parallel with serving, and end it after serving has ended: a request in progress
    /// needs the store.
    pub fn run_background<'a>(&'a self, shutdown: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
        Box::pin(self.run_tasks(shutdown))
    }

    async fn run_tasks(&self, shutdown: BoxFuture<'_, ()>) {
        let taken = self.background.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some(background) = taken else { return };
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let (shared, stopped) = (&self.shared, &stopped);
        // Queues are owned outside of the tasks that read them: a task is restarted when it panics.
        let writer = events::Writer::new(Arc::clone(shared), background.facts, stopped.clone());
        let writer = Arc::new(tokio::sync::Mutex::new(writer));
        let outbox = Arc::new(tokio::sync::Mutex::new(background.outbox));
        let notices = Arc::new(tokio::sync::Mutex::new(background.notices));
        let writer = spawn(shared, stopped, LEDGER, move |_, _| {
            let writer = Arc::clone(&writer);
            async move { writer.lock().await.run().await }
        });
        let others = [
            spawn(shared, stopped, "webhooks", move |shared, stop| {
                let outbox = Arc::clone(&outbox);
                async move { webhooks::run(shared, &mut *outbox.lock().await, stop).await }
            }),
            spawn(shared, stopped, "notices", move |shared, stop| {
                let notices = Arc::clone(&notices);
                async move { guardrail_callback::run(shared, &mut *notices.lock().await, stop).await }
            }),
            spawn(shared, stopped, "lease", lease::run),
            spawn(shared, stopped, "conversations", recovery::run),
            spawn(shared, stopped, "pictures", custom_avatars::run),
            spawn(shared, stopped, "drawings", custom_avatars::bake::run),
            spawn(shared, stopped, "previews", characters::run),
            spawn(shared, stopped, "documents", ingestion::run),
            spawn(shared, stopped, "key_uses", key_usage::run),
            spawn(shared, stopped, "meaning", embeddings::run),
        ];
        shutdown.await;
        // The receivers are in the tasks; without any receiver there is no task to stop.
        let _ = stop.send(true);
        for task in others.into_iter().chain([writer]) {
            if let Err(error) = task.await {
                tracing::error!(%error, "a background task failed");
            }
        }
        lease::give_up(&self.shared).await;
        self.shared.store.close().await;
    }
}
