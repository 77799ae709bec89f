//! The ledger: facts come in from the media threads, which never wait, and one task writes them, a few milliseconds' worth at a time.
//!
//! What follows from a fact is written in its transaction: the webhook that must be sent, the conversation's status. So nothing is
//! told that is not kept, and nothing kept that is not told.

mod backlog;
mod fold;
mod inbox;
mod writer;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conversation::call_config::ConversationId;
use conversation::engine::EventSink;
use conversation::event::EventEnvelope;
use tokio::sync::{mpsc, oneshot};

pub(crate) use self::fold::append;
pub(crate) use self::writer::Writer;
use crate::store::Store;

#[allow(clippy::large_enum_variant)] // nearly all are facts
enum Message {
    Fact(ConversationId, EventEnvelope),
    Broke(ConversationId),
    Flush(oneshot::Sender<()>),
}

/// The way in. Its channel has no bound, because neither may a media thread wait nor may a fact be lost; facts are small and few, and while the
/// store takes no writes or is late they are moved on into a [`backlog::Backlog`], which has one.
#[derive(Clone)]
pub(crate) struct Facts {
    sender: mpsc::UnboundedSender<Message>,
    counts: Arc<Counts>,
}

/// What is told of the facts.
#[derive(Default)]
struct Counts {
    waiting: AtomicUsize,
    dropped: AtomicU64,
    /// Calls that broke and whose records are not ended yet.
    broken: Mutex<HashSet<ConversationId>>,
}

impl Counts {
    fn broken(&self) -> MutexGuard<'_, HashSet<ConversationId>> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The other end.
pub(crate) struct Queue {
    receiver: mpsc::UnboundedReceiver<Message>,
    counts: Arc<Counts>,
}

/// A way in and its other end.
pub(crate) fn channel() -> (Facts, Queue) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let counts = Arc::<Counts>::default();
    (Facts { sender, counts: Arc::clone(&counts) }, Queue { receiver, counts })
}

impl EventSink for Facts {
    fn record(&self, conversation: ConversationId, fact: EventEnvelope) {
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        if self.sender.send(Message::Fact(conversation, fact)).is_err() {
            tracing::error!(%conversation, "a fact came after the ledger was closed");
        }
    }

    fn call_panicked(&self, conversation: ConversationId) {
        // Its client may come back before the record says that it is over.
        self.counts.broken().insert(conversation);
        if self.sender.send(Message::Broke(conversation)).is_err() {
            tracing::error!(%conversation, "a call broke after the ledger was closed");
        }
    }
}

impl Facts {
    /// Facts on their way, as far as a sender can tell.
    pub(crate) fn waiting(&self) -> usize {
        self.counts.waiting.load(Ordering::Relaxed)
    }

    /// Whether the call broke a moment ago, so that its record is about to end.
    pub(crate) fn is_broken(&self, conversation: ConversationId) -> bool {
        self.counts.broken().contains(&conversation)
    }

    /// Facts that were dropped because too many waited.
    pub(crate) fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Waits until every fact told before is in the store, or the store takes no writes.
    pub(crate) async fn flush(&self, store: &Store) {
        let (done, wait) = oneshot::channel();
        if self.sender.send(Message::Flush(done)).is_ok() {
            tokio::select! {
                // What the writer holds is gone only when the server stops.
                _ = wait => {}
                () = store.health.fails() => {}
            }
        }
    }
}
