//! What handlers share: [`AppState`], and the handle types through which they reach the background
//! tasks. A task receives only those handles that it uses (`background`). Nothing here imports a
//! handler or a task.

pub(crate) mod api_key;
pub(crate) mod call_commands;
pub(crate) mod event_queue;
pub(crate) mod event_storage;
pub(crate) mod guardrail_callback;
pub(crate) mod join_token;
pub(crate) mod key_usage;
pub(crate) mod knowledge_search;
pub(crate) mod live_calls;
pub(crate) mod live_pose_sets;
pub(crate) mod livekit;
pub(crate) mod media_link;
pub(crate) mod meetings;
pub(crate) mod photo_checks;
pub(crate) mod preview_queue;
pub(crate) mod rate_limit;
pub(crate) mod recording_queue;
pub(crate) mod relay;
pub(crate) mod server_report;
pub(crate) mod supervise;
pub(crate) mod video_queue;
pub(crate) mod voice_cache;
pub(crate) mod webhook_queue;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use conversation::id::ConversationId;
use conversation::input::Command;
use conversation::output::CommandOutcome;
use engine_api::{CommandError, Engine};
use tokio::sync::{Notify, broadcast, mpsc};

use self::api_key::EnvironmentKey;
use self::call_commands::CallCommands;
use self::event_queue::EventQueue;
use self::event_storage::EventStorage;
use self::join_token::TokenSigner;
use self::key_usage::KeyUsage;
use self::knowledge_search::{KnowledgeCache, QueryEmbedder};
use self::live_calls::{ConnectingCalls, Connections, PendingOffers, UnconfirmedEnds};
use self::live_pose_sets::LivePoseSets;
use self::livekit::LiveKit;
use self::media_link::MediaLinkSigner;
use self::meetings::Meetings;
use self::photo_checks::PhotoChecks;
use self::preview_queue::PreviewRenderer;
use self::rate_limit::{RateLimit, WindowLimit};
use self::recording_queue::RecordingQueue;
use self::relay::Relay;
use self::server_report::Reporter;
use self::supervise::{BackgroundTasks, EVENT_WRITER};
use self::video_queue::VideoQueue;
use self::voice_cache::VoiceCache;
use self::webhook_queue::OutboxMessage;
use crate::config::{Config, StockAvatar};
use crate::storage::Storage;
use crate::store::Store;
use crate::store::vault::Vault;

/// Rate limits, per minute.
pub(crate) struct RateLimits {
    pub(crate) keys: RateLimit<[u8; 32]>,
    pub(crate) offers: RateLimit<IpAddr>,
    pub(crate) embeds: RateLimit<IpAddr>,
    /// Samples of voices and tests of providers, by workspace.
    pub(crate) trials: WindowLimit<Arc<str>>,
}

/// The engine, once `App::router` has set it. Tasks that need it may start before.
pub(crate) type EngineCell = OnceLock<Arc<dyn Engine>>;

/// What handlers share.
pub(crate) struct AppState {
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) vault: Arc<Vault>,
    pub(crate) token_signer: TokenSigner,
    pub(crate) media_links: MediaLinkSigner,
    pub(crate) environment_key: EnvironmentKey,
    /// Uses of API keys that are not written yet.
    pub(crate) key_usage: Arc<KeyUsage>,
    pub(crate) rate_limits: RateLimits,
    pub(crate) stock_avatars: Vec<StockAvatar>,
    /// The first workspace, which owns the demo agent.
    pub(crate) default_workspace: String,
    /// The server's id; a restart ends the conversations with this id.
    pub(crate) server_id: Arc<str>,
    /// The engine, set by `App::router`.
    pub(crate) engine: Arc<EngineCell>,
    /// Where the engine's events go.
    pub(crate) events: EventQueue,
    /// Stores the ends of conversations that no client joined.
    pub(crate) event_storage: EventStorage,
    /// Notified after each commit of events.
    pub(crate) commits: broadcast::Sender<ConversationId>,
    /// Receives each webhook that was written.
    pub(crate) outbox: mpsc::UnboundedSender<OutboxMessage>,
    /// Number of guardrail callbacks that were dropped because too many waited.
    pub(crate) guardrail_callbacks_dropped: Arc<AtomicU64>,
    /// Offers that may still connect.
    pub(crate) pending_offers: Arc<PendingOffers>,
    /// Calls that may still connect, by workspace.
    pub(crate) connecting_calls: ConnectingCalls,
    /// Sends requests to the servers that run other calls.
    pub(crate) relay: Arc<Relay>,
    /// Conversations whose requested end could not be stored yet.
    pub(crate) unconfirmed_ends: UnconfirmedEnds,
    /// Connections whose offer was answered.
    pub(crate) connections: Arc<Connections>,
    /// Checks uploaded photos.
    pub(crate) photo_checks: PhotoChecks,
    /// Notified when a drawing job is queued.
    pub(crate) bake_queued: Arc<Notify>,
    /// Pose sets of custom avatars that running calls show.
    pub(crate) live_pose_sets: Arc<LivePoseSets>,
    /// Renders previews.
    pub(crate) preview_renderer: Arc<PreviewRenderer>,
    /// Where recordings are stored.
    pub(crate) storage: Arc<Storage>,
    /// Wakes the tasks of recordings.
    pub(crate) recordings: Arc<RecordingQueue>,
    /// Wakes the tasks of videos.
    pub(crate) videos: Arc<VideoQueue>,
    /// What the handlers and the task of meetings share.
    pub(crate) meetings: Arc<Meetings>,
    /// The LiveKit server whose rooms agents join.
    pub(crate) livekit: Option<Arc<LiveKit>>,
    /// Notified when a document is queued for extraction.
    pub(crate) document_queued: Arc<Notify>,
    /// Notified when a document was extracted.
    pub(crate) document_read: Arc<Notify>,
    /// Computes embeddings, if the operator configured it.
    pub(crate) query_embedder: Option<Arc<QueryEmbedder>>,
    /// Indexes of the agents' knowledge.
    pub(crate) knowledge_cache: KnowledgeCache,
    /// Voices of vendors.
    pub(crate) voice_cache: VoiceCache,
    /// Sends requests under the operator's policy.
    pub(crate) http_client: egress::Client,
    /// State of the background tasks.
    pub(crate) tasks: Arc<BackgroundTasks>,
    /// Whether new calls are refused.
    pub(crate) draining: Arc<AtomicBool>,
}

impl AppState {
    /// The engine.
    #[expect(clippy::expect_used, reason = "the router sets the engine before any handler runs")]
    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        self.engine.get().expect("the router sets the engine before any handler runs")
    }

    /// Lets a command take effect in a call of this server. `None` if no such call runs here.
    pub(crate) async fn send_command(
        &self,
        conversation: ConversationId,
        command: Command,
    ) -> Option<CommandOutcome> {
        match self.engine.get()?.send_command(conversation, command).await {
            Ok(outcome) => Some(outcome),
            Err(CommandError::Rejected(reason)) => Some(CommandOutcome::Rejected(reason)),
            Err(CommandError::NotRunning) => None,
        }
    }

    /// Sends commands to calls, wherever they run.
    pub(crate) fn call_commands(&self) -> CallCommands {
        CallCommands { engine: Arc::clone(&self.engine), relay: Arc::clone(&self.relay) }
    }

    /// Creates reports of this server for others.
    pub(crate) fn reporter(&self) -> Reporter {
        Reporter {
            engine: Arc::clone(&self.engine),
            store: self.store.clone(),
            draining: Arc::clone(&self.draining),
            region: self.config.region.clone(),
        }
    }

    /// Whether new calls are refused because the server is about to stop.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Why a call that starts now would leave no record, or `None`.
    pub(crate) fn persistence_failure(&self) -> Option<String> {
        let down = || {
            self.tasks
                .is_down(EVENT_WRITER)
                .then(|| "the task that writes events has failed".to_owned())
        };
        self.store.health.failure_reason().or_else(down)
    }
}
