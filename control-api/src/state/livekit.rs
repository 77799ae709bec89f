//! LiveKit: what its handlers and tasks share.

pub(crate) mod dispatch;
pub(crate) mod rooms;
pub(crate) mod server_api;
pub(crate) mod tokens;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc;

use self::dispatch::Dispatch;
use self::rooms::Rooms;
use self::server_api::ServerApi;
use self::tokens::Tokens;
use crate::config::LiveKitConfig;

/// Maximum number of reported rooms that wait to be looked at. Those beyond are found by the poll.
const MAX_REPORTED_ROOMS: usize = 1_024;

/// A room in which something has changed.
#[derive(Clone, Debug)]
pub(crate) struct ReportedRoom {
    pub(crate) name: String,
    /// LiveKit's id of the room.
    pub(crate) sid: String,
}

/// What the parts that deal with LiveKit share.
pub(crate) struct LiveKit {
    pub(crate) config: LiveKitConfig,
    pub(crate) tokens: Tokens,
    pub(crate) api: ServerApi,
    pub(crate) rooms: Rooms,
    /// Id of the workspace whose agents jobs may name.
    pub(crate) workspace: String,
    /// Receives the rooms that webhooks report.
    reports: mpsc::Sender<ReportedRoom>,
    /// The other end, until the task takes it.
    reported: Mutex<Option<mpsc::Receiver<ReportedRoom>>>,
    /// Whether this server must be registered to be ready.
    requires_registration: AtomicBool,
    pub(crate) dispatch: Dispatch,
}

impl LiveKit {
    pub(crate) fn new(config: LiveKitConfig, workspace: String, client: &egress::Client) -> Self {
        let tokens = Tokens::new(&config);
        // The address is in the operator's configuration.
        let api = ServerApi::new(client.trusted(), &config.url, tokens.clone());
        let (reports, reported) = mpsc::channel(MAX_REPORTED_ROOMS);
        Self {
            config,
            tokens,
            api,
            rooms: Rooms::default(),
            workspace,
            reports,
            reported: Mutex::new(Some(reported)),
            requires_registration: AtomicBool::new(false),
            dispatch: Dispatch::default(),
        }
    }

    /// Why this server takes no jobs now, or `None`.
    pub(crate) fn not_ready_reason(&self) -> Option<String> {
        let is_missing =
            self.requires_registration.load(Ordering::Relaxed) && !self.dispatch.is_registered();
        is_missing.then(|| format!("not registered with LiveKit at {}", self.config.url))
    }

    /// A webhook reports that somebody came to a room, or left it.
    pub(crate) fn report(&self, room: ReportedRoom) {
        if self.reports.try_send(room).is_err() {
            tracing::debug!("a report about a LiveKit room is dropped: too many wait");
        }
    }

    /// The reports of webhooks. `None` if they were taken.
    pub(crate) fn take_reports(&self) -> Option<mpsc::Receiver<ReportedRoom>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The URL for clients, as their libraries expect it.
    pub(crate) fn client_url(&self) -> String {
        match self.config.url.split_once("://") {
            Some(("http", rest)) => format!("ws://{rest}"),
            Some(("https", rest)) => format!("wss://{rest}"),
            _ => self.config.url.clone(),
        }
    }

    /// The server is of no use without a registration.
    pub(crate) fn require_registration(&self) {
        self.requires_registration.store(true, Ordering::Relaxed);
    }
}
