//! What handlers and background tasks share: [`AppState`], and the handle types that it holds. It
//! imports no handler and no task.

pub(crate) mod api_key;
pub(crate) mod event_queue;
pub(crate) mod join_token;
pub(crate) mod key_usage;
pub(crate) mod knowledge_search;
pub(crate) mod preview_queue;
pub(crate) mod rate_limit;
pub(crate) mod registry;
pub(crate) mod supervise;
pub(crate) mod webhook_queue;

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use conversation::id::ConversationId;
use engine_api::Engine;
use tokio::sync::{Notify, broadcast, mpsc};

use self::api_key::Given;
use self::event_queue::Facts;
use self::join_token::Signer;
use self::key_usage::Uses;
use self::knowledge_search::{Cache, Meaning};
use self::preview_queue::Painter;
use self::rate_limit::Limit;
use self::registry::{Beginning, Connections, Pending, Unconfirmed};
use self::supervise::{LEDGER, Tasks};
use self::webhook_queue::{News, Notice};
use crate::config::{Config, StockAvatar};
use crate::store::Store;
use crate::store::vault::Vault;

/// Rate limits, per minute.
pub(crate) struct Limits {
    pub(crate) keys: Limit<[u8; 32]>,
    pub(crate) offers: Limit<IpAddr>,
    pub(crate) embeds: Limit<IpAddr>,
}

/// What handlers and background tasks share.
pub(crate) struct AppState {
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
    /// The engine, set by `App::router`.
    pub(crate) host: OnceLock<Arc<dyn Engine>>,
    /// Where the engine's events go.
    pub(crate) facts: Facts,
    /// Notified after each commit of events.
    pub(crate) news: broadcast::Sender<ConversationId>,
    /// Receives each webhook that was written.
    pub(crate) outbox: mpsc::UnboundedSender<News>,
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
    /// Whether new calls are refused.
    pub(crate) draining: AtomicBool,
}

/// By avatar: the completeness of the pose set in percent, and the pose set.
pub(crate) type Shown = HashMap<String, (u8, Weak<[u8]>)>;

impl AppState {
    /// The engine.
    pub(crate) fn host(&self) -> &Arc<dyn Engine> {
        self.host.get().expect("the router sets the engine before any handler runs")
    }

    /// Whether new calls are refused because the server is about to stop.
    pub(crate) fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Why a call that starts now would leave no record, or `None`.
    pub(crate) fn keeps_nothing(&self) -> Option<String> {
        let down = || self.tasks.is_down(LEDGER).then(|| "the task that writes events has failed".to_owned());
        self.store.health.failing().or_else(down)
    }
}
