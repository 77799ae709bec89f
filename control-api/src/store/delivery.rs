//! The outbox: webhooks that must still be sent, and what became of each try.

use sqlx::FromRow;

use super::{Result, Store, Transaction};
use crate::clock::Micros;

/// One webhook.
#[derive(Clone, Debug, FromRow)]
pub(crate) struct Row {
    /// `webhook-id`, the same for all tries.
    pub(crate) id: String,
    pub(crate) workspace: String,
    pub(crate) conversation: String,
    pub(crate) agent: String,
    /// 1, 2, 3 … of what is sent to this callback.
    pub(crate) sequence: i64,
    /// Name of the event.
    pub(crate) event: String,
    pub(crate) url: String,
    /// Byte for byte what is signed and sent.
    pub(crate) body: String,
    /// Tries made.
    pub(crate) attempts: i64,
    /// When the first try was made.
    pub(crate) first_try: Option<Micros>,
    /// When the next try is due.
    pub(crate) next_try: Micros,
}

/// What became of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Done,
    /// Given up; kept as a dead letter.
    Dead,
    /// A speaking event that came too late to be of use.
    Dropped,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Dropped => "dropped",
        }
    }
}

/// One try.
#[derive(Clone, Debug)]
pub(crate) struct Try {
    pub(crate) at: Micros,
    pub(crate) took: Micros,
    /// The receiver's answer, if there was one.
    pub(crate) status: Option<u16>,
    /// What went wrong, in one sentence.
    pub(crate) error: Option<String>,
}

/// Adds a webhook, in the transaction of its event.
pub(crate) async fn insert(tx: &mut Transaction, row: &Row) -> Result<()> {
    sqlx::query(
        "INSERT INTO delivery (id, workspace, conversation, agent, sequence, event, url, body, state, next_try, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'pending', $9, $9)",
    )
    .bind(&row.id)
    .bind(&row.workspace)
    .bind(&row.conversation)
    .bind(&row.agent)
    .bind(row.sequence)
    .bind(&row.event)
    .bind(&row.url)
    .bind(&row.body)
    .bind(row.next_try)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Keeps what became of a try.
pub(crate) async fn tried(
    tx: &mut Transaction,
    row: &Row,
    outcome: &Try,
    state: State,
    reason: Option<&str>,
) -> Result<()> {
    sqlx::query(
        "INSERT INTO delivery_try (delivery, attempt, workspace, at_us, took_us, status, error) VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT (delivery, attempt) DO NOTHING",
    )
    .bind(&row.id)
    .bind(row.attempts)
    .bind(&row.workspace)
    .bind(outcome.at)
    .bind(outcome.took)
    .bind(outcome.status.map(i64::from))
    .bind(&outcome.error)
    .execute(&mut **tx)
    .await?;
    sqlx::query("UPDATE delivery SET attempts = $1, first_try = $2, next_try = $3, state = $4, reason = $5 WHERE id = $6")
        .bind(row.attempts)
        .bind(row.first_try)
        .bind(row.next_try)
        .bind(state.name())
        .bind(reason)
        .bind(&row.id)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Gives up all that waits for an agent whose receiver wants no more.
pub(crate) async fn give_up_agent(tx: &mut Transaction, agent: &str, reason: &str) -> Result<()> {
    sqlx::query("UPDATE delivery SET state = 'dead', reason = $1 WHERE agent = $2 AND state = 'pending'")
        .bind(reason)
        .bind(agent)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

impl Store {
    /// The number of the last webhook of a conversation, 0 if there was none.
    pub(crate) async fn last_sequence(&self, conversation: &str) -> Result<i64> {
        let last: Option<i64> =
            sqlx::query_scalar("SELECT MAX(sequence) FROM delivery WHERE conversation = $1")
                .bind(conversation)
                .fetch_one(self.read())
                .await?;
        Ok(last.unwrap_or(0))
    }

    /// All that must still be sent, in order within each conversation.
    pub(crate) async fn pending(&self) -> Result<Vec<Row>> {
        Ok(sqlx::query_as(
            "SELECT id, workspace, conversation, agent, sequence, event, url, body, attempts, first_try, next_try FROM delivery \
             WHERE state = 'pending' ORDER BY conversation, sequence",
        )
        .fetch_all(self.read())
        .await?)
    }

    /// The sealed secrets that sign for an agent: its own, else (it was deleted) those its conversation began with.
    pub(crate) async fn signing_secrets(&self, agent: &str, conversation: &str) -> Result<Option<String>> {
        let own: Option<String> = sqlx::query_scalar("SELECT secrets FROM agent WHERE id = $1")
            .bind(agent)
            .fetch_optional(self.read())
            .await?;
        if own.is_some() {
            return Ok(own);
        }
        Ok(sqlx::query_scalar("SELECT agent_secrets FROM conversation WHERE id = $1")
            .bind(conversation)
            .fetch_optional(self.read())
            .await?)
    }

    /// Webhooks by state, for the metrics.
    pub(crate) async fn delivery_counts(&self) -> Result<Vec<(String, i64)>> {
        Ok(sqlx::query_as("SELECT state, COUNT(*) FROM delivery GROUP BY state")
            .fetch_all(self.read())
            .await?)
    }
}
