//! The outbox: webhook deliveries, and the result of each attempt.
//!
//! ```text
//! (insert, in the event's transaction) --------> pending
//! pending -- attempt failed, retries left -----> pending (next_attempt_at)
//! pending -- attempt succeeded ----------------> done
//! pending -- retries used up, agent given up --> dead (a dead letter)
//! pending -- speaking event too late ----------> dropped
//! pending -- row cannot be read ---------------> unreadable (counted in the metrics only)
//! dead ----- redeliver ------------------------> pending
//! ```
//!
//! Rows of an erased conversation are deleted once they leave `pending`.

use sqlx::AssertSqlSafe;

use super::server::live_servers;
use super::{Db, Page, Result, SqlBuilder, Store, Transaction};
use crate::clock::Micros;

/// One webhook delivery.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// `webhook-id`, the same for all attempts.
    pub(crate) id: String,
    pub(crate) workspace: String,
    pub(crate) conversation: String,
    pub(crate) agent: String,
    /// Position among the deliveries of this callback: 1, 2, 3 …
    pub(crate) sequence: i64,
    /// Name of the event.
    pub(crate) event: String,
    pub(crate) url: String,
    /// The exact bytes that are signed and sent.
    pub(crate) body: String,
    /// Number of attempts made.
    pub(crate) attempts: i64,
    /// Number of attempts before the last redelivery. The retry schedule starts after them.
    pub(crate) attempts_before_redelivery: i64,
    /// When the first attempt was made.
    pub(crate) first_attempt_at: Option<Micros>,
    /// When the next attempt is due.
    pub(crate) next_attempt_at: Micros,
}

from_row!(Row {
    id,
    workspace,
    conversation,
    agent,
    sequence,
    event,
    url,
    body,
    attempts,
    attempts_before_redelivery = "tries_before",
    first_attempt_at = "first_try",
    next_attempt_at = "next_try"
});

pub(super) const COLUMNS: &str = "id, workspace, conversation, agent, sequence, event, url, body, \
    attempts, tries_before, first_try, next_try";
/// Maximum number of due retries read at once.
const MAX_RETRIES_READ: usize = 2000;

/// State of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Done,
    /// Given up; stored as a dead letter.
    Dead,
    /// A speaking event that is too late to be useful.
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

/// One attempt.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) at: Micros,
    pub(crate) duration: Micros,
    /// The receiver's HTTP status, if there was a response.
    pub(crate) status: Option<u16>,
    /// The error, in one sentence.
    pub(crate) error: Option<String>,
}

/// Adds a delivery that `server` makes, in the transaction of its event. An existing one stays
/// unchanged.
pub(crate) async fn insert(tx: &mut Transaction, row: &Row, server: &str) -> Result<()> {
    sqlx::query(
        "INSERT INTO delivery (id, workspace, conversation, agent, sequence, event, url, body, \
         state, next_try, created_at, server) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'pending', $9, $9, $10) \
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(&row.id)
    .bind(&row.workspace)
    .bind(&row.conversation)
    .bind(&row.agent)
    .bind(row.sequence)
    .bind(&row.event)
    .bind(&row.url)
    .bind(&row.body)
    .bind(row.next_attempt_at)
    .bind(server)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Whether a delivery waits for its first attempt by `server`. If the response to its COMMIT was
/// lost, another server may have adopted and sent it since.
pub(crate) async fn is_untried(tx: &mut Transaction, id: &str, server: &str) -> Result<bool> {
    let found: Option<i64> = sqlx::query_scalar(
        "SELECT sequence FROM delivery WHERE id = $1 AND server = $2 AND state = 'pending' \
         AND first_try IS NULL",
    )
    .bind(id)
    .bind(server)
    .fetch_optional(&mut **tx)
    .await?;
    Ok(found.is_some())
}

/// Adopts the pending deliveries of servers that are no longer alive; true if there were any.
pub(crate) async fn adopt_orphans(tx: &mut Transaction, server: &str) -> Result<bool> {
    let adopted = sqlx::query(concat!(
        "UPDATE delivery SET server = $1 WHERE state = 'pending' AND server <> $1 \
         AND server NOT IN ",
        live_servers!(),
    ))
    .bind(server)
    .execute(&mut **tx)
    .await?;
    Ok(adopted.rows_affected() > 0)
}

/// Records the result of an attempt.
pub(crate) async fn record_attempt(
    tx: &mut Transaction,
    row: &Row,
    attempt: &Attempt,
    state: State,
    reason: Option<&str>,
) -> Result<()> {
    sqlx::query(
        // The delivery of a deleted video is gone.
        "INSERT INTO delivery_try (delivery, attempt, workspace, at_us, took_us, status, error) \
         SELECT $1, $2, $3, $4, $5, $6, $7 WHERE EXISTS (SELECT 1 FROM delivery WHERE id = $1) \
         ON CONFLICT (delivery, attempt) DO NOTHING",
    )
    .bind(&row.id)
    .bind(row.attempts)
    .bind(&row.workspace)
    .bind(attempt.at)
    .bind(attempt.duration)
    .bind(attempt.status.map(i64::from))
    .bind(&attempt.error)
    .execute(&mut **tx)
    .await?;
    // A 410 of another delivery may have made this one dead meanwhile: it stays dead.
    let erased: Option<i64> = sqlx::query_scalar(
        "UPDATE delivery SET attempts = $1, first_try = $2, next_try = $3, state = $4, reason = $5 \
         WHERE id = $6 AND state = 'pending' RETURNING erased",
    )
    .bind(row.attempts)
    .bind(row.first_attempt_at)
    .bind(row.next_attempt_at)
    .bind(state.name())
    .bind(reason)
    .bind(&row.id)
    .fetch_optional(&mut **tx)
    .await?;
    if erased == Some(1) && state != State::Pending {
        delete_erased(tx, "id", &row.id).await?;
    }
    Ok(())
}

/// Deletes the settled deliveries of erased conversations, where `column` = `value`.
async fn delete_erased(tx: &mut Transaction, column: &'static str, value: &str) -> Result<()> {
    let which = format!("{column} = $1 AND erased = 1 AND state <> 'pending'");
    let tries = format!(
        "DELETE FROM delivery_try WHERE delivery IN (SELECT id FROM delivery WHERE {which})"
    );
    for sql in [tries, format!("DELETE FROM delivery WHERE {which}")] {
        sqlx::query(AssertSqlSafe(sql)).bind(value).execute(&mut **tx).await?;
    }
    Ok(())
}

/// Sets a pending delivery aside whose row cannot be read.
pub(super) async fn set_aside(tx: &mut Transaction, id: &str, reason: &str) -> Result<()> {
    sqlx::query(
        "UPDATE delivery SET state = 'unreadable', reason = $1 WHERE id = $2 AND state = 'pending'",
    )
    .bind(reason)
    .bind(id)
    .execute(&mut **tx)
    .await?;
    delete_erased(tx, "id", id).await
}

/// Gives up all pending deliveries of an agent whose receiver answered 410.
pub(crate) async fn give_up_for_agent(
    tx: &mut Transaction,
    agent: &str,
    reason: &str,
) -> Result<()> {
    sqlx::query(
        "UPDATE delivery SET state = 'dead', reason = $1 WHERE agent = $2 AND state = 'pending'",
    )
    .bind(reason)
    .bind(agent)
    .execute(&mut **tx)
    .await?;
    delete_erased(tx, "agent", agent).await
}

/// A delivery as the log shows it.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryLogEntry {
    pub(crate) id: String,
    pub(crate) conversation: String,
    pub(crate) agent: String,
    pub(crate) sequence: i64,
    pub(crate) event: String,
    pub(crate) url: String,
    pub(crate) body: String,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
    pub(crate) next_attempt_at: Micros,
    pub(crate) created_at: Micros,
}

from_row!(DeliveryLogEntry {
    id,
    conversation,
    agent,
    sequence,
    event,
    url,
    body,
    state,
    reason,
    next_attempt_at = "next_try",
    created_at
});

/// An attempt as the log shows it.
#[derive(Clone, Debug)]
pub(crate) struct AttemptLogEntry {
    pub(crate) delivery: String,
    pub(crate) attempt: i64,
    pub(crate) at_us: Micros,
    pub(crate) took_us: Micros,
    pub(crate) status: Option<i64>,
    pub(crate) error: Option<String>,
}

from_row!(AttemptLogEntry { delivery, attempt, at_us, took_us, status, error });

const SELECT_LOG_ENTRIES: &str = "SELECT id, conversation, agent, sequence, event, url, body, \
    state, reason, next_try, created_at FROM delivery";

/// Makes a dead letter pending again, due `now`; `None` if the workspace has no such dead letter.
pub(crate) async fn redeliver(
    tx: &mut Transaction,
    workspace: &str,
    id: &str,
    server: &str,
    now: Micros,
) -> Result<Option<Row>> {
    let sql = format!(
        "UPDATE delivery SET state = 'pending', reason = NULL, tries_before = attempts, \
         first_try = NULL, next_try = $1, server = $4 \
         WHERE id = $2 AND workspace = $3 AND state = 'dead' RETURNING {COLUMNS}"
    );
    Ok(sqlx::query_as(AssertSqlSafe(sql))
        .bind(now)
        .bind(id)
        .bind(workspace)
        .bind(server)
        .fetch_optional(&mut **tx)
        .await?)
}

/// Sets another URL for all further attempts.
pub(crate) async fn set_url(tx: &mut Transaction, id: &str, url: &str) -> Result<()> {
    sqlx::query("UPDATE delivery SET url = $1 WHERE id = $2")
        .bind(url)
        .bind(id)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

impl Store {
    /// Whether there are pending deliveries of servers that are no longer alive.
    pub(crate) async fn has_orphaned_deliveries(&self, server: &str) -> Result<bool> {
        let found: Option<String> = sqlx::query_scalar(concat!(
            "SELECT id FROM delivery WHERE state = 'pending' AND server <> $1 AND server NOT IN ",
            live_servers!(),
            " LIMIT 1",
        ))
        .bind(server)
        .fetch_optional(self.reader_pool())
        .await?;
        Ok(found.is_some())
    }

    /// One page of a conversation's deliveries, in their order, and the number of all.
    pub(crate) async fn deliveries_of(
        &self,
        conversation: &str,
        page: &Page,
    ) -> Result<(Vec<DeliveryLogEntry>, i64)> {
        const WHICH: &str = "WHERE conversation = $1 AND state <> 'unreadable'";
        let mut snapshot = self.begin_read().await?;
        let total =
            sqlx::query_scalar(AssertSqlSafe(format!("SELECT COUNT(*) FROM delivery {WHICH}")))
                .bind(conversation)
                .fetch_one(&mut *snapshot)
                .await?;
        let sql = format!("{SELECT_LOG_ENTRIES} {WHICH} ORDER BY sequence LIMIT $2 OFFSET $3");
        let rows = sqlx::query_as(AssertSqlSafe(sql))
            .bind(conversation)
            .bind(page.perpage.unwrap_or(i64::MAX))
            .bind(page.offset)
            .fetch_all(&mut *snapshot)
            .await?;
        snapshot.commit().await?;
        Ok((rows, total))
    }

    /// One page of a workspace's dead letters, newest first, and the number of all.
    pub(crate) async fn dead_letters(
        &self,
        workspace: &str,
        page: &Page,
    ) -> Result<(Vec<DeliveryLogEntry>, i64)> {
        let mut snapshot = self.begin_read().await?;
        let total = sqlx::query_scalar(
            "SELECT COUNT(*) FROM delivery WHERE workspace = $1 AND state = 'dead'",
        )
        .bind(workspace)
        .fetch_one(&mut *snapshot)
        .await?;
        let sql = format!(
            "{SELECT_LOG_ENTRIES} WHERE workspace = $1 AND state = 'dead' \
             ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3"
        );
        let rows = sqlx::query_as(AssertSqlSafe(sql))
            .bind(workspace)
            .bind(page.perpage.unwrap_or(i64::MAX))
            .bind(page.offset)
            .fetch_all(&mut *snapshot)
            .await?;
        snapshot.commit().await?;
        Ok((rows, total))
    }

    /// The attempts of these deliveries, in order.
    pub(crate) async fn delivery_attempts(&self, ids: &[String]) -> Result<Vec<AttemptLogEntry>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut sql = SqlBuilder::new(
            "SELECT delivery, attempt, at_us, took_us, status, error FROM delivery_try \
             WHERE delivery IN (",
        );
        sql.bind_all(ids);
        sql.push(") ORDER BY delivery, attempt");
        sql.fetch_all(self.reader_pool()).await
    }

    /// Sequence number of the last delivery of a conversation; 0 if there is none.
    pub(crate) async fn last_delivery_sequence(&self, conversation: &str) -> Result<i64> {
        let last: Option<i64> =
            sqlx::query_scalar("SELECT MAX(sequence) FROM delivery WHERE conversation = $1")
                .bind(conversation)
                .fetch_one(self.reader_pool())
                .await?;
        Ok(last.unwrap_or(0))
    }

    /// Pending deliveries of `server` without an attempt, in order within each conversation: the
    /// first `max` of each.
    pub(crate) async fn untried_deliveries(&self, server: &str, max: usize) -> Result<Vec<Row>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM (SELECT {COLUMNS}, ROW_NUMBER() OVER (PARTITION BY conversation \
             ORDER BY sequence) AS place FROM delivery \
             WHERE state = 'pending' AND server = $1 AND first_try IS NULL) AS waiting \
             WHERE place <= $2 ORDER BY conversation, sequence"
        );
        let (sql, pool, max) =
            (sql.as_str(), self.reader_pool(), i64::try_from(max).unwrap_or(i64::MAX));
        let query =
            || sqlx::query_as::<Db, Row>(AssertSqlSafe(sql.to_owned())).bind(server).bind(max);
        self.read_deliveries(server, || query().fetch_all(pool)).await
    }

    /// The same for one conversation, after the sequence number `after`.
    pub(crate) async fn untried_deliveries_of(
        &self,
        conversation: &str,
        server: &str,
        after: i64,
        max: usize,
    ) -> Result<Vec<Row>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM delivery WHERE conversation = $1 AND sequence > $2 \
             AND state = 'pending' AND server = $3 AND first_try IS NULL \
             ORDER BY sequence LIMIT $4"
        );
        let (sql, pool, max) =
            (sql.as_str(), self.reader_pool(), i64::try_from(max).unwrap_or(i64::MAX));
        let read = || {
            sqlx::query_as::<Db, Row>(AssertSqlSafe(sql.to_owned()))
                .bind(conversation)
                .bind(after)
                .bind(server)
                .bind(max)
                .fetch_all(pool)
        };
        self.read_deliveries(server, read).await
    }

    /// Failed deliveries of `server` whose next attempt is due by `until`, the earliest first.
    pub(crate) async fn retries_due_before(&self, server: &str, until: Micros) -> Result<Vec<Row>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM delivery WHERE state = 'pending' AND server = $1 \
             AND first_try IS NOT NULL AND next_try <= $2 \
             ORDER BY next_try LIMIT {MAX_RETRIES_READ}"
        );
        let (sql, pool) = (sql.as_str(), self.reader_pool());
        let query =
            || sqlx::query_as::<Db, Row>(AssertSqlSafe(sql.to_owned())).bind(server).bind(until);
        self.read_deliveries(server, || query().fetch_all(pool)).await
    }

    /// The encrypted secrets that sign for an agent. If the agent was deleted, those that its
    /// conversation started with. A video has its own, and counts as its agent and as its
    /// conversation.
    pub(crate) async fn signing_secrets(
        &self,
        agent: &str,
        conversation: &str,
    ) -> Result<Option<String>> {
        let own: Option<String> = sqlx::query_scalar("SELECT secrets FROM agent WHERE id = $1")
            .bind(agent)
            .fetch_optional(self.reader_pool())
            .await?;
        if own.is_some() {
            return Ok(own);
        }
        let started: Option<String> =
            sqlx::query_scalar("SELECT agent_secrets FROM conversation WHERE id = $1")
                .bind(conversation)
                .fetch_optional(self.reader_pool())
                .await?;
        if started.is_some() {
            return Ok(started);
        }
        Ok(sqlx::query_scalar("SELECT secrets FROM video WHERE id = $1")
            .bind(conversation)
            .fetch_optional(self.reader_pool())
            .await?)
    }

    /// Number of deliveries by state, for the metrics.
    pub(crate) async fn delivery_counts(&self) -> Result<Vec<(String, i64)>> {
        Ok(sqlx::query_as("SELECT state, COUNT(*) FROM delivery GROUP BY state")
            .fetch_all(self.reader_pool())
            .await?)
    }
}
