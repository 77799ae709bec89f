//! The one task that writes events. While the store rejects writes it retries, and new events wait
//! in the [`EventSource`]. An event is quarantined (stored as text) if the store rejects it alone
//! or its code panics, so that it does not block the others.
//!
//! All events that are not stored yet are in [`Writer`], so the task can be restarted after a panic
//! without loss.
//!
//! ```text
//!                 gather           prepare_event             commit
//!   EventSource ----------> batch --------------> prepared -----------> stored, announced
//!                             |                   |  |  ^
//!                             |                   |  +--+ outage: retry after 500 ms
//!                 code panics |                   | rejected alone, twice
//!                             +--> quarantined <--+
//!                                       | its text is rejected too, twice
//!                                       +--> dropped
//! ```

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use conversation::event::{Event, EventEnvelope};
use conversation::id::ConversationId;
use conversation::input::Command;
use models::panic_isolation::catch_panic;
use tokio::sync::watch;

use super::event_source::{Batch, EventSource};
use super::projection::{self, Author, PreparedEvent, Projection, StatusChange, WriteResult};
use super::{ending, record};
use crate::clock;
use crate::state::EngineCell;
use crate::state::event_queue::EventReceiver;
use crate::state::event_storage::EventStorage;
use crate::state::live_calls::PendingOffers;
use crate::state::supervise::BackgroundTask;
use crate::state::webhook_queue::OutboxMessage;
use crate::store::crash_points::{CrashHook, CrashPoint};
use crate::store::{self, Store};

/// Failed attempts after which events are written one by one, to find the one that the store
/// rejects.
const ATTEMPTS_BEFORE_SPLIT: u32 = 5;

/// The task that writes events.
pub(crate) struct Writer {
    storage: EventStorage,
    /// Offers that are connected, or whose conversation is over, are removed.
    pending_offers: Arc<PendingOffers>,
    /// Ends the calls of conversations that are over or were erased.
    engine: Arc<EngineCell>,
    crash_hook: Option<CrashHook>,
    source: EventSource,
    /// Conversations that emit events.
    projections: HashMap<ConversationId, Projection>,
    /// The current batch: taken from the source, not prepared yet.
    batch: Batch,
    /// Prepared and not in the store yet.
    prepared: VecDeque<PreparedEvent>,
    /// Conversations that could not be read: their events are quarantined without another wait.
    unreadable: HashSet<ConversationId>,
    /// Whether the task ran before; then this run is a restart.
    has_run: bool,
}

impl BackgroundTask for Writer {
    /// Writes events until the server stops, then those that still wait. The source waits for the
    /// stop.
    async fn run(&mut self, _: watch::Receiver<bool>) {
        if std::mem::replace(&mut self.has_run, true) {
            self.resume_after_panic().await;
        }
        while self.source.gather(&mut self.batch).await {
            self.process_batch().await;
        }
        loop {
            self.source.drain_remaining(&mut self.batch);
            if self.batch.is_empty() {
                return;
            }
            self.process_batch().await;
        }
    }
}

impl Writer {
    pub(crate) fn new(
        storage: EventStorage,
        pending_offers: Arc<PendingOffers>,
        engine: Arc<EngineCell>,
        crash_hook: Option<CrashHook>,
        queue: EventReceiver,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let source = EventSource::new(storage.store.clone(), queue, stop);
        Self {
            storage,
            pending_offers,
            engine,
            crash_hook,
            source,
            projections: HashMap::new(),
            batch: Batch::default(),
            prepared: VecDeque::new(),
            unreadable: HashSet::new(),
            has_run: false,
        }
    }

    /// Continues after a panic. Prepared events are complete. The projections may be half changed,
    /// so they are read again.
    async fn resume_after_panic(&mut self) {
        self.store_prepared().await;
        self.projections.clear();
        // Webhooks may be stored that were not announced.
        self.request_rescan();
        self.process_batch().await;
    }

    /// Makes the dispatcher read the outbox. The receiver lives as long as this task.
    fn request_rescan(&self) {
        let _ = self.storage.outbox.send(OutboxMessage::Rescan);
    }

    /// Processes the current batch.
    async fn process_batch(&mut self) {
        while let Some((id, envelope)) = self.batch.events.pop_front() {
            if self.projections.contains_key(&id) || self.load_projection(id, &envelope).await {
                self.prepare_event(id, envelope).await;
            } else {
                self.source.mark_settled(1);
            }
        }
        self.store_prepared().await;
        while let Some(id) = self.batch.panicked.front().copied() {
            self.end_panicked_call(id).await;
            self.source.clear_panicked(id);
            self.batch.panicked.pop_front();
        }
        for done in self.batch.flushes.drain(..) {
            // The waiting task may be gone.
            let _ = done.send(());
        }
    }

    /// The record of a call whose code panicked ends as after a crash of the server: with the text
    /// that was heard, and an error.
    async fn end_panicked_call(&mut self, id: ConversationId) {
        self.projections.remove(&id);
        let name = id.to_string();
        let mut tries = 0;
        loop {
            let ended =
                self.source.run_bounded(ending::recover_conversation(&self.storage, &name)).await;
            let Err(error) = ended else { return };
            tries += 1;
            if tries == 1 {
                tracing::error!(conversation = %id, %error, "cannot end a failed call; retrying");
            }
            // An end that the store rejects while it accepts other writes is left to the next start
            // of the server.
            let gives_up = tries >= ATTEMPTS_BEFORE_SPLIT && !error.is_temporary();
            if gives_up || !self.source.wait_before_retry().await {
                return;
            }
            // The probe reports the store's health itself.
            let _ = self.source.run_bounded(self.storage.store.probe()).await;
        }
    }

    /// Applies an event of a loaded conversation. An event whose code panics is quarantined.
    async fn prepare_event(&mut self, id: ConversationId, envelope: EventEnvelope) {
        let Some(projection) = self.projections.get_mut(&id) else { return };
        let effects = catch_panic(|| {
            CrashPoint::BeforeEvent.notify(self.crash_hook);
            projection.apply(&envelope)
        });
        match effects {
            Some(effects) => self.prepared.push_back(projection.prepare_write(envelope, effects)),
            None => self.on_event_panic(id, &envelope).await,
        }
    }

    /// Quarantines an event whose code panicked. The projection may be half changed and is read
    /// again; the events prepared before are therefore stored first.
    async fn on_event_panic(&mut self, id: ConversationId, envelope: &EventEnvelope) {
        self.store_prepared().await;
        self.projections.remove(&id);
        let (name, panic_error) = (id.to_string(), store::Error::Panicked);
        let mut last = false;
        loop {
            let store = &self.storage.store;
            let quarantine = || quarantine_event(store, &name, envelope, &panic_error);
            let quarantined =
                quarantine_or_drop(&mut self.source, store, (&name, envelope.seq), quarantine)
                    .await;
            let Err(error) = quarantined else { break };
            self.storage.store.health.report_failure(&error.to_string());
            if !self.source.wait_before_retry().await && std::mem::replace(&mut last, true) {
                tracing::error!(
                    conversation = %id,
                    seq = envelope.seq,
                    "event lost at shutdown: its processing panicked"
                );
                break;
            }
        }
        self.source.mark_settled(1);
    }

    /// Writes the prepared events with their effects, and retries until they are in the store.
    async fn store_prepared(&mut self) {
        // One more attempt when the time after the stop is over; then the events are lost with the
        // process.
        let (mut tries, mut last) = (0_u32, false);
        while !self.prepared.is_empty() {
            let is_contended;
            let prepared_events = &*self.prepared.make_contiguous();
            match self.source.run_bounded(commit_events(&self.storage, prepared_events)).await {
                Ok(written) => {
                    let prepared = std::mem::take(&mut self.prepared).into();
                    return self.on_written(prepared, &written);
                }
                Err(error) => {
                    tries += 1;
                    is_contended = error.is_contention();
                    if tries == 1 {
                        let prepared_events = self.prepared.len();
                        tracing::error!(
                            %error,
                            events = prepared_events,
                            "cannot write events; retrying"
                        );
                    }
                    if error.is_outage() {
                        self.storage.store.health.report_failure(&error.to_string());
                    }
                }
            }
            if is_contended || tries.is_multiple_of(ATTEMPTS_BEFORE_SPLIT) {
                self.store_one_by_one().await;
            }
            if !self.prepared.is_empty()
                && !self.source.wait_before_retry().await
                && std::mem::replace(&mut last, true)
            {
                let prepared_events = self.prepared.len();
                let conversations: HashSet<&str> =
                    self.prepared.iter().map(|event| event.conversation.as_str()).collect();
                tracing::error!(
                    events = prepared_events,
                    ?conversations,
                    "events lost at shutdown"
                );
                self.prepared.clear();
                self.source.mark_settled(prepared_events);
            }
        }
    }

    /// Loads the conversation of an event. False if that fails: the event is then dropped or
    /// quarantined.
    async fn load_projection(&mut self, id: ConversationId, envelope: &EventEnvelope) -> bool {
        let name = id.to_string();
        let (mut tries, mut last) = (0, false);
        loop {
            match self.source.run_bounded(Projection::load(&self.storage, &name)).await {
                Ok(Some(known)) => {
                    self.projections.insert(id, known);
                    return true;
                }
                Ok(None) => {
                    tracing::debug!(
                        conversation = %id,
                        "event dropped: its conversation does not exist"
                    );
                    end_engine_call(&self.engine, id);
                    return false;
                }
                Err(error) => {
                    tries += 1;
                    if tries == 1 {
                        tracing::error!(
                            conversation = %id,
                            %error,
                            "cannot read a conversation; retrying"
                        );
                    }
                    let corrupt = !error.is_temporary();
                    let known = tries >= ATTEMPTS_BEFORE_SPLIT || self.unreadable.contains(&id);
                    let store = &self.storage.store;
                    let quarantine = || quarantine_event(store, &name, envelope, &error);
                    if corrupt
                        && known
                        && quarantine_or_drop(
                            &mut self.source,
                            store,
                            (&name, envelope.seq),
                            quarantine,
                        )
                        .await
                        .is_ok()
                    {
                        self.unreadable.insert(id);
                        return false;
                    }
                }
            }
            if !self.source.wait_before_retry().await && std::mem::replace(&mut last, true) {
                return false;
            }
        }
    }

    /// Writes each event in its own transaction. An event that is rejected twice, although a write
    /// in between succeeds, is quarantined. Events that fail because the store accepts no writes
    /// stay, and so do those of a conversation that another transaction has locked.
    async fn store_one_by_one(&mut self) {
        let (mut at, mut locked) = (0, HashSet::new());
        while let Some(prepared) = self.prepared.get(at) {
            if locked.contains(&prepared.conversation) {
                at += 1;
                continue;
            }
            let one = std::slice::from_ref(prepared);
            let mut done = self.source.run_bounded(commit_events(&self.storage, one)).await;
            let mut accepts_writes = done.is_ok();
            if done.as_ref().is_err_and(|error| !error.is_temporary()) {
                // If the store failed and works again, the event is not the cause.
                accepts_writes = self.source.run_bounded(self.storage.store.probe()).await.is_ok();
                if accepts_writes {
                    done = self.source.run_bounded(commit_events(&self.storage, one)).await;
                }
            }
            let written = match done {
                Ok(written) => Some(written),
                // Another transaction has locked the conversation. Its events keep their order.
                Err(error) if error.is_contention() => {
                    locked.insert(prepared.conversation.clone());
                    continue;
                }
                Err(error) => {
                    let store = &self.storage.store;
                    let event = (prepared.conversation.as_str(), prepared.envelope.seq);
                    let quarantine = || prepared.quarantine(store, &error);
                    if !accepts_writes
                        || error.is_outage()
                        || quarantine_or_drop(&mut self.source, store, event, quarantine)
                            .await
                            .is_err()
                    {
                        return store.health.report_failure(&error.to_string());
                    }
                    None
                }
            };
            let Some(prepared) = self.prepared.remove(at) else { return };
            match written {
                Some(written) => self.on_written(vec![prepared], &written),
                None => {
                    // Only the change of the record is announced, not the event's effects.
                    let written = WriteResult::rejected_conversation(&prepared.conversation);
                    self.source.mark_settled(1);
                    self.notify_readers(vec![prepared], &written);
                }
            }
        }
    }

    /// Events are in the store: notifies the waiting tasks.
    fn on_written(&mut self, prepared: Vec<PreparedEvent>, written: &WriteResult) {
        self.source.mark_settled(prepared.len());
        self.source.count_fenced(written.fenced);
        for id in written.rejected.iter().filter_map(|id| id.parse().ok()) {
            // The conversation was ended while its connection was being established.
            self.projections.remove(&id);
            end_engine_call(&self.engine, id);
        }
        self.projections.retain(|_, projection| !projection.is_ended());
        self.notify_readers(prepared, written);
    }

    /// Announces the results of a write.
    fn notify_readers(&self, prepared: Vec<PreparedEvent>, written: &WriteResult) {
        for event in prepared.iter().filter(|event| !matches!(event.change, StatusChange::None)) {
            if let Ok(id) = event.conversation.parse() {
                self.pending_offers.remove(id);
            }
        }
        if catch_panic(|| projection::publish(&self.storage, prepared, written)).is_none() {
            self.request_rescan();
        }
    }
}

async fn commit_events(
    storage: &EventStorage,
    prepared_events: &[PreparedEvent],
) -> store::Result<WriteResult> {
    let mut tx = storage.store.begin_event_write().await?;
    let written =
        projection::write_events(&mut tx, &storage.holder, Author::Call, prepared_events).await?;
    tx.commit().await?;
    Ok(written)
}

/// Quarantines an event, which its conversation and number name in the log. If the store rejects
/// its text twice, although another write succeeds, the event is dropped: it would hold up all
/// others.
///
/// # Errors
/// The store accepts no writes.
async fn quarantine_or_drop<F>(
    source: &mut EventSource,
    store: &Store,
    (conversation, seq): (&str, u64),
    quarantine: impl Fn() -> F,
) -> store::Result<()>
where
    F: Future<Output = store::Result<()>>,
{
    let mut rejections = 0;
    loop {
        let Err(error) = source.run_bounded(quarantine()).await else { return Ok(()) };
        if error.is_temporary() {
            return Err(error);
        }
        // If the store failed and works again, the text is not the cause.
        source.run_bounded(store.probe()).await?;
        rejections += 1;
        if rejections == 2 {
            tracing::error!(
                conversation,
                seq,
                %error,
                "event dropped: the store rejects its text too"
            );
            source.count_dropped();
            return Ok(());
        }
    }
}

/// Stores as text an event whose conversation cannot be read, or whose code panicked. If it is the
/// end of the conversation, the end takes effect nevertheless; the record is then built from its
/// events.
async fn quarantine_event(
    store: &Store,
    id: &str,
    envelope: &EventEnvelope,
    error: &store::Error,
) -> store::Result<()> {
    let mut tx = store.begin_event_write().await?;
    store::failed_event::insert(&mut tx, id, envelope, &error.to_string()).await?;
    if let Event::Ended { reason } = &envelope.event {
        let now = clock::now();
        store::conversation::mark_ended(
            &mut tx,
            id,
            record::end_reason_name(*reason),
            None,
            now,
            now,
        )
        .await?;
    }
    tx.commit().await?;
    tracing::error!(
        conversation = id,
        seq = envelope.seq,
        %error,
        "cannot process an event; its text is stored in failed_event"
    );
    Ok(())
}

/// Ends a call in the engine whose conversation is over or was erased.
fn end_engine_call(engine: &EngineCell, id: ConversationId) {
    if let Some(engine) = engine.get().cloned() {
        tokio::spawn(async move { engine.send_command(id, Command::End).await });
    }
}
