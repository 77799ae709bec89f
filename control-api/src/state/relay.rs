//! Requests about calls that other servers run. They are rows of the shared database: no server
//! needs the address of another one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conversation::id::ConversationId;
use conversation::input::Command;
use conversation::output::CommandOutcome;
use engine_api::AcceptedOffer;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::clock;
use crate::error::ApiError;
use crate::store::{self, Store};

/// How long a request waits until the other server takes it, and how long it then waits for the
/// reply.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What another server is asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum RelayedRequest {
    Command { conversation: ConversationId, command: Command },
    Offer { conversation: ConversationId, offer: ClientOffer },
    HangUp { conversation: ConversationId, connection: String },
}

/// A client's offer and its origin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClientOffer {
    pub(crate) sdp: String,
    /// The connection that this offer renegotiates or replaces.
    pub(crate) replaces: Option<String>,
    /// Whether a new connection takes the place of `replaces`.
    pub(crate) restart: bool,
    /// The client's network; `None` if the limits by address do not apply.
    pub(crate) network: Option<IpAddr>,
}

/// What the other server replies.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum RelayedReply {
    Command(CommandOutcome),
    Answer {
        sdp: String,
        connection: String,
    },
    /// Whether the connection existed.
    HungUp(bool),
    /// The other server does not hold the call.
    NotRunning,
    Refused(Refusal),
}

/// A refusal of an offer, by its status.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Refusal {
    BadRequest(String),
    NotAcceptable(String),
    Conflict(String),
    NoCapacity(String),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::BadRequest(text) => Self::BadRequest(text),
            ApiError::NotAcceptable(text) => Self::NotAcceptable(text),
            ApiError::Conflict(text) => Self::Conflict(text),
            ApiError::NoCapacity(text) => Self::NoCapacity(text),
            other => {
                tracing::warn!(error = ?other, "a relayed offer failed");
                Self::NoCapacity("the server that holds the call cannot accept the offer".into())
            }
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::BadRequest(text) => Self::BadRequest(text),
            Refusal::NotAcceptable(text) => Self::NotAcceptable(text),
            Refusal::Conflict(text) => Self::Conflict(text),
            Refusal::NoCapacity(text) => Self::NoCapacity(text),
        }
    }
}

/// Sends requests to other servers and waits for their replies.
pub(crate) struct Relay {
    store: Store,
    server_id: Arc<str>,
    /// Those who wait for a reply, by the id of the request.
    waiting: Mutex<HashMap<String, Arc<Notify>>>,
}

impl Relay {
    pub(crate) fn new(store: Store, server_id: Arc<str>) -> Self {
        Self { store, server_id, waiting: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The other server that holds a call; `None` if there is none.
    pub(crate) async fn other_holder(
        &self,
        conversation: ConversationId,
    ) -> Result<Option<String>, ApiError> {
        if !self.store.is_shared() {
            return Ok(None);
        }
        let holder = self.store.call_holder(&conversation.to_string()).await?;
        Ok(holder.filter(|holder| **holder != *self.server_id))
    }

    /// Lets a command take effect in the call of another server.
    ///
    /// # Errors
    /// See [`Self::ask`].
    pub(crate) async fn send_command(
        &self,
        target: &str,
        conversation: ConversationId,
        command: Command,
    ) -> Result<Option<CommandOutcome>, ApiError> {
        match self.ask(target, &RelayedRequest::Command { conversation, command }).await? {
            Some(RelayedReply::Command(outcome)) => Ok(Some(outcome)),
            Some(_) => Ok(None),
            None => Err(no_reply()),
        }
    }

    /// Lets another server accept an offer. `None` if that server does not execute the request, now
    /// and later, or does not hold the call.
    ///
    /// # Errors
    /// Its refusal; otherwise see [`Self::ask`].
    pub(crate) async fn submit_offer(
        &self,
        target: &str,
        conversation: ConversationId,
        offer: ClientOffer,
    ) -> Result<Option<AcceptedOffer>, ApiError> {
        match self.ask(target, &RelayedRequest::Offer { conversation, offer }).await? {
            Some(RelayedReply::Answer { sdp, connection }) => {
                Ok(Some(AcceptedOffer { answer: sdp, connection }))
            }
            Some(RelayedReply::Refused(refusal)) => Err(refusal.into()),
            Some(RelayedReply::NotRunning) | None => Ok(None),
            Some(_) => Err(no_reply()),
        }
    }

    /// Closes a connection of another server; false if it does not exist.
    ///
    /// # Errors
    /// Its refusal; otherwise see [`Self::ask`].
    pub(crate) async fn hang_up(
        &self,
        target: &str,
        conversation: ConversationId,
        connection: String,
    ) -> Result<bool, ApiError> {
        let request = RelayedRequest::HangUp { conversation, connection };
        let reply = self.ask(target, &request).await?.ok_or_else(no_reply)?;
        match reply {
            RelayedReply::Refused(refusal) => Err(refusal.into()),
            reply => Ok(matches!(reply, RelayedReply::HungUp(true))),
        }
    }

    /// Sends a request and waits for its reply. `None` if the other server has not taken the request
    /// in time, and never will.
    ///
    /// # Errors
    /// 503 if the other server takes the request and does not reply in time.
    async fn ask(
        &self,
        target: &str,
        request: &RelayedRequest,
    ) -> Result<Option<RelayedReply>, ApiError> {
        let id = store::new_id();
        let request = serde_json::to_string(request).map_err(|error| invalid(&error))?;
        let waiter = Waiter::new(self, &id);
        let lifetime = clock::to_micros(TIMEOUT);
        self.store.send_message(&id, (&self.server_id, target), &request, lifetime).await?;
        let mut deadline = Instant::now() + TIMEOUT;
        let mut is_taken = false;
        loop {
            let notified = timeout_at(deadline, waiter.replied.notified()).await;
            if let Some(reply) = self.store.take_reply(&id).await? {
                return serde_json::from_str(&reply).map(Some).map_err(|error| invalid(&error));
            }
            if notified.is_ok() {
                continue;
            }
            if is_taken {
                return Err(no_reply());
            }
            if self.store.expire_message(&id).await? {
                return Ok(None);
            }
            is_taken = true;
            deadline += TIMEOUT;
        }
    }

    /// The reply to a request may be in the store.
    pub(crate) fn on_reply(&self, id: &str) {
        if let Some(waiting) = self.lock().get(id) {
            waiting.notify_one();
        }
    }

    /// Notifications were lost: every reply may be in the store.
    pub(crate) fn on_reconnect(&self) {
        for waiting in self.lock().values() {
            waiting.notify_one();
        }
    }
}

/// Waits for one reply; forgotten when it is dropped.
struct Waiter<'a> {
    relay: &'a Relay,
    id: &'a str,
    replied: Arc<Notify>,
}

impl<'a> Waiter<'a> {
    fn new(relay: &'a Relay, id: &'a str) -> Self {
        let replied = Arc::<Notify>::default();
        relay.lock().insert(id.to_owned(), Arc::clone(&replied));
        Self { relay, id, replied }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.relay.lock().remove(self.id);
    }
}

/// The error of a request to a server that does not respond.
pub(crate) fn no_reply() -> ApiError {
    ApiError::NoCapacity("the server that runs the call does not respond".into())
}

fn invalid(error: &serde_json::Error) -> ApiError {
    ApiError::Internal("Internal server error", format!("a message between servers: {error}"))
}
