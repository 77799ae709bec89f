//! Events of conversations.

use std::collections::HashSet;

use conversation::event::{Event, EventEnvelope};
use conversation::time::Time;
use sqlx::AssertSqlSafe;

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

/// An event to insert.
#[derive(Clone, Copy)]
pub(crate) struct NewEvent<'a> {
    pub(crate) conversation: &'a str,
    pub(crate) workspace: &'a str,
    pub(crate) envelope: &'a EventEnvelope,
}

/// Maximum number of events in one statement.
const MAX_ROWS: usize = 100;

/// Inserts events, except those whose sequence number exists. Returns the outcome of each. A
/// statement inserts many: with PostgreSQL, each one costs a round trip.
pub(crate) async fn insert_all(
    tx: &mut Transaction,
    events: &[NewEvent<'_>],
) -> Result<Vec<InsertOutcome>> {
    let mut outcomes = Vec::with_capacity(events.len());
    for events in events.chunks(MAX_ROWS) {
        let texts = events.iter().map(|new| serde_json::to_string(&new.envelope.event));
        let texts = texts.collect::<serde_json::Result<Vec<String>>>();
        let texts = texts.map_err(|error| Error::CorruptRow("event", error.to_string()))?;
        let mut inserted = insert_rows(tx, events, &texts).await?;
        for (new, json) in events.iter().zip(texts) {
            let key = (new.conversation.to_owned(), new.envelope.seq as i64);
            outcomes.push(match inserted.remove(&key) {
                true => InsertOutcome::Inserted,
                false => compare_stored(tx, *new, json).await?,
            });
        }
    }
    Ok(outcomes)
}

/// Returns the conversations and sequence numbers of the rows that were inserted.
async fn insert_rows(
    tx: &mut Transaction,
    events: &[NewEvent<'_>],
    texts: &[String],
) -> Result<HashSet<(String, i64)>> {
    const COLUMNS: usize = 5;
    let mut sql =
        "INSERT INTO event (conversation, seq, workspace, at_us, json) VALUES ".to_owned();
    for row in 0..events.len() {
        let separator = if row == 0 { "(" } else { ", (" };
        sql.push_str(separator);
        for column in 1..=COLUMNS {
            let comma = if column == 1 { "$" } else { ", $" };
            sql.push_str(comma);
            sql.push_str(&(row * COLUMNS + column).to_string());
        }
        sql.push(')');
    }
    sql.push_str(" ON CONFLICT (conversation, seq) DO NOTHING RETURNING conversation, seq");
    let mut query = sqlx::query_as(AssertSqlSafe(sql));
    for (new, json) in events.iter().zip(texts) {
        query = query
            .bind(new.conversation.to_owned())
            .bind(new.envelope.seq as i64)
            .bind(new.workspace.to_owned())
            .bind(new.envelope.at.as_micros() as i64)
            .bind(json.clone());
    }
    Ok(query.fetch_all(&mut **tx).await?.into_iter().collect())
}

/// Whether an event that was not inserted is the stored one.
async fn compare_stored(
    tx: &mut Transaction,
    new: NewEvent<'_>,
    json: String,
) -> Result<InsertOutcome> {
    let stored: Option<(String, i64, String)> = sqlx::query_as(
        "SELECT workspace, at_us, json FROM event WHERE conversation = $1 AND seq = $2",
    )
    .bind(new.conversation)
    .bind(new.envelope.seq as i64)
    .fetch_optional(&mut **tx)
    .await?;
    let same = stored == Some((new.workspace.to_owned(), new.envelope.at.as_micros() as i64, json));
    Ok(if same { InsertOutcome::AlreadyStored } else { InsertOutcome::Conflict })
}

/// Deletes an event that the same transaction has inserted.
pub(crate) async fn take_back(tx: &mut Transaction, conversation: &str, seq: u64) -> Result<()> {
    sqlx::query("DELETE FROM event WHERE conversation = $1 AND seq = $2")
        .bind(conversation)
        .bind(seq as i64)
        .execute(&mut **tx)
        .await?;
    Ok(())
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
