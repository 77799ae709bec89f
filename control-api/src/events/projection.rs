//! From an event to what is written with it: the webhook that must be sent, the conversation's
//! status, its record.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use conversation::event::{Event, EventEnvelope};
use conversation::id::ConversationId;
use conversation::view::{ConversationView, speech_id};
use serde_json::json;

use super::record::{self, StoredRecord};
use crate::clock::{self, Micros};
use crate::state::event_storage::EventStorage;
use crate::state::guardrail_callback::{GuardrailCallback, PendingCallback};
use crate::state::webhook_queue::OutboxMessage;
use crate::store::agent::Agent;
use crate::store::conversation::{ENDED, Row};
use crate::store::event::{InsertOutcome, NewEvent};
use crate::store::ownership::{self, Holder};
use crate::store::recording::{self, CAPTURED};
use crate::store::{self, Store, Transaction, json_record};
use crate::webhooks::signing;

/// State of a conversation in the writer while its events arrive.
pub(super) struct Projection {
    row: Row,
    /// Events that the agent's receiver subscribed to; empty without a receiver.
    subscribed_events: Vec<String>,
    callback_url: String,
    /// Delay before the first attempt of a webhook.
    first_attempt_delay: Duration,
    /// Wall clock time of the conversation's start.
    pub(super) started_at: Micros,
    /// Sequence number of the last webhook.
    last_sequence: i64,
    view: ConversationView,
    /// Guardrails that were triggered and whose answer is not audible yet.
    pending_callbacks: Vec<PendingCallback>,
}

impl Projection {
    /// Loads a conversation from the store. `None` if it does not exist, or ended before it
    /// started.
    pub(super) async fn load(storage: &EventStorage, id: &str) -> store::Result<Option<Self>> {
        let row = storage.store.conversation_in_any_workspace(id).await?;
        let Some(row) = row.filter(|row| row.status != ENDED || row.joined_at.is_some()) else {
            return Ok(None);
        };
        let Agent { settings, .. } = json_record::parse_document(&row.agent_document)?;
        let callback_url = settings.callback_url;
        let subscribed_events = if callback_url.is_empty() {
            Vec::new()
        } else {
            settings.callback_events.into_iter().map(|event| event.0).collect()
        };
        let mut view = ConversationView::default();
        for envelope in storage.store.events(id, 0).await? {
            view.apply(&envelope);
        }
        let last_sequence = storage.store.last_delivery_sequence(id).await?;
        let started_at = row.joined_at.unwrap_or(row.created_at);
        Ok(Some(Self {
            row,
            subscribed_events,
            callback_url,
            first_attempt_delay: storage.first_attempt_delay,
            started_at,
            last_sequence,
            view,
            pending_callbacks: Vec::new(),
        }))
    }

    /// Whether the conversation is over.
    pub(super) fn is_ended(&self) -> bool {
        self.view.end_reason.is_some()
    }

    /// Applies the next event and returns its effects.
    pub(super) fn apply(&mut self, envelope: &EventEnvelope) -> EventEffects {
        if let Event::Joined { unix_micros } = &envelope.event {
            self.started_at = Micros::try_from(*unix_micros).unwrap_or_else(|_| clock::now());
        }
        self.view.apply(envelope);
        let at = self
            .started_at
            .saturating_add(Micros::try_from(envelope.at.as_micros()).unwrap_or(Micros::MAX));
        let change = match (&envelope.event, self.view.end_reason) {
            // Events after the end (a tool's result) belong to the record too.
            (_, Some(reason)) => StatusChange::Ended {
                reason: record::end_reason_name(reason),
                record: json!(StoredRecord::new(&self.view, &self.row.id, self.started_at))
                    .to_string(),
                at,
            },
            (Event::Joined { .. }, None) => StatusChange::Joined(at),
            _ => StatusChange::None,
        };
        let delivery = self.create_delivery(envelope);
        let callbacks = self.due_callbacks(envelope, at);
        EventEffects { delivery, callbacks, change }
    }

    /// An event with everything that is written with it.
    pub(super) fn prepare_write(
        &self,
        envelope: EventEnvelope,
        follows: EventEffects,
    ) -> PreparedEvent {
        let EventEffects { delivery, callbacks, change } = follows;
        PreparedEvent {
            conversation: self.row.id.clone(),
            workspace: self.row.workspace.clone(),
            envelope,
            delivery,
            callbacks,
            change,
        }
    }

    /// The callbacks that are due now: a triggered guardrail is reported with the utterance that
    /// answers it.
    fn due_callbacks(&mut self, envelope: &EventEnvelope, at: Micros) -> Vec<GuardrailCallback> {
        let speech = match &envelope.event {
            Event::GuardrailTriggered(fired) => {
                if let Some(url) = fired.callback_url.clone().filter(|url| !url.is_empty()) {
                    self.pending_callbacks.push(PendingCallback {
                        event: (**fired).clone(),
                        url,
                        at,
                    });
                }
                return Vec::new();
            }
            Event::AgentStartedSpeaking { utterance, .. } => Some(speech_id(*utterance)),
            Event::Ended { .. } => None,
            _ => return Vec::new(),
        };
        let row = &self.row;
        let callbacks = self.pending_callbacks.drain(..);
        callbacks.map(|fired| fired.into_callback(row, speech.clone())).collect()
    }

    /// The webhook of an event, if the agent's receiver subscribed to it.
    fn create_delivery(&mut self, envelope: &EventEnvelope) -> Option<store::delivery::Row> {
        let event = envelope.event.webhook_name()?;
        if !self.subscribed_events.iter().any(|wanted| wanted == event) {
            return None;
        }
        let id: ConversationId = self.row.id.parse().ok()?;
        let body = envelope.webhook_body(id, u64::try_from(self.started_at).unwrap_or(0))?;
        self.last_sequence += 1;
        Some(store::delivery::Row {
            id: signing::new_message_id(),
            workspace: self.row.workspace.clone(),
            conversation: self.row.id.clone(),
            agent: self.row.agent.clone(),
            sequence: self.last_sequence,
            event: event.to_owned(),
            url: self.callback_url.clone(),
            body,
            attempts: 0,
            attempts_before_redelivery: 0,
            first_attempt_at: None,
            next_attempt_at: clock::now()
                .saturating_add(clock::to_micros(self.first_attempt_delay)),
        })
    }
}

/// Change of the conversation's row by an event.
pub(super) enum StatusChange {
    None,
    Joined(Micros),
    Ended { reason: &'static str, record: String, at: Micros },
}

/// The effects of an event.
pub(super) struct EventEffects {
    delivery: Option<store::delivery::Row>,
    callbacks: Vec<GuardrailCallback>,
    change: StatusChange,
}

/// An event with everything that is written with it.
pub(super) struct PreparedEvent {
    pub(super) conversation: String,
    workspace: String,
    pub(super) envelope: EventEnvelope,
    delivery: Option<store::delivery::Row>,
    callbacks: Vec<GuardrailCallback>,
    pub(super) change: StatusChange,
}

impl PreparedEvent {
    /// Stores as text an event that the store rejects. If it is the end of the conversation, the
    /// conversation ends nevertheless; its record is then built from its events.
    pub(super) async fn quarantine(
        &self,
        store: &Store,
        error: &store::Error,
    ) -> store::Result<()> {
        let mut tx = store.begin_event_write().await?;
        store::failed_event::insert(
            &mut tx,
            &self.conversation,
            &self.envelope,
            &error.to_string(),
        )
        .await?;
        if let StatusChange::Ended { reason, at, .. } = &self.change {
            store::conversation::mark_ended(
                &mut tx,
                &self.conversation,
                reason,
                None,
                *at,
                clock::now(),
            )
            .await?;
        }
        tx.commit().await?;
        tracing::error!(
            conversation = %self.conversation,
            seq = self.envelope.seq,
            %error,
            "the store rejected an event; its text is stored in failed_event"
        );
        Ok(())
    }

    /// Logs the start and the end of a conversation.
    fn log_status_change(&self) {
        match (&self.change, &self.envelope.event) {
            (StatusChange::Joined(_), _) => {
                tracing::info!(conversation = %self.conversation, "conversation started");
            }
            (StatusChange::Ended { reason, .. }, Event::Ended { .. }) => {
                let seconds = self.envelope.at.as_seconds();
                tracing::info!(
                    conversation = %self.conversation,
                    reason,
                    seconds,
                    "conversation ended"
                );
            }
            _ => {}
        }
    }
}

/// Result of [`write_events`].
#[derive(Default)]
pub(super) struct WriteResult {
    /// Indexes of the events whose webhook is in the outbox.
    deliveries: BTreeSet<usize>,
    /// Conversations whose events were rejected, because this plane had ended them.
    pub(super) rejected: BTreeSet<String>,
    /// Number of events that were rejected because another process or none holds the call.
    pub(super) fenced: u64,
}

/// Who adds events to a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    /// The call, on the server that holds it.
    Call,
    /// The control plane of any server. It has locked the conversation and checked its status.
    ControlPlane,
}

impl WriteResult {
    /// The event of this conversation was rejected.
    pub(super) fn rejected_conversation(conversation: &str) -> Self {
        Self { rejected: [conversation.to_owned()].into(), ..Self::default() }
    }
}

/// Writes events with their effects. Events that an earlier COMMIT stored although its answer was
/// lost count as written.
/// `author` says which process may add them.
pub(super) async fn write_events(
    tx: &mut Transaction,
    holder: &Holder,
    author: Author,
    prepared_events: &[PreparedEvent],
) -> store::Result<WriteResult> {
    let now = clock::now();
    let server = &*holder.server;
    let mut written = WriteResult::default();
    if author == Author::Call {
        let ids: Vec<&str> = prepared_events.iter().map(|one| one.conversation.as_str()).collect();
        let locked = ownership::lock(tx, &ids).await?;
        for PreparedEvent { conversation, .. } in prepared_events {
            if !locked.get(conversation).is_some_and(|locked| locked.admits(holder)) {
                written.fenced += 1;
                written.rejected.insert(conversation.clone());
            }
        }
    }
    let mut stopped_by_agent: HashMap<&str, bool> = HashMap::new();
    let admitted: Vec<(usize, &PreparedEvent)> = prepared_events
        .iter()
        .enumerate()
        .filter(|(_, prepared)| !written.rejected.contains(&prepared.conversation))
        .collect();
    let events: Vec<NewEvent<'_>> = admitted
        .iter()
        .map(|(_, PreparedEvent { conversation, workspace, envelope, .. })| NewEvent {
            conversation,
            workspace,
            envelope,
        })
        .collect();
    let outcomes = store::event::insert_all(tx, &events).await?;
    for ((i, prepared), outcome) in admitted.into_iter().zip(outcomes) {
        if written.rejected.contains(&prepared.conversation) {
            if outcome == InsertOutcome::Inserted {
                store::event::take_back(tx, &prepared.conversation, prepared.envelope.seq).await?;
            }
            continue;
        }
        match outcome {
            InsertOutcome::Inserted => {}
            // Its effects are stored too, and only have to be announced.
            InsertOutcome::AlreadyStored => {
                if let Some(delivery) = &prepared.delivery
                    && store::delivery::is_untried(tx, &delivery.id, server).await?
                {
                    written.deliveries.insert(i);
                }
                continue;
            }
            InsertOutcome::Conflict => {
                written.rejected.insert(prepared.conversation.clone());
                continue;
            }
        }
        match &prepared.change {
            StatusChange::None => {}
            StatusChange::Joined(at) => {
                store::conversation::mark_joined(tx, &prepared.conversation, holder, *at, now)
                    .await?;
            }
            StatusChange::Ended { reason, record, at } => {
                store::conversation::mark_ended(
                    tx,
                    &prepared.conversation,
                    reason,
                    Some(record),
                    *at,
                    now,
                )
                .await?;
            }
        }
        follow_recording(tx, server, prepared, now).await?;
        if let Some(delivery) = &prepared.delivery {
            // Read for each batch and not cached: another server may have received a 410 a moment
            // ago, or an update of the agent.
            let stopped = match stopped_by_agent.get(delivery.agent.as_str()) {
                Some(stopped) => *stopped,
                None => {
                    let stopped =
                        store::json_record::are_webhooks_stopped(tx, &delivery.agent).await?;
                    stopped_by_agent.insert(&delivery.agent, stopped);
                    stopped
                }
            };
            if !stopped {
                store::delivery::insert(tx, delivery, server).await?;
                written.deliveries.insert(i);
            }
        }
    }
    Ok(written)
}

/// Keeps the table of recordings in step with the events of a call on this server: what an event
/// says outlives a crash, whatever the files are.
async fn follow_recording(
    tx: &mut Transaction,
    server: &str,
    prepared: &PreparedEvent,
    now: Micros,
) -> store::Result<()> {
    let id = &prepared.conversation;
    match prepared.envelope.event {
        Event::RecordingStarted => {
            recording::insert(tx, id, server, CAPTURED, now).await?;
        }
        Event::RecordingEnded { is_discarded: true } => {
            recording::refuse(tx, id, server, now).await?;
        }
        _ => {}
    }
    Ok(())
}

/// Announces the stored events to the webhook dispatcher and to the readers of event streams.
pub(super) fn publish(
    storage: &EventStorage,
    prepared_events: Vec<PreparedEvent>,
    written: &WriteResult,
) {
    let mut conversations: Vec<ConversationId> =
        prepared_events.iter().filter_map(|p| p.conversation.parse().ok()).collect();
    conversations.sort_unstable();
    conversations.dedup();
    for (i, prepared) in prepared_events.into_iter().enumerate() {
        if let (StatusChange::Ended { .. }, Ok(id)) =
            (&prepared.change, prepared.conversation.parse())
        {
            storage.connections.remove(id);
        }
        if !written.rejected.contains(&prepared.conversation) {
            prepared.log_status_change();
            for callback in prepared.callbacks {
                // As for the outbox, but callbacks are not stored.
                let _ = storage.guardrail_callbacks.send(callback);
            }
        }
        if let (Some(delivery), true) = (prepared.delivery, written.deliveries.contains(&i)) {
            // The receiver lives as long as the background tasks; after that the delivery is in the
            // store.
            let _ = storage.outbox.send(OutboxMessage::Written(delivery));
        }
    }
    for id in conversations {
        // Without an open stream there is no receiver.
        let _ = storage.commits.send(id);
    }
}

/// An event without effects.
#[cfg(test)]
pub(super) fn test_event(conversation: &str, envelope: EventEnvelope) -> PreparedEvent {
    PreparedEvent {
        conversation: conversation.to_owned(),
        workspace: "w".into(),
        envelope,
        delivery: None,
        callbacks: Vec::new(),
        change: StatusChange::None,
    }
}

#[cfg(test)]
mod tests {
    use conversation::time::Time;

    use super::*;
    use crate::store::{DatabaseLocation, Lock};

    const CALL: &str = "0193a5b0-0000-7000-8000-000000000001";

    fn prepared_event(seq: u64, event: Event) -> PreparedEvent {
        let change = match &event {
            Event::Ended { .. } => {
                StatusChange::Ended { reason: "user_left", record: "{}".into(), at: 9 }
            }
            _ => StatusChange::None,
        };
        let delivery = store::delivery::Row {
            id: format!("msg_{seq}"),
            workspace: "w".into(),
            conversation: CALL.into(),
            agent: "a".into(),
            sequence: seq as i64 + 1,
            event: "utterance_committed".into(),
            url: "http://127.0.0.1:1/".into(),
            body: "{}".into(),
            attempts: 0,
            attempts_before_redelivery: 0,
            first_attempt_at: None,
            next_attempt_at: 5,
        };
        PreparedEvent {
            conversation: CALL.into(),
            workspace: "w".into(),
            envelope: EventEnvelope { seq, at: Time::from_seconds(seq as f64), event },
            delivery: Some(delivery),
            callbacks: Vec::new(),
            change,
        }
    }

    fn test_batch() -> Vec<PreparedEvent> {
        let said = |text: &str| Event::UtteranceCommitted { text: text.into(), speaker: None };
        let reason = conversation::event::EndReason::UserLeft;
        vec![
            prepared_event(0, said("one")),
            prepared_event(1, said("two")),
            prepared_event(2, Event::Ended { reason }),
        ]
    }

    /// Writes and commits, as if the answer of the COMMIT arrived.
    async fn write_and_commit(store: &Store, prepared_events: &[PreparedEvent]) -> WriteResult {
        let mut tx = store.begin_write(Lock::Rows).await.unwrap();
        let author = Author::ControlPlane;
        let written =
            write_events(&mut tx, &holder("here", 1), author, prepared_events).await.unwrap();
        tx.commit().await.unwrap();
        written
    }

    fn holder(server: &str, epoch: i64) -> Holder {
        Holder { server: server.into(), epoch }
    }

    async fn count_rows(store: &Store, table: &'static str) -> i64 {
        sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}")))
            .fetch_one(store.reader_pool())
            .await
            .unwrap()
    }

    async fn a_batch_is_stored_once(store: &Store) {
        for _ in 0..2 {
            let written = write_and_commit(store, &test_batch()).await;
            assert_eq!((written.rejected.len(), written.deliveries.len()), (0, 3));
            assert_eq!(
                (count_rows(store, "event").await, count_rows(store, "delivery").await),
                (3, 3)
            );
        }
        // Deliveries that no longer wait are not sent again: another server took them over, or they
        // were delivered.
        let mut tx = store.begin_write(Lock::Rows).await.unwrap();
        for sql in [
            "UPDATE delivery SET server = 'there' WHERE id = 'msg_0'",
            "UPDATE delivery SET state = 'done', first_try = 1 WHERE id = 'msg_1'",
            "DELETE FROM delivery WHERE id = 'msg_2'",
        ] {
            sqlx::query(sql).execute(&mut *tx).await.unwrap();
        }
        tx.commit().await.unwrap();
        let written = write_and_commit(store, &test_batch()).await;
        assert_eq!((written.rejected.len(), written.deliveries.len()), (0, 0));
        assert_eq!((count_rows(store, "event").await, count_rows(store, "delivery").await), (3, 2));
        // A different event with a sequence number in use is rejected, and so are the events after
        // it.
        let mut other = test_batch();
        other[1].envelope.event =
            Event::UtteranceCommitted { text: "another".into(), speaker: None };
        other.push(prepared_event(3, Event::CallEnded));
        let written = write_and_commit(store, &other).await;
        assert_eq!(written.rejected.iter().collect::<Vec<_>>(), [CALL]);
        assert_eq!(count_rows(store, "event").await, 3);
    }

    #[tokio::test]
    async fn only_the_process_that_holds_a_call_adds_events() {
        let file = std::env::temp_dir().join(format!("visavis-fence-{}.db", std::process::id()));
        let store = Store::open(DatabaseLocation::File(&file)).await.unwrap();
        let add = async |seq: u64, event: Event, by: &Holder| {
            let mut tx = store.begin_event_write().await.unwrap();
            let batch = [prepared_event(seq, event)];
            let written = write_events(&mut tx, by, Author::Call, &batch).await.unwrap();
            tx.commit().await.unwrap();
            assert_eq!(written.rejected.len() as u64, written.fenced);
            written.fenced == 0
        };
        let said = || Event::UtteranceCommitted { text: "words".into(), speaker: None };
        let ended = || Event::Ended { reason: conversation::event::EndReason::UserLeft };
        let (own, other) = (holder("here", 2), holder("there", 2));
        assert!(!add(0, said(), &own).await, "there is no such conversation");
        let mut tx = store.begin_write(Lock::Rows).await.unwrap();
        let draft = store::conversation::Draft::of_test(CALL, "here");
        store::conversation::insert(&mut tx, &draft).await.unwrap();
        tx.commit().await.unwrap();
        assert!(!add(0, said(), &other).await, "another server created it, or has claimed it");
        let mut tx = store.begin_write(Lock::Rows).await.unwrap();
        store::conversation::mark_joined(&mut tx, CALL, &own, 2, 2).await.unwrap();
        tx.commit().await.unwrap();
        assert!(add(0, said(), &own).await);
        assert!(!add(1, said(), &other).await);
        assert!(!add(1, said(), &holder("here", 1)).await, "a process before this one");
        assert!(!add(1, said(), &holder("here", 3)).await, "a process after this one");
        assert!(add(1, ended(), &own).await);
        assert!(add(2, said(), &own).await, "the late result of a tool");
        let mut tx = store.begin_write(Lock::Rows).await.unwrap();
        ownership::fence(&mut tx, CALL).await.unwrap();
        tx.commit().await.unwrap();
        assert!(!add(3, ended(), &own).await, "its server seemed lost");
        assert_eq!(count_rows(&store, "event").await, 3);
        store.close().await;
        std::fs::remove_file(file).unwrap();
    }

    #[tokio::test]
    async fn storing_a_batch_twice_changes_nothing() {
        let file =
            std::env::temp_dir().join(format!("visavis-fold-twice-{}.db", std::process::id()));
        let store = Store::open(DatabaseLocation::File(&file)).await.unwrap();
        a_batch_is_stored_once(&store).await;
        store.close().await;
        std::fs::remove_file(file).unwrap();
    }
}
