//! The one task that writes facts. While the store takes no writes it tries again, and what comes meanwhile waits in a [`Backlog`]; a fact
//! that the store refuses alone is put aside as text, so that nothing else waits for it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use conversation::call::ConversationId;
use conversation::event::Stamped;
use conversation::input::Command;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::backlog::Backlog;
use super::fold::{self, Change, Live, Prepared, Written};
use super::{Message, Queue};
use crate::app::Shared;
use crate::{lifecycle, store};

/// How long facts are gathered before they are written together.
const GATHER: Duration = Duration::from_millis(20);
/// Facts of one transaction at most.
const BATCH: usize = 2000;
/// Wait between two tries to write while the store fails.
const RETRY: Duration = Duration::from_millis(500);
/// Tries after which facts are written one by one, to find the one that the store refuses.
const TRIES: u32 = 5;

/// The task's state.
pub(super) struct Writer {
    shared: Arc<Shared>,
    queue: Queue,
    stop: watch::Receiver<bool>,
    /// Conversations of which facts come.
    live: HashMap<ConversationId, Live>,
    /// Facts that came while the store took no writes.
    backlog: Backlog,
    /// What comes behind them.
    later: Vec<Message>,
    /// Conversations that could not be read: their facts are put aside without waiting again.
    unreadable: HashSet<ConversationId>,
}

/// What is written together, and done behind it.
#[derive(Default)]
struct Batch {
    facts: Vec<(ConversationId, Stamped)>,
    broken: Vec<ConversationId>,
    flushes: Vec<oneshot::Sender<()>>,
}

impl Batch {
    fn take(&mut self, message: Message) {
        match message {
            Message::Fact(id, fact) => self.facts.push((id, fact)),
            Message::Broke(id) => self.broken.push(id),
            Message::Flush(done) => self.flushes.push(done),
        }
    }
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, queue: Queue, stop: watch::Receiver<bool>) -> Self {
        Self {
            shared,
            queue,
            stop,
            live: HashMap::new(),
            backlog: Backlog::default(),
            later: Vec::new(),
            unreadable: HashSet::new(),
        }
    }

    pub(super) async fn run(mut self) {
        while let Some(batch) = self.gather().await {
            self.write(batch).await;
        }
        let mut rest = Batch { facts: self.backlog.take(usize::MAX), ..Batch::default() };
        self.later.drain(..).for_each(|message| rest.take(message));
        while let Ok(message) = self.queue.receiver.try_recv() {
            rest.take(message);
        }
        // In pieces: what is written before the process must end is kept.
        while rest.facts.len() > BATCH {
            let more = rest.facts.split_off(BATCH);
            let facts = std::mem::replace(&mut rest.facts, more);
            self.write(Batch { facts, ..Batch::default() }).await;
        }
        self.write(rest).await;
    }

    /// The next facts; `None` when the server stops. While the store fails and nothing waits it is tried, too: others want to write.
    async fn gather(&mut self) -> Option<Batch> {
        if *self.stop.borrow() {
            return None;
        }
        let mut batch = Batch { facts: self.backlog.take(BATCH), ..Batch::default() };
        if !batch.facts.is_empty() {
            return Some(batch);
        }
        self.later.drain(..).for_each(|message| batch.take(message));
        while batch.facts.is_empty() && batch.broken.is_empty() && batch.flushes.is_empty() {
            let failing = self.shared.store.health.failing().is_some();
            tokio::select! {
                message = self.queue.receiver.recv() => batch.take(message?),
                () = stopped(&mut self.stop) => return None,
                () = tokio::time::sleep(RETRY), if failing => {
                    // It tells the store's health itself.
                    let _ = self.shared.store.probe().await;
                }
                () = self.shared.store.health.fails(), if !failing => {}
            }
        }
        let until = Instant::now() + GATHER;
        while batch.flushes.is_empty() && batch.facts.len() < BATCH {
            match timeout_at(until, self.queue.receiver.recv()).await {
                Ok(Some(message)) => batch.take(message),
                Ok(None) | Err(_) => break,
            }
        }
        Some(batch)
    }

    /// Waits before the next try; what comes meanwhile goes behind what waits. False if the server stops.
    async fn wait(&mut self) -> bool {
        let until = Instant::now() + RETRY;
        loop {
            let message = tokio::select! {
                () = stopped(&mut self.stop) => return false,
                message = timeout_at(until, self.queue.receiver.recv()) => message,
            };
            match message {
                Ok(Some(Message::Fact(id, fact))) => {
                    let dropped = self.backlog.push(id, fact);
                    self.queue.counts.dropped.fetch_add(dropped, Ordering::Relaxed);
                    self.settle(dropped as usize);
                }
                Ok(Some(other)) => self.later.push(other),
                Ok(None) | Err(_) => return true,
            }
        }
    }

    /// So many facts wait no more.
    fn settle(&self, facts: usize) {
        self.queue.counts.waiting.fetch_sub(facts, Ordering::Relaxed);
    }

    async fn write(&mut self, batch: Batch) {
        let count = batch.facts.len();
        self.commit(batch.facts).await;
        self.settle(count);
        for id in batch.broken {
            self.end_broken(id).await;
            self.queue.counts.broken().remove(&id);
        }
        for done in batch.flushes {
            // Who waited may have gone.
            let _ = done.send(());
        }
    }

    /// The record of a call whose code panicked ends as after a crash of the server: with what was heard, and an error.
    async fn end_broken(&mut self, id: ConversationId) {
        self.live.remove(&id);
        let name = id.to_string();
        let mut tries = 0;
        loop {
            let Err(error) = lifecycle::recover_one(&self.shared, &name).await else { return };
            tries += 1;
            if tries == 1 {
                tracing::error!(conversation = %id, %error, "a broken call cannot be ended; trying again");
            }
            // What is refused though others are written is ended by the next start of the server, if at all.
            let refused = tries >= TRIES && !error.is_outage();
            if refused || !self.wait().await {
                return;
            }
            // It tells the store's health itself.
            let _ = self.shared.store.probe().await;
        }
    }

    /// Writes facts with what follows from them, trying again until they are in the store.
    async fn commit(&mut self, facts: Vec<(ConversationId, Stamped)>) {
        let mut prepared = Vec::with_capacity(facts.len());
        for (id, fact) in facts {
            if !self.live.contains_key(&id) && !self.load(id, &fact).await {
                continue;
            }
            if let Entry::Occupied(known) = self.live.entry(id) {
                prepared.push(known.into_mut().prepare(&self.shared, fact));
            }
        }
        // One more try after the stop, then the facts are lost with the process.
        let (mut tries, mut last) = (0_u32, false);
        while !prepared.is_empty() {
            match write(&self.shared, &prepared).await {
                Ok(written) => return self.written(prepared, &written),
                Err(error) => {
                    tries += 1;
                    if tries == 1 {
                        tracing::error!(%error, facts = prepared.len(), "facts cannot be written; trying again");
                    }
                    if error.is_outage() {
                        self.shared.store.health.note(&error.to_string());
                    }
                }
            }
            if tries.is_multiple_of(TRIES) {
                prepared = self.one_by_one(prepared).await;
            }
            if !prepared.is_empty() && !self.wait().await && std::mem::replace(&mut last, true) {
                tracing::error!(facts = prepared.len(), "the server stops, and these facts are lost");
                return;
            }
        }
    }

    /// Reads a conversation of which a fact came. False if that cannot be: then the fact is dropped, or put aside.
    async fn load(&mut self, id: ConversationId, fact: &Stamped) -> bool {
        let name = id.to_string();
        let (mut tries, mut last) = (0, false);
        loop {
            match Live::load(&self.shared, &name).await {
                Ok(Some(known)) => {
                    self.live.insert(id, known);
                    return true;
                }
                Ok(None) => {
                    tracing::debug!(conversation = %id, "a fact of a conversation that is not there is dropped");
                    end_in_engine(&self.shared, id);
                    return false;
                }
                Err(error) => {
                    tries += 1;
                    if tries == 1 {
                        tracing::error!(conversation = %id, %error, "a conversation cannot be read; trying again");
                    }
                    let damaged = !error.is_outage();
                    let known = tries >= TRIES || self.unreadable.contains(&id);
                    if damaged && known && put_aside(&self.shared, &name, fact, &error).await.is_ok() {
                        self.unreadable.insert(id);
                        return false;
                    }
                }
            }
            if !self.wait().await && std::mem::replace(&mut last, true) {
                return false;
            }
        }
    }

    /// Writes each fact by itself. One that is refused twice, though another write is taken between, is put aside; the rest of a store that
    /// takes none is given back.
    async fn one_by_one(&mut self, prepared: Vec<Prepared>) -> Vec<Prepared> {
        let mut rest = prepared.into_iter();
        while let Some(one) = rest.next() {
            let one = [one];
            let mut done = write(&self.shared, &one).await;
            let mut takes = done.is_ok();
            if done.as_ref().is_err_and(|error| !error.is_outage()) {
                // Perhaps it was away and is back: then the fact is not at fault.
                takes = self.shared.store.probe().await.is_ok();
                if takes {
                    done = write(&self.shared, &one).await;
                }
            }
            match done {
                Ok(written) => self.written(one.into(), &written),
                Err(error) => {
                    let [fact] = &one;
                    if !takes || error.is_outage() || fact.put_aside(&self.shared, &error).await.is_err() {
                        self.shared.store.health.note(&error.to_string());
                        return one.into_iter().chain(rest).collect();
                    }
                    // Nothing of it is told, but that there is something new on the record.
                    let written = Written::nothing_of(&fact.conversation);
                    if let (false, Ok(id)) = (matches!(fact.change, Change::None), fact.conversation.parse())
                    {
                        self.shared.pending.forget(id);
                    }
                    fold::announce(&self.shared, one.into(), &written);
                }
            }
        }
        Vec::new()
    }

    /// Facts are in the store: whoever waits for that is told.
    fn written(&mut self, prepared: Vec<Prepared>, written: &Written) {
        for id in written.refused.iter().filter_map(|id| id.parse().ok()) {
            // It was ended while its connection came up.
            self.live.remove(&id);
            end_in_engine(&self.shared, id);
        }
        for fact in prepared.iter().filter(|fact| !matches!(fact.change, Change::None)) {
            if let Ok(id) = fact.conversation.parse() {
                self.shared.pending.forget(id);
            }
        }
        self.live.retain(|_, known| !known.ended());
        fold::announce(&self.shared, prepared, written);
    }
}

/// The server stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone has stopped, too.
    drop(stop.wait_for(|stop| *stop).await);
}

async fn write(shared: &Shared, facts: &[Prepared]) -> store::Result<Written> {
    let mut tx = shared.store.try_write().await?;
    let written = fold::write(&mut tx, &shared.server, facts).await?;
    tx.commit().await?;
    Ok(written)
}

/// Keeps a fact that the store refuses as text.
async fn put_aside(shared: &Shared, id: &str, fact: &Stamped, why: &store::Error) -> store::Result<()> {
    let mut tx = shared.store.try_write().await?;
    store::failed_event::insert(&mut tx, id, fact, &why.to_string()).await?;
    tx.commit().await?;
    tracing::error!(conversation = id, seq = fact.seq, %why, "a fact is refused by the store and kept in failed_event");
    Ok(())
}

/// Ends a call that the engine holds for a conversation which is over, or was erased.
fn end_in_engine(shared: &Shared, id: ConversationId) {
    if let Some(host) = shared.host.get().cloned() {
        tokio::spawn(async move { host.command(id, Command::End).await });
    }
}
