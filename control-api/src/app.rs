//! The control plane as the binary sees it: opens the data folder, and runs every part.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use conversation::id::ConversationId;
use engine_api::{Engine, EventSink};
use futures_util::future::BoxFuture;
use models::embeddings::EmbeddingClient;
use tokio::sync::{broadcast, mpsc};

use crate::background::{self, BackgroundInputs};
use crate::cluster::{erasure, lease, pooler, recovery};
use crate::config::{Config, StockAvatar};
use crate::data_folder::{
    DataFolderError, database_file, load_server_id, open_private_file, prepare_data_folder,
};
use crate::join::{obstacle, relayed};
use crate::livekit::rescue;
use crate::livekit::worker::{self, WorkerHooks};
use crate::resources::demo;
use crate::router;
use crate::scope::Scope;
use crate::secret_key::SecretKey;
use crate::state::api_key::{self, EnvironmentKey};
use crate::state::event_storage::EventStorage;
use crate::state::join_token::TokenSigner;
use crate::state::knowledge_search::{KnowledgeCache, QueryEmbedder};
use crate::state::live_calls::{ConnectingCalls, Connections, PendingOffers, UnconfirmedEnds};
use crate::state::livekit::LiveKit;
use crate::state::media_link::MediaLinkSigner;
use crate::state::meetings::Meetings;
use crate::state::photo_checks::PhotoChecks;
use crate::state::rate_limit::{RateLimit, WindowLimit};
use crate::state::relay::Relay;
use crate::state::voice_cache::VoiceCache;
use crate::state::{AppState, RateLimits, event_queue};
use crate::storage::{self, Storage};
use crate::store::vault::{self, Vault};
use crate::store::{self, DatabaseLocation, Lock, Store};

/// Name of the workspace that the first start creates.
pub(crate) const DEFAULT_WORKSPACE_NAME: &str = "default";
/// Samples of voices and tests of providers of one workspace within any minute. They cost money.
const TRIALS_PER_MINUTE: usize = 10;
/// Number of commits that a slow reader of events may lag behind before it reads the store again.
const COMMIT_CHANNEL_CAPACITY: usize = 1024;

/// The control plane could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data folder cannot be used.
    #[error(transparent)]
    DataFolder(#[from] DataFolderError),
    /// A command needs the data of a server, and no server was started with this folder.
    #[error("no Visavis data in {0}: start the server once, or name its folder with --data")]
    NoData(PathBuf),
    /// The database was created by servers with other keys.
    #[error(
        "the database belongs to servers with other keys: give this server their \
         server.secrets_key and server.tokens_key, or copy secrets.key and tokens.key from one of \
         their data folders to {0}"
    )]
    KeyMismatch(PathBuf),
    /// There is a pooler in front of the database.
    #[error(
        "server.database_url leads to a connection pooler that shares connections between \
         transactions: connect to PostgreSQL directly, or set the pooler to session mode"
    )]
    Pooler,
    /// `livekit.workspace` names no workspace.
    #[error(
        "livekit.workspace: no workspace has the name or id {0:?}; `visavis keys list` prints the \
         names"
    )]
    UnknownWorkspace(String),
    /// The storage of recordings cannot be used.
    #[error("{0}")]
    Storage(String),
    /// Another server runs on the data folder.
    #[error("{0} is used by another running server")]
    InUse(PathBuf),
    /// The PostgreSQL database cannot be used.
    #[error("server.database_url: the database at {0} cannot be used: {1}")]
    Database(String, String),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl OpenError {
    /// The error of a database, with its address if it has one.
    pub(crate) fn database(url: &Option<String>, error: store::Error) -> Self {
        match url {
            Some(url) => Self::Database(store::database_address(url), error.describe()),
            None => error.into(),
        }
    }

    fn storage(error: storage::Error) -> Self {
        Self::Storage(format!("the storage cannot be opened: {error}"))
    }
}

/// The control plane of one data folder.
pub struct App {
    state: Arc<AppState>,
    /// Taken by [`App::run_background`].
    background_inputs: Mutex<Option<BackgroundInputs>>,
    /// Held as long as the server runs.
    _lock: File,
}

/// Opens the database of a data folder, or the one at `url`.
pub(crate) async fn open_store(data: &Path, url: Option<&str>) -> store::Result<Store> {
    let file = database_file(data);
    Store::open(url.map_or(DatabaseLocation::File(&file), DatabaseLocation::Url)).await
}

/// Id of the workspace whose agents jobs of LiveKit may name: the configured one, or the oldest.
async fn find_livekit_workspace(
    store: &Store,
    name: Option<&str>,
    oldest: &str,
) -> Result<String, OpenError> {
    let Some(name) = name else { return Ok(oldest.to_owned()) };
    let found = store.find_workspace(name).await?;
    found.ok_or_else(|| OpenError::UnknownWorkspace(name.to_owned()))
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
        stock_avatars: Vec<StockAvatar>,
        http_client: egress::Client,
    ) -> BoxFuture<'static, Result<Self, OpenError>> {
        Box::pin(Self::open_folder(config, stock_avatars, http_client))
    }

    async fn open_folder(
        mut config: Config,
        avatars: Vec<StockAvatar>,
        net: egress::Client,
    ) -> Result<Self, OpenError> {
        config.api_key = config.api_key.filter(|key| !key.is_empty());
        let data = config.data.clone();
        let fail = |error: io::Error| OpenError::from(DataFolderError::new(&data, "used", &error));
        prepare_data_folder(&data)?;
        let lock = open_private_file(&data.join("lock")).map_err(fail)?;
        lock.try_lock().map_err(|_| OpenError::InUse(data.clone()))?;
        let key = |configured: &Option<SecretKey>, file| match configured {
            Some(key) => Ok(*key.bytes()),
            None => vault::load_or_create_key(&data.join(file)).map_err(fail),
        };
        let keys =
            [key(&config.secrets_key, "secrets.key")?, key(&config.tokens_key, "tokens.key")?];
        let (vault, tokens) = (Vault::new(&keys[0]), TokenSigner::new(&keys[1]));
        let media_links = MediaLinkSigner::new(&keys[1]);
        let meetings = Arc::new(Meetings::new(&keys[1]));
        let storage = Arc::new(Storage::open(&data, &config.storage).map_err(OpenError::storage)?);
        let server_id: Arc<str> = load_server_id(&data.join("server.id")).map_err(fail)?.into();
        let unusable = |error: store::Error| OpenError::database(&config.database_url, error);
        if let Some(url) = &config.database_url
            && !pooler::has_sessions(url).await.map_err(|error| unusable(error.into()))?
        {
            return Err(OpenError::Pooler);
        }
        let mut store =
            open_store(&data, config.database_url.as_deref()).await.map_err(unusable)?;
        store.crash_hook = config.crash_hook;
        let known =
            store.get_or_insert_setting("keys", &vault::fingerprint(&keys.concat())).await?;
        if known != vault::fingerprint(&keys.concat()) {
            return Err(OpenError::KeyMismatch(data));
        }
        let mut tx = store.begin_write(Lock::Workspaces).await?;
        let (workspace, _) =
            store::api_key::get_or_create_workspace(&mut tx, DEFAULT_WORKSPACE_NAME).await?;
        tx.commit().await?;
        let offer_time = config.timeouts.offer;
        let this = std::env::current_exe().map_err(fail)?;
        let extractor = config
            .extract_command
            .clone()
            .unwrap_or_else(|| vec![this.clone().into(), "extract".into()]);
        let photo_checker = config
            .photo_command
            .clone()
            .unwrap_or_else(|| vec![this.clone().into(), "photo".into()]);
        let baker = config.bake_command.clone().unwrap_or_else(|| vec![this.clone().into()]);
        let renderer = config.videos.command.clone().unwrap_or_else(|| vec![this.clone().into()]);
        let deliverer = config.recordings.command.clone().unwrap_or_else(|| vec![this.into()]);
        let limits = RateLimits {
            keys: RateLimit::new(config.limits.per_key),
            offers: RateLimit::new(config.limits.offers),
            embeds: RateLimit::new(config.limits.embeds),
            trials: WindowLimit::new(TRIALS_PER_MINUTE),
        };
        let (events, events_queue) = event_queue::channel();
        let (outbox, outbox_queue) = mpsc::unbounded_channel();
        let (callbacks, callback_queue) = mpsc::unbounded_channel();
        let meaning = config
            .embeddings
            .clone()
            .map(|to| Arc::new(QueryEmbedder::new(EmbeddingClient::new(to, &net))));
        let commits = broadcast::Sender::new(COMMIT_CHANNEL_CAPACITY);
        let connections = Arc::<Connections>::default();
        let holder = lease::start(&store, &server_id, config.timeouts.lease).await?;
        let event_storage = EventStorage {
            store: store.clone(),
            server_id: Arc::clone(&server_id),
            holder,
            first_attempt_delay: config.webhooks.schedule.first().copied().unwrap_or_default(),
            outbox: outbox.clone(),
            guardrail_callbacks: callbacks,
            commits: commits.clone(),
            connections: Arc::clone(&connections),
        };
        let livekit = match config.livekit.clone() {
            Some(settings) => {
                let name = settings.workspace.clone();
                let chosen = find_livekit_workspace(&store, name.as_deref(), &workspace).await?;
                Some(Arc::new(LiveKit::new(settings, chosen, &net)))
            }
            None => None,
        };
        let relay = Arc::new(Relay::new(store.clone(), Arc::clone(&server_id)));
        let state = AppState {
            environment_key: EnvironmentKey::new(
                config.api_key.as_deref().map(|key| (key, workspace.as_str())),
            ),
            key_usage: Arc::default(),
            config,
            store,
            vault: Arc::new(vault),
            token_signer: tokens,
            media_links,
            rate_limits: limits,
            stock_avatars: avatars,
            default_workspace: workspace,
            server_id,
            engine: Arc::default(),
            events,
            event_storage,
            commits,
            outbox,
            guardrail_callbacks_dropped: Arc::default(),
            pending_offers: Arc::new(PendingOffers::new(offer_time)),
            connecting_calls: ConnectingCalls::default(),
            relay,
            unconfirmed_ends: UnconfirmedEnds::default(),
            connections,
            photo_checks: PhotoChecks::new(photo_checker),
            bake_queued: Arc::default(),
            live_pose_sets: Arc::default(),
            preview_renderer: Arc::default(),
            storage,
            recordings: Arc::default(),
            videos: Arc::default(),
            meetings,
            livekit,
            document_queued: Arc::default(),
            document_read: Arc::default(),
            query_embedder: meaning,
            knowledge_cache: KnowledgeCache::default(),
            voice_cache: VoiceCache::default(),
            http_client: net,
            tasks: Arc::default(),
            draining: Arc::default(),
        };
        // Files of conversations that were erased meanwhile, and files that a crash left.
        erasure::remove_erased_files(&state.store, &state.server_id, &data).await?;
        // Before the first request: conversations that a crash left open have ended.
        recovery::recover_conversations(&state.event_storage).await;
        let inputs = BackgroundInputs {
            events: events_queue,
            outbox: outbox_queue,
            guardrail_callbacks: callback_queue,
            bake_command: baker,
            extract_command: extractor,
            deliver_command: deliverer,
            video_command: renderer,
        };
        let background_inputs = Mutex::new(Some(inputs));
        Ok(Self { state: Arc::new(state), background_inputs, _lock: lock })
    }

    /// On the first start of a data folder: creates the demo agent and, unless the environment
    /// provides one, an API key, which is returned only here. `None` on every later start, and if
    /// the environment provides the key.
    ///
    /// # Errors
    /// The database failed.
    pub fn bootstrap(&self) -> BoxFuture<'_, Result<Option<String>, OpenError>> {
        Box::pin(self.create_first_key())
    }

    async fn create_first_key(&self) -> Result<Option<String>, OpenError> {
        let store = &self.state.store;
        if store.setting("first_start").await?.is_some() {
            return Ok(None);
        }
        // Of several servers on an empty database, one does it.
        let (name, own) = ("first_start_server", &*self.state.server_id);
        if store.get_or_insert_setting(name, own).await? != own {
            return Ok(None);
        }
        demo::create(&self.state).await?;
        let key = match self.state.config.api_key {
            Some(_) => None,
            None => {
                let key = api_key::generate_key();
                let (prefix, hash) = (api_key::key_prefix(&key), api_key::stored_hash(&key));
                let workspace = &self.state.default_workspace;
                let mut tx = store.begin_write(Lock::Workspaces).await?;
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
        store.set_setting("first_start", &crate::clock::to_iso8601(crate::clock::now())).await?;
        Ok(key)
    }

    /// The demo agent's id, while it exists and may be embedded: its page is `/embed/{id}`.
    ///
    /// # Errors
    /// The database failed.
    pub fn find_demo_agent(&self) -> BoxFuture<'_, Result<Option<String>, OpenError>> {
        Box::pin(async { Ok(demo::find(&self.state).await?) })
    }

    /// Why the demo agent `id` cannot be called before something is installed, in one sentence;
    /// `None` if it can. Call it after [`App::router`], and once the engine has loaded its models.
    ///
    /// # Errors
    /// The database failed.
    pub fn demo_obstacle<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, OpenError>> {
        let workspace = &self.state.default_workspace;
        Box::pin(async move { Ok(obstacle::of_agent(&self.state, workspace, id).await?) })
    }

    /// Every route, over the engine `host`. Serve it with [`serve`](crate::serve), which gives
    /// handlers their peer's address.
    ///
    /// # Panics
    /// If called twice.
    pub fn router(&self, engine: Arc<dyn Engine>) -> axum::Router {
        assert!(self.state.engine.set(engine).is_ok(), "the engine is set only once");
        router::router(&self.state)
    }

    /// The routes of a worker, which serves only LiveKit rooms: health and metrics. It is ready while
    /// it is registered with LiveKit.
    ///
    /// # Panics
    /// If a router was made before.
    pub fn worker_router(&self, engine: Arc<dyn Engine>) -> axum::Router {
        self.state.videos.serves_no_files.store(true, Ordering::Relaxed);
        assert!(self.state.engine.set(engine).is_ok(), "the engine is set only once");
        if let Some(livekit) = &self.state.livekit {
            livekit.require_registration();
        }
        router::worker_router(&self.state)
    }

    /// Registers with LiveKit and runs the jobs that it is assigned, until the future is dropped. Looks
    /// for rooms whose job was lost, too. Does nothing without [`Config::livekit`]. Call it after
    /// [`App::router`].
    ///
    /// # Errors
    /// LiveKit refuses the key or the secret: one sentence.
    pub fn run_livekit(&self, hooks: WorkerHooks) -> BoxFuture<'static, Result<(), String>> {
        let state = Arc::clone(&self.state);
        Box::pin(async move {
            let Some(livekit) = state.livekit.clone() else { return Ok(()) };
            let rescue = rescue::run(Arc::clone(&state), Arc::clone(&livekit));
            tokio::select! {
                done = worker::run(Arc::clone(&state), livekit, hooks) => done,
                () = rescue => Ok(()),
            }
        })
    }

    /// The shared state, for unit tests.
    #[cfg(test)]
    pub(crate) fn state(&self) -> &Arc<AppState> {
        &self.state
    }

    /// The sink for the engine's events. They are stored once [`App::run_background`] runs.
    pub fn event_sink(&self) -> Arc<dyn EventSink> {
        Arc::new(self.state.events.clone())
    }

    /// To be called when the file of a recorded call is complete.
    pub fn recorded_hook(&self) -> Arc<dyn Fn(ConversationId) + Send + Sync> {
        let recordings = Arc::clone(&self.state.recordings);
        Arc::new(move |_| recordings.captured.notify_one())
    }

    /// Refuses new calls and reports it at `/readyz`. Running calls continue and may still move to
    /// a new connection.
    pub fn drain(&self) {
        self.state.draining.store(true, Ordering::Relaxed);
    }

    /// Stores events, delivers webhooks and ends conversations that no client joined, until
    /// `shutdown`. Then it stores the remaining events, closes the store, and returns. Call it
    /// once, in parallel with serving, and end it after serving has ended: a request in progress
    /// needs the store.
    pub fn run_background<'a>(&'a self, shutdown: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
        Box::pin(self.run_tasks(shutdown))
    }

    async fn run_tasks(&self, shutdown: BoxFuture<'_, ()>) {
        let taken = self.background_inputs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(inputs) = taken else { return };
        let state = Arc::clone(&self.state);
        let execute = Arc::new(move |request| {
            let executed: BoxFuture<'static, _> =
                Box::pin(relayed::execute(Arc::clone(&state), request));
            executed
        });
        background::run(&self.state, inputs, execute, shutdown).await;
    }
}
