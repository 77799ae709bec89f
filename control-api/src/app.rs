//! The control plane as the binary sees it, and the state that its parts share.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Instant;

use conversation::id::ConversationId;
use engine_api::{Engine, EventSink};
use models::embeddings::EmbeddingClient;
use tokio::sync::{Notify, broadcast, mpsc};

use crate::auth::Given;
use crate::character::{self, Painter};
use crate::config::{Config, StockAvatar};
use crate::conversation::control::Unconfirmed;
use crate::delivery;
use crate::delivery::notice::{self, Notice};
use crate::door::{Connections, Pending};
use crate::error::ApiError;
use crate::kb::directions::{self, Meaning};
use crate::kb::indexing;
use crate::key_use::{self, Uses};
use crate::knowledge_cache::Cache;
use crate::ledger::{self, Facts};
use crate::limits::Limit;
use crate::peer::Peer;
use crate::quota::Beginning;
use crate::scope::Scope;
use crate::store::{self, Place, Store};
use crate::supervise::{LEDGER, Tasks, spawn};
use crate::token::Signer;
use crate::vault::{self, Vault};
use crate::{auth, custom_avatar, demo, erasing, lease, lifecycle, router};

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

/// Rate limits, per minute.
pub(crate) struct Limits {
    pub(crate) keys: Limit<[u8; 32]>,
    pub(crate) offers: Limit<IpAddr>,
    pub(crate) embeds: Limit<IpAddr>,
}

/// State that the parts of this plane share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) vault: Vault,
    pub(crate) tokens: Signer,
    pub(crate) given: Given,
    /// Uses of API keys that are not written yet.
    pub(crate) uses: Uses,
    pub(crate) limits: Limits,
    pub(crate) avatars: Vec<StockAvatar>,
    /// The first workspace, which owns the demo agent.
    pub(crate) workspace: String,
    /// The server's id; a restart ends the conversations with this id.
    pub(crate) server: String,
    /// The engine, set by [`App::router`].
    pub(crate) host: OnceLock<Arc<dyn Engine>>,
    /// Where the engine's events go.
    pub(crate) facts: Facts,
    /// Notified after each commit of events.
    pub(crate) news: broadcast::Sender<ConversationId>,
    /// Receives each webhook that was written.
    pub(crate) outbox: mpsc::UnboundedSender<delivery::News>,
    /// Receives each triggered guardrail that has a receiver.
    pub(crate) notices: mpsc::UnboundedSender<Notice>,
    /// Offers that may still connect.
    pub(crate) pending: Pending,
    /// Calls that may still connect, by workspace.
    pub(crate) beginning: Beginning,
    /// Conversations whose requested end could not be stored yet.
    pub(crate) unconfirmed: Unconfirmed,
    /// Connections whose offer was answered.
    pub(crate) connections: Connections,
    /// Notified when a photo-avatar job is queued.
    pub(crate) jobs: Notify,
    /// Notified when a drawing job is queued.
    pub(crate) drawings: Notify,
    /// Pose sets of custom avatars that running calls show.
    pub(crate) shown: Mutex<Shown>,
    /// Renders previews.
    pub(crate) painter: Painter,
    /// Program and arguments that bake avatars.
    pub(crate) baker: Vec<OsString>,
    /// Notified when a document is queued for extraction.
    pub(crate) uploads: Notify,
    /// Notified when a document was extracted.
    pub(crate) read: Notify,
    /// Computes embeddings, if the operator configured it.
    pub(crate) meaning: Option<Arc<Meaning>>,
    /// Program and arguments that extract a document's text.
    pub(crate) extractor: Vec<OsString>,
    /// Indexes of the agents' knowledge.
    pub(crate) knowledge: Cache,
    /// Sends webhooks, under the operator's policy.
    pub(crate) net: egress::Client,
    /// State of the background tasks.
    pub(crate) tasks: Arc<Tasks>,
    draining: AtomicBool,
}

/// By avatar: the completeness of the pose set in percent, and the pose set.
type Shown = HashMap<String, (u8, Weak<[u8]>)>;

impl Shared {
    /// The engine.
    pub(crate) fn host(&self) -> &Arc<dyn Engine> {
        self.host.get().expect("handlers run only under a router, and the router has set the host")
    }

    /// Whether new calls are refused because the server is about to stop.
    pub(crate) fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Why a call that starts now would leave no record, or `None`.
    pub(crate) fn keeps_nothing(&self) -> Option<String> {
        let down = || self.tasks.is_down(LEDGER).then(|| "the task that writes facts has failed".to_owned());
        self.store.health.failing().or_else(down)
    }

    /// Whether limits by address do not apply: to clients on this machine, unless a proxy on it may
    /// forward requests of others.
    pub(crate) fn exempt(&self, peer: Peer) -> bool {
        peer.0.is_loopback() && self.config.public_url.is_none()
    }

    /// Charges one request of an address to a rate limit, unless it is exempt.
    pub(crate) fn limited(&self, limit: &Limit<IpAddr>, peer: Peer) -> Result<(), ApiError> {
        if self.exempt(peer) {
            return Ok(());
        }
        limit.take(peer.subscriber(), Instant::now()).map_err(ApiError::TooMany)
    }
}

struct Background {
    facts: ledger::Queue,
    outbox: mpsc::UnboundedReceiver<delivery::News>,
    notices: mpsc::UnboundedReceiver<Notice>,
}

/// The control plane of one data folder.
pub struct App {
    shared: Arc<Shared>,
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
        tracing::warn!(folder = %data.display(), "others may list the data folder: chmod 700 closes it");
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
        tracing::warn!(file = %file.display(), %error, "the file cannot be closed to others");
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

impl App {
    /// Opens the data folder (created if absent): database, key files, the lock against a second
    /// server. Ends the conversations that a crash left open. `net` sends the webhooks; its policy
    /// should be [`Config::allows_private_targets`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(
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
        let (workspace, _) = store::key::workspace(&mut tx, FIRST_WORKSPACE).await?;
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
        let (facts, facts_queue) = ledger::channel();
        let (outbox, outbox_queue) = mpsc::unbounded_channel();
        let (notices, notices_queue) = mpsc::unbounded_channel();
        let meaning =
            config.embeddings.clone().map(|to| Arc::new(Meaning::new(EmbeddingClient::new(to, &net))));
        let shared = Shared {
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
        erasing::sweep(&shared).await?;
        // Before the first request: conversations that a crash left open have ended.
        lifecycle::recover(&shared).await;
        let background = Background { facts: facts_queue, outbox: outbox_queue, notices: notices_queue };
        Ok(Self { shared: Arc::new(shared), background: Mutex::new(Some(background)), _lock: lock })
    }

    /// On the first start of a data folder: creates the demo agent and, unless the environment
    /// provides one, an API key, which is returned only here. `None` on every later start, and if
    /// the environment provides the key.
    ///
    /// # Errors
    /// The database failed.
    pub async fn first_start(&self) -> Result<Option<String>, OpenError> {
        let store = &self.shared.store;
        if store.setting("first_start").await?.is_some() {
            return Ok(None);
        }
        demo::create(&self.shared).await?;
        let key = match self.shared.config.api_key {
            Some(_) => None,
            None => {
                let key = auth::fresh_key();
                let (prefix, hash) = (auth::prefix(&key), auth::stored(&key));
                let workspace = &self.shared.workspace;
                let mut tx = store.write().await?;
                let draft = store::key::Draft {
                    workspace,
                    name: "first start",
                    prefix,
                    hash: &hash,
                    expires_at: None,
                    scope: Scope::Administer,
                };
                store::key::insert(&mut tx, &draft).await?;
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
    pub async fn demo_agent(&self) -> Result<Option<String>, OpenError> {
        Ok(demo::find(&self.shared).await?)
    }

    /// Every route, over the engine `host`. Serve it with [`serve`](crate::serve), which gives
    /// handlers their peer's address.
    ///
    /// # Panics
    /// If called twice.
    pub fn router(&self, host: Arc<dyn Engine>) -> axum::Router {
        assert!(self.shared.host.set(host).is_ok(), "there is one engine and one router");
        router::router(&self.shared)
    }

    /// The shared state, for unit tests.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
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
    pub async fn run_background(&self, shutdown: impl Future<Output = ()> + Send) {
        let taken = self.background.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some(background) = taken else { return };
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let (shared, stopped) = (&self.shared, &stopped);
        // Queues are owned outside of the tasks that read them: a task is restarted when it panics.
        let writer = ledger::Writer::new(Arc::clone(shared), background.facts, stopped.clone());
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
                async move { delivery::run(shared, &mut *outbox.lock().await, stop).await }
            }),
            spawn(shared, stopped, "notices", move |shared, stop| {
                let notices = Arc::clone(&notices);
                async move { notice::run(shared, &mut *notices.lock().await, stop).await }
            }),
            spawn(shared, stopped, "lease", lease::run),
            spawn(shared, stopped, "conversations", lifecycle::run),
            spawn(shared, stopped, "pictures", custom_avatar::run),
            spawn(shared, stopped, "drawings", custom_avatar::bake::run),
            spawn(shared, stopped, "previews", character::run),
            spawn(shared, stopped, "documents", indexing::run),
            spawn(shared, stopped, "key_uses", key_use::run),
            spawn(shared, stopped, "meaning", directions::run),
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
