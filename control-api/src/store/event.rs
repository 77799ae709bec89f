//! Events of conversations.

use conversation::event::{Event, EventEnvelope};
use conversation::time::Time;

use super::{Error, Result, Store, Transaction};

/// Result of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InsertOutcome {
    /// The event was inserted.
    Inserted,
    /// The event was already stored, with everything else in its transaction: the response to an
    /// earlier COMMIT was lost.
    AlreadyStored,
    /// Another event has its sequence number: the control plane has ended the conversation
    /// meanwhile.
    Conflict,
}

/// Inserts an event, unless its sequence number exists.
pub(crate) async fn insert(
    tx: &mut Transaction,
    conversation: &str,
    workspace: &str,
    envelope: &EventEnvelope,
) -> Result<InsertOutcome> {
    let json = serde_json::to_string(&envelope.event)
        .map_err(|e| Error::CorruptRow("event", e.to_string()))?;
    let done = sqlx::query(
        "INSERT INTO event (conversation, seq, workspace, at_us, json) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (conversation, seq) DO NOTHING",
    )
    .bind(conversation)
    .bind(envelope.seq as i64)
    .bind(workspace)
    .bind(envelope.at.as_micros() as i64)
    .bind(&json)
    .execute(&mut **tx)
    .await?;
    if done.rows_affected() > 0 {
        return Ok(InsertOutcome::Inserted);
    }
    let stored: Option<(String, i64, String)> = sqlx::query_as(
        "SELECT workspace, at_us, json FROM event WHERE conversation = $1 AND seq = $2",
    )
    .bind(conversation)
    .bind(envelope.seq as i64)
    .fetch_optional(&mut **tx)
    .await?;
    let same = stored == Some((workspace.to_owned(), envelope.at.as_micros() as i64, json));
    Ok(if same { InsertOutcome::AlreadyStored } else { InsertOutcome::Conflict })
}

type EventRow = (i64, i64, String);

fn parse_event((seq, at, json): EventRow) -> Result<EventEnvelope> {
    let event: Event =
        serde_json::from_str(&json).map_err(|e| Error::CorruptRow("event", e.to_string()))?;
    Ok(EventEnvelope { seq: seq as u64, at: Time::from_micros(at as u64), event })
}

const SELECT_EVENTS: &str =
    "SELECT seq, at_us, json FROM event WHERE conversation = $1 AND seq >= $2 ORDER BY seq";

/// All events of a conversation as the transaction sees them.
pub(crate) async fn events_in(
    tx: &mut Transaction,
    conversation: &str,
) -> Result<Vec<EventEnvelope>> {
    let rows: Vec<EventRow> =
        sqlx::query_as(SELECT_EVENTS).bind(conversation).bind(0_i64).fetch_all(&mut **tx).await?;
    rows.into_iter().map(parse_event).collect()
}

impl Store {
    /// The events of a conversation, starting at sequence number `from`.
    pub(crate) async fn events(&self, conversation: &str, from: u64) -> Result<Vec<EventEnvelope>> {
        let rows: Vec<EventRow> = sqlx::query_as(SELECT_EVENTS)
            .bind(conversation)
            .bind(from as i64)
            .fetch_all(self.reader_pool())
            .await?;
        rows.into_iter().map(parse_event).collect()
    }
}
