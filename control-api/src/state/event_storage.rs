//! What the storage of events uses: the store, and those who are notified of what was stored. The
//! code is in `events`; it is also called by a handler, for the end of a conversation.

use std::sync::Arc;
use std::time::Duration;

use conversation::id::ConversationId;
use tokio::sync::{broadcast, mpsc};

use crate::state::guardrail_callback::GuardrailCallback;
use crate::state::live_calls::Connections;
use crate::state::webhook_queue::OutboxMessage;
use crate::store::Store;
use crate::store::ownership::Holder;

/// The store, and the receivers of what was stored. Cheap to clone.
#[derive(Clone)]
pub(crate) struct EventStorage {
    pub(crate) store: Store,
    /// The server that delivers the webhooks of the stored events.
    pub(crate) server_id: Arc<str>,
    /// This process: it adds the events of the calls that it holds.
    pub(crate) holder: Holder,
    /// Delay before the first attempt of a webhook.
    pub(crate) first_attempt_delay: Duration,
    /// Receives each webhook that was written.
    pub(crate) outbox: mpsc::UnboundedSender<OutboxMessage>,
    /// Receives each triggered guardrail that has a receiver.
    pub(crate) guardrail_callbacks: mpsc::UnboundedSender<GuardrailCallback>,
    /// Notified after each commit of events.
    pub(crate) commits: broadcast::Sender<ConversationId>,
    /// Those of an ended conversation are removed.
    pub(crate) connections: Arc<Connections>,
}
