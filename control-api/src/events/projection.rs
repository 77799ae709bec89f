//! From an event to what is written with it: the webhook that must be sent, the conversation's
//! status, its record.

use std::collections::{BTreeSet, HashMap};

use conversation::event::{Event, EventEnvelope};
use conversation::id::ConversationId;
use conversation::time::Time;
use conversation::view::{ConversationView, speech_id};

use super::record;
use crate::clock::{self, Micros};
use crate::state::AppState;
use crate::state::webhook_queue::{Fired, News, Notice};
use crate::store::conversation::{ENDED, Row};
use crate::store::event::Added;
use crate::store::{self, Transaction, document};
use crate::webhooks::signing;

/// State of a conversation in the writer while its events arrive.
pub(super) struct Live {
    row: Row,
    /// Events that the agent's receiver subscribed to; empty without a receiver.
    wanted: Vec<String>,
    url: String,
    /// Wall clock time of the conversation's start.
    base: Micros,
    /// Sequence number of the last webhook.
    sequence: i64,
    view: ConversationView,
    /// Guardrails that were triggered and whose answer is not audible yet.
    fired: Vec<Fired>,
}

impl Live {
    /// Loads a conversation from the store. `None` if it does not exist, or ended before it
    /// started.
    pub(super) async fn load(shared: &AppState, id: &str) -> store::Result<Option<Self>> {
        let row = shared.store.conversation_anywhere(id).await?;
        let Some(row) = row.filter(|row| row.status != ENDED || row.joined_at.is_some()) else {
            return Ok(None);
        };
        let agent = document::parsed(&row.agent_document)?;
        let url = agent["callback_url"].as_str().unwrap_or_default().to_owned();
        let wanted = if url.is_empty() { Vec::new() } else { document::ids(&agent, "callback_events") };
        let mut view = ConversationView::default();
        for fact in shared.store.events(id, 0).await? {
            view.apply(&fact);
        }
        let sequence = shared.store.last_sequence(id).await?;
        let base = row.joined_at.unwrap_or(row.created_at);
        Ok(Some(Self { row, wanted, url, base, sequence, view, fired: Vec::new() }))
    }

    /// Whether the conversation is over.
    pub(super) fn ended(&self) -> bool {
        self.view.end_reason.is_some()
    }

    /// Applies the next event and returns its effects.
    pub(super) fn follow(&mut self, shared: &AppState, fact: &EventEnvelope) -> Follows {
        if let Event::Joined { unix_micros } = &fact.event {
            self.base = Micros::try_from(*unix_micros).unwrap_or_else(|_| clock::now());
        }
        self.view.apply(fact);
        let at = self.base.saturating_add(Micros::try_from(fact.at.as_micros()).unwrap_or(Micros::MAX));
        let change = match (&fact.event, self.view.end_reason) {
            // Events after the end (a tool's result) belong to the record too.
            (_, Some(reason)) => Change::Ends {
                reason: record::reason(reason),
                record: record::folded(&self.view, &self.row.id, self.base).to_string(),
                at,
            },
            (Event::Joined { .. }, None) => Change::Begins(at),
            _ => Change::None,
        };
        let delivery = self.delivery(shared, fact);
        let notices = self.notices(fact, at);
        Follows { delivery, notices, change }
    }

    /// An event with everything that is written with it.
    pub(super) fn prepared(&self, fact: EventEnvelope, follows: Follows) -> Prepared {
        let Follows { delivery, notices, change } = follows;
        Prepared {
            conversation: self.row.id.clone(),
            workspace: self.row.workspace.clone(),
            fact,
            delivery,
            notices,
            change,
        }
    }

    /// The callbacks that are due now: a triggered guardrail is reported with the utterance that
    /// answers it.
    fn notices(&mut self, fact: &EventEnvelope, at: Micros) -> Vec<Notice> {
        let speech = match &fact.event {
            Event::GuardrailTriggered(fired) => {
                if let Some(url) = fired.callback_url.clone().filter(|url| !url.is_empty()) {
                    self.fired.push(Fired { fact: (**fired).clone(), url, at });
                }
                return Vec::new();
            }
            Event::AgentStartedSpeaking { utterance, .. } => Some(speech_id(*utterance)),
            Event::Ended { .. } => None,
            _ => return Vec::new(),
        };
        let row = &self.row;
        let told = self.fired.drain(..);
        told.map(|fired| fired.notice(&row.agent, &row.agent_name, &row.id, speech.clone())).collect()
    }

    /// The webhook of an event, if the agent's receiver subscribed to it.
    fn delivery(&mut self, shared: &AppState, fact: &EventEnvelope) -> Option<store::delivery::Row> {
        let event = fact.event.webhook_name()?;
        if !self.wanted.iter().any(|wanted| wanted == event) {
            return None;
        }
        let id: ConversationId = self.row.id.parse().ok()?;
        let body = fact.webhook_body(id, u64::try_from(self.base).unwrap_or(0))?;
        let wait = shared.config.webhooks.schedule.first().copied().unwrap_or_default();
        self.sequence += 1;
        Some(store::delivery::Row {
            id: signing::fresh_id(),
            workspace: self.row.workspace.clone(),
            conversation: self.row.id.clone(),
            agent: self.row.agent.clone(),
            sequence: self.sequence,
            event: event.to_owned(),
            url: self.url.clone(),
            body,
            attempts: 0,
            tries_before: 0,
            first_try: None,
            next_try: clock::now().saturating_add(clock::micros(wait)),
        })
    }
}

/// Change of the conversation's row by an event.
pub(super) enum Change {
    None,
    Begins(Micros),
    Ends { reason: &'static str, record: String, at: Micros },
}

/// The effects of an event.
pub(super) struct Follows {
    delivery: Option<store::delivery::Row>,
    notices: Vec<Notice>,
    change: Change,
}

/// An event with everything that is written with it.
pub(super) struct Prepared {
    pub(super) conversation: String,
    workspace: String,
    fact: EventEnvelope,
    delivery: Option<store::delivery::Row>,
    notices: Vec<Notice>,
    pub(super) change: Change,
}

impl Prepared {
    /// Stores as text an event that the store rejects. If it is the end of the conversation, the
    /// conversation ends nevertheless; its record is then built from its events.
    pub(super) async fn put_aside(&self, shared: &AppState, why: &store::Error) -> store::Result<()> {
        let mut tx = shared.store.try_write().await?;
        store::failed_event::insert(&mut tx, &self.conversation, &self.fact, &why.to_string()).await?;
        if let Change::Ends { reason, at, .. } = &self.change {
            store::conversation::end(&mut tx, &self.conversation, reason, None, *at, clock::now()).await?;
        }
        tx.commit().await?;
        tracing::error!(conversation = %self.conversation, seq = self.fact.seq, reason = %why, "the store rejected an event; its text is stored in failed_event");
        Ok(())
    }

    /// Logs the start and the end of a conversation.
    fn log(&self) {
        match (&self.change, &self.fact.event) {
            (Change::Begins(_), _) => {
                tracing::info!(conversation = %self.conversation, "conversation started");
            }
            (Change::Ends { reason, .. }, Event::Ended { .. }) => {
                let seconds = self.fact.at.as_seconds();
                tracing::info!(conversation = %self.conversation, reason, seconds, "conversation ended");
            }
            _ => {}
        }
    }
}

/// Result of [`write_events`].
#[derive(Default)]
pub(super) struct Written {
    /// Indexes of the events whose webhook is in the outbox.
    deliveries: BTreeSet<usize>,
    /// Conversations whose events were rejected, because this plane had ended them.
    pub(super) refused: BTreeSet<String>,
}

impl Written {
    /// The event of this conversation was rejected.
    pub(super) fn nothing_of(conversation: &str) -> Self {
        Self { refused: [conversation.to_owned()].into(), ..Self::default() }
    }
}

/// Writes events with their effects. Events that an earlier COMMIT stored although its answer was
/// lost count as written.
pub(super) async fn write(tx: &mut Transaction, server: &str, facts: &[Prepared]) -> store::Result<Written> {
    let now = clock::now();
    let mut written = Written::default();
    let mut known: HashMap<&str, bool> = HashMap::new();
    for (i, prepared) in facts.iter().enumerate() {
        if written.refused.contains(&prepared.conversation) {
            continue;
        }
        match store::event::insert(tx, &prepared.conversation, &prepared.workspace, &prepared.fact).await? {
            Added::New => {}
            // Its effects are stored too, and only have to be announced.
            Added::Before => {
                if let Some(delivery) = &prepared.delivery
                    && store::delivery::is_untried(tx, &delivery.id, server).await?
                {
                    written.deliveries.insert(i);
                }
                continue;
            }
            Added::Refused => {
                written.refused.insert(prepared.conversation.clone());
                continue;
            }
        }
        match &prepared.change {
            Change::None => {}
            Change::Begins(at) => {
                store::conversation::begin(tx, &prepared.conversation, server, *at, now).await?;
            }
            Change::Ends { reason, record, at } => {
                store::conversation::end(tx, &prepared.conversation, reason, Some(record), *at, now).await?;
            }
        }
        if let Some(delivery) = &prepared.delivery {
            // Read for each batch and not cached: another server may have received a 410 a moment
            // ago, or an update of the agent.
            let stopped = match known.get(delivery.agent.as_str()) {
                Some(stopped) => *stopped,
                None => {
                    let stopped = store::document::is_stopped(tx, &delivery.agent).await?;
                    known.insert(&delivery.agent, stopped);
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

/// Appends events, each with its wall clock time, to a conversation in status `expected` that emits
/// no events: the endings by the sweeper, the API and the restart. Returns false and does nothing
/// in any other status.
pub(crate) async fn append(
    shared: &AppState,
    id: &str,
    expected: &str,
    events: Vec<(Micros, Event)>,
) -> store::Result<bool> {
    let Some(mut live) = Live::load(shared, id).await? else { return Ok(false) };
    let mut tx = shared.store.write().await?;
    let current = store::conversation::find_in(&mut tx, id).await?;
    if current.is_none_or(|row| row.status != expected) {
        return Ok(false);
    }
    let first = store::event::all_in(&mut tx, id).await?.last().map_or(0, |fact| fact.seq + 1);
    let facts: Vec<Prepared> = (first..)
        .zip(events)
        .map(|(seq, (at, event))| {
            let at = Time::from_micros(u64::try_from(at - live.base).unwrap_or(0));
            let fact = EventEnvelope { seq, at, event };
            let follows = live.follow(shared, &fact);
            live.prepared(fact, follows)
        })
        .collect();
    let written = write(&mut tx, &shared.server, &facts).await?;
    tx.commit().await?;
    announce(shared, facts, &written);
    Ok(true)
}

/// Announces the stored events to the webhook dispatcher and to the readers of event streams.
pub(super) fn announce(shared: &AppState, facts: Vec<Prepared>, written: &Written) {
    let mut told: Vec<ConversationId> = facts.iter().filter_map(|p| p.conversation.parse().ok()).collect();
    told.sort_unstable();
    told.dedup();
    for (i, prepared) in facts.into_iter().enumerate() {
        if let (Change::Ends { .. }, Ok(id)) = (&prepared.change, prepared.conversation.parse()) {
            shared.connections.forget(id);
        }
        if !written.refused.contains(&prepared.conversation) {
            prepared.log();
            for notice in prepared.notices {
                // As for the outbox, but callbacks are not stored.
                let _ = shared.notices.send(notice);
            }
        }
        if let (Some(delivery), true) = (prepared.delivery, written.deliveries.contains(&i)) {
            // The receiver lives as long as the background tasks; after that the delivery is in the
            // store.
            let _ = shared.outbox.send(News::Written(delivery));
        }
    }
    for id in told {
        // Without an open stream there is no receiver.
        let _ = shared.news.send(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Place, Store};

    const CALL: &str = "0193a5b0-0000-7000-8000-000000000001";

    fn prepared(seq: u64, event: Event) -> Prepared {
        let change = match &event {
            Event::Ended { .. } => Change::Ends { reason: "user_left", record: "{}".into(), at: 9 },
            _ => Change::None,
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
            tries_before: 0,
            first_try: None,
            next_try: 5,
        };
        Prepared {
            conversation: CALL.into(),
            workspace: "w".into(),
            fact: EventEnvelope { seq, at: Time::from_seconds(seq as f64), event },
            delivery: Some(delivery),
            notices: Vec::new(),
            change,
        }
    }

    fn batch() -> Vec<Prepared> {
        let said = |text: &str| Event::UtteranceCommitted { text: text.into() };
        let reason = conversation::event::EndReason::UserLeft;
        vec![prepared(0, said("one")), prepared(1, said("two")), prepared(2, Event::Ended { reason })]
    }

    /// Writes and commits, as if the answer of the COMMIT arrived.
    async fn wrote(store: &Store, facts: &[Prepared]) -> Written {
        let mut tx = store.write().await.unwrap();
        let written = write(&mut tx, "here", facts).await.unwrap();
        tx.commit().await.unwrap();
        written
    }

    async fn count(store: &Store, table: &'static str) -> i64 {
        sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}")))
            .fetch_one(store.read())
            .await
            .unwrap()
    }

    async fn a_batch_is_stored_once(store: &Store) {
        for _ in 0..2 {
            let written = wrote(store, &batch()).await;
            assert_eq!((written.refused.len(), written.deliveries.len()), (0, 3));
            assert_eq!((count(store, "event").await, count(store, "delivery").await), (3, 3));
        }
        // Deliveries that no longer wait are not sent again: another server took them over, or they
        // were delivered.
        let mut tx = store.write().await.unwrap();
        for sql in [
            "UPDATE delivery SET server = 'there' WHERE id = 'msg_0'",
            "UPDATE delivery SET state = 'done', first_try = 1 WHERE id = 'msg_1'",
            "DELETE FROM delivery WHERE id = 'msg_2'",
        ] {
            sqlx::query(sql).execute(&mut *tx).await.unwrap();
        }
        tx.commit().await.unwrap();
        let written = wrote(store, &batch()).await;
        assert_eq!((written.refused.len(), written.deliveries.len()), (0, 0));
        assert_eq!((count(store, "event").await, count(store, "delivery").await), (3, 2));
        // A different event with a sequence number in use is rejected, and so are the events after
        // it.
        let mut other = batch();
        other[1].fact.event = Event::UtteranceCommitted { text: "another".into() };
        other.push(prepared(3, Event::CallEnded));
        let written = wrote(store, &other).await;
        assert_eq!(written.refused.iter().collect::<Vec<_>>(), [CALL]);
        assert_eq!(count(store, "event").await, 3);
    }

    #[tokio::test]
    async fn a_batch_that_is_stored_twice_is_doubled_nowhere_and_refused_nowhere() {
        let file = std::env::temp_dir().join(format!("visavis-fold-twice-{}.db", std::process::id()));
        let store = Store::open(Place::File(&file)).await.unwrap();
        a_batch_is_stored_once(&store).await;
        store.close().await;
        std::fs::remove_file(file).unwrap();
    }
}
