//! The one task that writes events. While the store rejects writes it retries, and new events wait
//! in the [`Inbox`]. An event is quarantined (stored as text) if the store rejects it alone or its
//! code panics, so that it does not block the others.
//!
//! All events that are not stored yet are in [`Writer`], so the task can be restarted after a panic
//! without loss.
//!
//! ```text
//!           gather           prepare_event             commit
//!   Inbox ----------> batch --------------> prepared -----------> stored, announced
//!                       |                   |  |  ^
//!                       |                   |  +--+ outage: retry after 500 ms
//!           code panics |                   | rejected alone, twice
//!                       +--> quarantined <--+
//! ```

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use conversation::event::{Event, EventEnvelope};
use conversation::id::ConversationId;
use conversation::input::Command;
use models::panic_isolation::catch_panic;
use tokio::sync::watch;

use super::inbox::{Batch, Inbox};
use super::projection::{self, Change, Live, Prepared, Written};
use super::{ending, record};
use crate::state::AppState;
use crate::state::event_queue::Queue;
use crate::state::webhook_queue::News;
use crate::store::crash_points::Moment;
use crate::{clock, store};

/// Failed attempts after which events are written one by one, to find the one that the store
/// rejects.
const TRIES: u32 = 5;

/// State of the task.
pub(crate) struct Writer {
    shared: Arc<AppState>,
    inbox: Inbox,
    /// Conversations that emit events.
    live: HashMap<ConversationId, Live>,
    /// The current batch: taken from the inbox, not prepared yet.
    hand: Batch,
    /// Prepared and not in the store yet.
    prepared: VecDeque<Prepared>,
    /// Conversations that could not be read: their events are quarantined without another wait.
    unreadable: HashSet<ConversationId>,
    /// Whether the task ran before; then this run is a restart.
    begun: bool,
}

impl Writer {
    pub(crate) fn new(shared: Arc<AppState>, queue: Queue, stop: watch::Receiver<bool>) -> Self {
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

    /// Writes events until the server stops, then those that still wait.
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

    /// Continues after a panic. Prepared events are complete. The projections may be half changed,
    /// so they are read again.
    async fn resume(&mut self) {
        self.store().await;
        self.live.clear();
        // Webhooks may be stored that were not announced.
        self.look();
        self.write().await;
    }

    /// Makes the dispatcher read the outbox. The receiver lives as long as this task.
    fn look(&self) {
        let _ = self.shared.outbox.send(News::Look);
    }

    /// Processes the current batch.
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
            // The waiting task may be gone.
            let _ = done.send(());
        }
    }

    /// The record of a call whose code panicked ends as after a crash of the server: with the text
    /// that was heard, and an error.
    async fn end_broken(&mut self, id: ConversationId) {
        self.live.remove(&id);
        let name = id.to_string();
        let mut tries = 0;
        loop {
            let ended = self.inbox.within(ending::recover_one(&self.shared, &name)).await;
            let Err(error) = ended else { return };
            tries += 1;
            if tries == 1 {
                tracing::error!(conversation = %id, %error, "cannot end a failed call; retrying");
            }
            // An end that the store rejects while it accepts other writes is left to the next start
            // of the server.
            let refused = tries >= TRIES && !error.is_outage();
            if refused || !self.inbox.wait().await {
                return;
            }
            // The probe reports the store's health itself.
            let _ = self.inbox.within(self.shared.store.probe()).await;
        }
    }

    /// Applies an event of a loaded conversation. An event whose code panics is quarantined.
    async fn prepare(&mut self, id: ConversationId, fact: EventEnvelope) {
        let Some(live) = self.live.get_mut(&id) else { return };
        let follows = catch_panic(|| {
            Moment::BeforeFact.tell(self.shared.config.watch);
            live.follow(&self.shared, &fact)
        });
        match follows {
            Some(follows) => self.prepared.push_back(live.prepared(fact, follows)),
            None => self.panicked(id, &fact).await,
        }
    }

    /// Quarantines an event whose code panicked. The projection may be half changed and is read
    /// again; the events prepared before are therefore stored first.
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
                tracing::error!(conversation = %id, seq = fact.seq, "event lost at shutdown: its processing panicked");
                break;
            }
        }
        self.inbox.settle(1);
    }

    /// Writes the prepared events with their effects, and retries until they are in the store.
    async fn store(&mut self) {
        // One more attempt after the stop; then the events are lost with the process.
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
                        tracing::error!(%error, events = facts, "cannot write events; retrying");
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
                tracing::error!(events = facts, "events lost at shutdown");
                self.prepared.clear();
                self.inbox.settle(facts);
            }
        }
    }

    /// Loads the conversation of an event. False if that fails: the event is then dropped or
    /// quarantined.
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
                    tracing::debug!(conversation = %id, "event dropped: its conversation does not exist");
                    end_in_engine(&self.shared, id);
                    return false;
                }
                Err(error) => {
                    tries += 1;
                    if tries == 1 {
                        tracing::error!(conversation = %id, %error, "cannot read a conversation; retrying");
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

    /// Writes each event in its own transaction. An event that is rejected twice, although a write
    /// in between succeeds, is quarantined. Events that fail because the store accepts no writes
    /// stay.
    async fn one_by_one(&mut self) {
        while let Some(fact) = self.prepared.front() {
            let one = std::slice::from_ref(fact);
            let mut done = self.inbox.within(write(&self.shared, one)).await;
            let mut takes = done.is_ok();
            if done.as_ref().is_err_and(|error| !error.is_outage()) {
                // If the store failed and works again, the event is not the cause.
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
                    // Only the change of the record is announced, not the event's effects.
                    let written = Written::nothing_of(&fact.conversation);
                    self.inbox.settle(1);
                    self.tell(vec![fact], &written);
                }
            }
        }
    }

    /// Events are in the store: notifies the waiting tasks.
    fn written(&mut self, prepared: Vec<Prepared>, written: &Written) {
        self.inbox.settle(prepared.len());
        for id in written.refused.iter().filter_map(|id| id.parse().ok()) {
            // The conversation was ended while its connection was being established.
            self.live.remove(&id);
            end_in_engine(&self.shared, id);
        }
        self.live.retain(|_, known| !known.ended());
        self.tell(prepared, written);
    }

    /// Announces the results of a write.
    fn tell(&self, prepared: Vec<Prepared>, written: &Written) {
        for fact in prepared.iter().filter(|fact| !matches!(fact.change, Change::None)) {
            if let Ok(id) = fact.conversation.parse() {
                self.shared.pending.forget(id);
            }
        }
        if catch_panic(|| projection::announce(&self.shared, prepared, written)).is_none() {
            self.look();
        }
    }
}

async fn write(shared: &AppState, facts: &[Prepared]) -> store::Result<Written> {
    let mut tx = shared.store.try_write().await?;
    let written = projection::write(&mut tx, &shared.server, facts).await?;
    tx.commit().await?;
    Ok(written)
}

/// Stores as text an event whose conversation cannot be read, or whose code panicked. If it is the
/// end of the conversation, the end takes effect nevertheless; the record is then built from its
/// events.
async fn put_aside(
    shared: &AppState,
    id: &str,
    fact: &EventEnvelope,
    why: &store::Error,
) -> store::Result<()> {
    let mut tx = shared.store.try_write().await?;
    store::failed_event::insert(&mut tx, id, fact, &why.to_string()).await?;
    if let Event::Ended { reason } = &fact.event {
        let now = clock::now();
        store::conversation::end(&mut tx, id, record::reason(*reason), None, now, now).await?;
    }
    tx.commit().await?;
    tracing::error!(conversation = id, seq = fact.seq, reason = %why, "cannot process an event; its text is stored in failed_event");
    Ok(())
}

/// Ends a call in the engine whose conversation is over or was erased.
fn end_in_engine(shared: &AppState, id: ConversationId) {
    if let Some(host) = shared.host.get().cloned() {
        tokio::spawn(async move { host.send_command(id, Command::End).await });
    }
}
