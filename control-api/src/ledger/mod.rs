//! The ledger: facts come in from the media threads, which never wait, and one task writes them, a few milliseconds' worth at a time.
//!
//! What follows from a fact is written in its transaction: the webhook that must be sent, the conversation's status. So nothing is
//! told that is not kept, and nothing kept that is not told.

mod fold;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use conversation::call::ConversationId;
use conversation::event::Stamped;
use conversation::host::Ledger;
use conversation::input::Command;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

pub(crate) use self::fold::append;
use self::fold::{Change, Live};
use crate::app::Shared;
use crate::store;

/// How long facts are gathered before they are written together.
const GATHER: Duration = Duration::from_millis(20);
/// Facts of one transaction at most.
const BATCH: usize = 2000;
/// Waits between tries to write while the store fails.
const RETRY: Duration = Duration::from_millis(500);

#[allow(clippy::large_enum_variant)] // nearly all are facts
enum Message {
    Fact(ConversationId, Stamped),
    Flush(oneshot::Sender<()>),
}

/// The way in. Its channel has no bound, because neither may a media thread wait nor may a fact be lost; facts are small and few.
#[derive(Clone)]
pub(crate) struct Facts(mpsc::UnboundedSender<Message>, Arc<AtomicUsize>);

/// The other end.
pub(crate) struct Queue(mpsc::UnboundedReceiver<Message>, Arc<AtomicUsize>);

/// A way in and its other end.
pub(crate) fn channel() -> (Facts, Queue) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Facts(sender, Arc::clone(&waiting)), Queue(receiver, waiting))
}

impl Ledger for Facts {
    fn record(&self, conversation: ConversationId, fact: Stamped) {
        self.1.fetch_add(1, Ordering::Relaxed);
        if self.0.send(Message::Fact(conversation, fact)).is_err() {
            tracing::error!(%conversation, "a fact came after the ledger was closed");
        }
    }
}

impl Facts {
    /// Facts on their way, as far as a sender can tell.
    pub(crate) fn waiting(&self) -> usize {
        self.1.load(Ordering::Relaxed)
    }

    /// Waits until every fact told before is in the store.
    pub(crate) async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        if self.0.send(Message::Flush(done)).is_ok() {
            // The writer is gone only when the server stops.
            let _ = wait.await;
        }
    }
}

/// Writes facts until `stop`, then what is still on its way.
pub(crate) async fn run(shared: Arc<Shared>, mut queue: Queue, mut stop: watch::Receiver<bool>) {
    let mut live = HashMap::new();
    loop {
        let first = tokio::select! {
            message = queue.0.recv() => message,
            _ = stop.wait_for(|stop| *stop) => None,
        };
        let Some(first) = first else { break };
        let (mut facts, mut flushes) = (Vec::new(), Vec::new());
        take(first, &mut facts, &mut flushes);
        let until = Instant::now() + GATHER;
        while flushes.is_empty() && facts.len() < BATCH {
            match tokio::time::timeout_at(until, queue.0.recv()).await {
                Ok(Some(message)) => take(message, &mut facts, &mut flushes),
                Ok(None) | Err(_) => break,
            }
        }
        let written = facts.len();
        commit(&shared, &mut live, facts, &stop).await;
        queue.1.fetch_sub(written, Ordering::Relaxed);
        for done in flushes {
            let _ = done.send(());
        }
    }
    let (mut facts, mut flushes) = (Vec::new(), Vec::new());
    while let Ok(message) = queue.0.try_recv() {
        take(message, &mut facts, &mut flushes);
    }
    commit(&shared, &mut live, facts, &stop).await;
}

fn take(
    message: Message,
    facts: &mut Vec<(ConversationId, Stamped)>,
    flushes: &mut Vec<oneshot::Sender<()>>,
) {
    match message {
        Message::Fact(id, fact) => facts.push((id, fact)),
        Message::Flush(done) => flushes.push(done),
    }
}

/// Writes a batch, trying again until it is in the store: facts are not lost because a disk is full for a while.
async fn commit(
    shared: &Shared,
    live: &mut HashMap<ConversationId, Live>,
    facts: Vec<(ConversationId, Stamped)>,
    stop: &watch::Receiver<bool>,
) {
    let mut prepared = Vec::with_capacity(facts.len());
    let mut over = Vec::new();
    for (id, fact) in facts {
        let known = match live.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let name = id.to_string();
                match retried(stop, || Live::load(shared, &name)).await {
                    Some(Some(known)) => place.insert(known),
                    Some(None) => {
                        tracing::debug!(conversation = %id, "a fact of a conversation that is not there is dropped");
                        end_in_engine(shared, id);
                        continue;
                    }
                    None => continue,
                }
            }
        };
        prepared.push(known.prepare(shared, fact));
        if known.ended() {
            over.push(id);
        }
    }
    if prepared.is_empty() {
        return;
    }
    let write = || async {
        let mut tx = shared.store.write().await?;
        let done = fold::write(&mut tx, &shared.server, &prepared).await?;
        tx.commit().await?;
        Ok(done)
    };
    let Some(written) = retried(stop, write).await else { return };
    for id in written.refused.iter().filter_map(|id| id.parse().ok()) {
        // It was ended while its connection came up.
        live.remove(&id);
        end_in_engine(shared, id);
    }
    for fact in prepared.iter().filter(|fact| !matches!(fact.change, Change::None)) {
        if let Ok(id) = fact.conversation.parse() {
            shared.pending.forget(id);
        }
    }
    for id in over {
        live.remove(&id);
    }
    fold::announce(shared, prepared, &written);
}

/// Ends a call that the engine holds for a conversation which is over, or was erased.
fn end_in_engine(shared: &Shared, id: ConversationId) {
    if let Some(host) = shared.host.get().cloned() {
        tokio::spawn(async move { host.command(id, Command::End).await });
    }
}

/// Does `work` until it succeeds; `None` if the server stops first.
async fn retried<T, F>(stop: &watch::Receiver<bool>, mut work: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = store::Result<T>>,
{
    let mut failed = false;
    loop {
        match work().await {
            Ok(done) => return Some(done),
            Err(error) => {
                if !failed {
                    tracing::error!(%error, "facts cannot be written; trying again");
                }
                // One more try after the stop, then the facts are lost with the process.
                if failed && *stop.borrow() {
                    return None;
                }
                failed = true;
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
