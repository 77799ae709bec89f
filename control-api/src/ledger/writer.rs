//! The one task that writes facts. While the store takes no writes it tries again, and what comes meanwhile waits in the [`Inbox`]; a fact
//! that the store refuses alone, or whose code panics, is put aside as text, so that nothing else waits for it.
//!
//! All facts that are not stored yet lie in [`Writer`], so that the task can be restarted after a panic without loss.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use conversation::call_config::ConversationId;
use conversation::event::{Event, EventEnvelope};
use conversation::input::Command;
use models::contain::contained;
use tokio::sync::watch;

use super::Queue;
use super::fold::{self, Change, Live, Prepared, Written};
use super::inbox::{Batch, Inbox};
use crate::app::Shared;
use crate::conversation::record;
use crate::delivery::News;
use crate::watch::Moment;
use crate::{clock, lifecycle, store};

/// Tries after which facts are written one by one, to find the one that the store refuses.
const TRIES: u32 = 5;

/// The task's state.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    inbox: Inbox,
    /// Conversations of which facts come.
    live: HashMap<ConversationId, Live>,
    /// What is being worked on: taken from the inbox, and not prepared yet.
    hand: Batch,
    /// Prepared, and not in the store yet.
    prepared: VecDeque<Prepared>,
    /// Conversations that could not be read: their facts are put aside without waiting again.
    unreadable: HashSet<ConversationId>,
    /// Whether the task ran before: then it is restarted.
    begun: bool,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, queue: Queue, stop: watch::Receiver<bool>) -> Self {
        let inbox = Inbox::new(shared.store.clone(), queue, stop);
        Self {
            shared,
            inbox,
            live: HashMap::new(),
            hand: Batch::default(),
            prepared: VecDeque::new(),
            unreadable: HashSet::new(),
            begun: false,
        }
    }

    /// Writes facts until the server stops, then what is still on its way.
    pub(crate) async fn run(&mut self) {
        if std::mem::replace(&mut self.begun, true) {
            self.resume().await;
        }
        while self.inbox.gather(&mut self.hand).await {
            self.write().await;
        }
        loop {
            self.inbox.rest(&mut self.hand);
            if self.hand.is_empty() {
                return;
            }
            self.write().await;
        }
    }

    /// Goes on after a panic. What was prepared is complete. The state of the conversations may be half changed, and is read anew.
    async fn resume(&mut self) {
        self.store().await;
        self.live.clear();
        // Webhooks may be stored that were not announced.
        self.look();
        self.write().await;
    }

    /// Makes the delivery read the outbox. Its receiver lives as long as this task.
    fn look(&self) {
        let _ = self.shared.outbox.send(News::Look);
    }

    /// Does what is in hand.
    async fn write(&mut self) {
        while let Some((id, fact)) = self.hand.facts.pop_front() {
            if self.live.contains_key(&id) || self.load(id, &fact).await {
                self.prepare(id, fact).await;
            } else {
                self.inbox.settle(1);
            }
        }
        self.store().await;
        while let Some(id) = self.hand.broken.front().copied() {
            self.end_broken(id).await;
            self.inbox.ended(id);
            self.hand.broken.pop_front();
        }
        for done in self.hand.flushes.drain(..) {
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
            let ended = self.inbox.within(lifecycle::recover_one(&self.shared, &name)).await;
            let Err(error) = ended else { return };
            tries += 1;
            if tries == 1 {
                tracing::error!(conversation = %id, %error, "a broken call cannot be ended; trying again");
            }
            // What is refused though others are written is ended by the next start of the server, if at all.
            let refused = tries >= TRIES && !error.is_outage();
            if refused || !self.inbox.wait().await {
                return;
            }
            // It tells the store's health itself.
            let _ = self.inbox.within(self.shared.store.probe()).await;
        }
    }

    /// Takes in a fact of a conversation that is known. One whose code panics is put aside.
    async fn prepare(&mut self, id: ConversationId, fact: EventEnvelope) {
        let Some(live) = self.live.get_mut(&id) else { return };
        let follows = contained(|| {
            Moment::BeforeFact.tell(self.shared.config.watch);
            live.follow(&self.shared, &fact)
        });
        match follows {
            Some(follows) => self.prepared.push_back(live.prepared(fact, follows)),
            None => self.panicked(id, &fact).await,
        }
    }

    /// Puts aside a fact whose code panicked. The state of its conversation may be half changed, and is read anew: hence what was prepared
    /// before is stored first.
    async fn panicked(&mut self, id: ConversationId, fact: &EventEnvelope) {
        self.store().await;
        self.live.remove(&id);
        let (name, why) = (id.to_string(), store::Error::Panicked);
        let mut last = false;
        loop {
            let kept = put_aside(&self.shared, &name, fact, &why);
            let Err(error) = self.inbox.within(kept).await else { break };
            self.shared.store.health.note(&error.to_string());
            if !self.inbox.wait().await && std::mem::replace(&mut last, true) {
                tracing::error!(conversation = %id, seq = fact.seq, "the server stops, and a fact whose code panicked is lost");
                break;
            }
        }
        self.inbox.settle(1);
    }

    /// Writes what is prepared with what follows from it, trying again until it is in the store.
    async fn store(&mut self) {
        // One more try after the stop, then the facts are lost with the process.
        let (mut tries, mut last) = (0_u32, false);
        while !self.prepared.is_empty() {
            let facts = &*self.prepared.make_contiguous();
            match self.inbox.within(write(&self.shared, facts)).await {
                Ok(written) => {
                    let prepared = std::mem::take(&mut self.prepared).into();
                    return self.written(prepared, &written);
                }
                Err(error) => {
                    tries += 1;
                    if tries == 1 {
                        let facts = self.prepared.len();
                        tracing::error!(%error, facts, "facts cannot be written; trying again");
                    }
                    if error.is_outage() {
                        self.shared.store.health.note(&error.to_string());
                    }
                }
            }
            if tries.is_multiple_of(TRIES) {
                self.one_by_one().await;
            }
            if !self.prepared.is_empty() && !self.inbox.wait().await && std::mem::replace(&mut last, true) {
                let facts = self.prepared.len();
                tracing::error!(facts, "the server stops, and these facts are lost");
                self.prepared.clear();
                self.inbox.settle(facts);
            }
        }
    }

    /// Reads a conversation of which a fact came. False if that cannot be: then the fact is dropped, or put aside.
    async fn load(&mut self, id: ConversationId, fact: &EventEnvelope) -> bool {
        let name = id.to_string();
        let (mut tries, mut last) = (0, false);
        loop {
            match self.inbox.within(Live::load(&self.shared, &name)).await {
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
                    let kept = put_aside(&self.shared, &name, fact, &error);
                    if damaged && known && self.inbox.within(kept).await.is_ok() {
                        self.unreadable.insert(id);
                        return false;
                    }
                }
            }
            if !self.inbox.wait().await && std::mem::replace(&mut last, true) {
                return false;
            }
        }
    }

    /// Writes each fact by itself. One that is refused twice, though another write is taken between, is put aside; what a store that takes
    /// none has not taken stays.
    async fn one_by_one(&mut self) {
        while let Some(fact) = self.prepared.front() {
            let one = std::slice::from_ref(fact);
            let mut done = self.inbox.within(write(&self.shared, one)).await;
            let mut takes = done.is_ok();
            if done.as_ref().is_err_and(|error| !error.is_outage()) {
                // Perhaps it was away and is back: then the fact is not at fault.
                takes = self.inbox.within(self.shared.store.probe()).await.is_ok();
                if takes {
                    done = self.inbox.within(write(&self.shared, one)).await;
                }
            }
            let written = match done {
                Ok(written) => Some(written),
                Err(error) => {
                    if !takes
                        || error.is_outage()
                        || self.inbox.within(fact.put_aside(&self.shared, &error)).await.is_err()
                    {
                        return self.shared.store.health.note(&error.to_string());
                    }
                    None
                }
            };
            let Some(fact) = self.prepared.pop_front() else { return };
            match written {
                Some(written) => self.written(vec![fact], &written),
                None => {
                    // Nothing of it is told, but that there is something new on the record.
                    let written = Written::nothing_of(&fact.conversation);
                    self.inbox.settle(1);
                    self.tell(vec![fact], &written);
                }
            }
        }
    }

    /// Facts are in the store: whoever waits for that is told.
    fn written(&mut self, prepared: Vec<Prepared>, written: &Written) {
        self.inbox.settle(prepared.len());
        for id in written.refused.iter().filter_map(|id| id.parse().ok()) {
            // It was ended while its connection came up.
            self.live.remove(&id);
            end_in_engine(&self.shared, id);
        }
        self.live.retain(|_, known| !known.ended());
        self.tell(prepared, written);
    }

    /// Tells whoever waits for what became of facts.
    fn tell(&self, prepared: Vec<Prepared>, written: &Written) {
        for fact in prepared.iter().filter(|fact| !matches!(fact.change, Change::None)) {
            if let Ok(id) = fact.conversation.parse() {
                self.shared.pending.forget(id);
            }
        }
        if contained(|| fold::announce(&self.shared, prepared, written)).is_none() {
            self.look();
        }
    }
}

async fn write(shared: &Shared, facts: &[Prepared]) -> store::Result<Written> {
    let mut tx = shared.store.try_write().await?;
    let written = fold::write(&mut tx, &shared.server, facts).await?;
    tx.commit().await?;
    Ok(written)
}

/// Keeps a fact as text whose conversation cannot be read, or whose code panicked. The end of a conversation takes effect all the same; its
/// record is then made of its events.
async fn put_aside(shared: &Shared, id: &str, fact: &EventEnvelope, why: &store::Error) -> store::Result<()> {
    let mut tx = shared.store.try_write().await?;
    store::failed_event::insert(&mut tx, id, fact, &why.to_string()).await?;
    if let Event::Ended { reason } = &fact.event {
        let now = clock::now();
        store::conversation::end(&mut tx, id, record::reason(*reason), None, now, now).await?;
    }
    tx.commit().await?;
    tracing::error!(conversation = id, seq = fact.seq, %why, "a fact cannot be taken in and is kept in failed_event");
    Ok(())
}

/// Ends a call that the engine holds for a conversation which is over, or was erased.
fn end_in_engine(shared: &Shared, id: ConversationId) {
    if let Some(host) = shared.host.get().cloned() {
        tokio::spawn(async move { host.send_command(id, Command::End).await });
    }
}
