//! The queue of the engine's events. Media threads add to it and never wait; the writer of `events`
//! empties it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conversation::event::EventEnvelope;
use conversation::id::ConversationId;
use engine_api::EventSink;
use tokio::sync::{mpsc, oneshot};

use crate::store::Store;

/// A message to the writer.
#[allow(clippy::large_enum_variant)] // nearly all are events
pub(crate) enum Message {
    Event(ConversationId, EventEnvelope),
    CallPanicked(ConversationId),
    Flush(oneshot::Sender<()>),
}

/// The sender. Its channel is unbounded, because a media thread may not wait and an event may not
/// be lost. Events are small and few. While the store rejects writes or is slow, they move to a
/// `Backlog` of `events`, which is bounded.
#[derive(Clone)]
pub(crate) struct EventQueue {
    sender: mpsc::UnboundedSender<Message>,
    stats: Arc<QueueStats>,
}

/// Statistics of the queue.
#[derive(Default)]
pub(crate) struct QueueStats {
    pub(crate) waiting: AtomicUsize,
    pub(crate) dropped: AtomicU64,
    pub(crate) fenced: AtomicU64,
    /// Calls that panicked and whose records have not ended yet.
    panicked: Mutex<HashSet<ConversationId>>,
}

impl QueueStats {
    pub(crate) fn lock_panicked(&self) -> MutexGuard<'_, HashSet<ConversationId>> {
        self.panicked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receiver.
pub(crate) struct EventReceiver {
    pub(crate) receiver: mpsc::UnboundedReceiver<Message>,
    pub(crate) stats: Arc<QueueStats>,
}

/// Creates a sender and its receiver.
pub(crate) fn channel() -> (EventQueue, EventReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let stats = Arc::<QueueStats>::default();
    (EventQueue { sender, stats: Arc::clone(&stats) }, EventReceiver { receiver, stats })
}

impl EventSink for EventQueue {
    fn record(&self, conversation: ConversationId, envelope: EventEnvelope) {
        self.stats.waiting.fetch_add(1, Ordering::Relaxed);
        if self.sender.send(Message::Event(conversation, envelope)).is_err() {
            tracing::error!(%conversation, "event received after the event queue was closed");
        }
    }

    fn call_panicked(&self, conversation: ConversationId) {
        // The client may come back before the record shows that the call is over.
        self.stats.lock_panicked().insert(conversation);
        if self.sender.send(Message::CallPanicked(conversation)).is_err() {
            tracing::error!(%conversation, "a call failed after the event queue was closed");
        }
    }
}

impl EventQueue {
    /// Number of events that are not stored yet, as far as a sender knows.
    pub(crate) fn waiting(&self) -> usize {
        self.stats.waiting.load(Ordering::Relaxed)
    }

    /// Whether the call has panicked and its record is about to end.
    pub(crate) fn has_panicked(&self, conversation: ConversationId) -> bool {
        self.stats.lock_panicked().contains(&conversation)
    }

    /// Number of events that were dropped because too many waited.
    pub(crate) fn dropped(&self) -> u64 {
        self.stats.dropped.load(Ordering::Relaxed)
    }

    /// Number of events that were rejected because this process no longer holds their call.
    pub(crate) fn fenced(&self) -> u64 {
        self.stats.fenced.load(Ordering::Relaxed)
    }

    /// Waits until every event emitted before is in the store, or the store rejects writes.
    pub(crate) async fn flush(&self, store: &Store) {
        let (done, wait) = oneshot::channel();
        if self.sender.send(Message::Flush(done)).is_ok() {
            tokio::select! {
                // The writer drops a flush request only when the server stops.
                _ = wait => {}
                () = store.health.wait_for_failure() => {}
            }
        }
    }
}
