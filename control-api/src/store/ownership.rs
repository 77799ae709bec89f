//! Ownership of calls.
//!
//! A conversation names the server that holds its call and the epoch of that server, which is the
//! number of its start. Only that process adds events: one that was frozen, cut off or replaced
//! meanwhile is rejected. Before the join, a claim says which server accepts the offers; only a
//! shared PostgreSQL database has claims. Its clock decides, because those of the servers differ.
//!
//! ```text
//! (created) --- claim_conversation: an offer was accepted ---> claimed, until the offer expires
//! claimed ----- mark_joined ---------------------------------> held by (server, epoch)
//! held -------- mark_ended ----------------------------------> held; a late result may follow
//! held -------- fence: the server was lost ------------------> held by nobody
//! ```

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::conversation::STARTED;
use super::server::live_servers;
use super::{Result, Store, Transaction};
use crate::clock::Micros;

/// SQL expression: now, in µs, by the clock of PostgreSQL.
macro_rules! database_now {
    () => {
        "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"
    };
}
pub(super) use database_now;

/// The same as text.
pub(crate) const NOW: &str = database_now!();

/// A process that may hold calls: a server, and the number of its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) server: Arc<str>,
    pub(crate) epoch: i64,
}

/// The owner and the status of a conversation that a transaction has locked.
#[derive(Clone, Debug)]
pub(crate) struct Locked {
    id: String,
    pub(crate) server: String,
    /// 0 = no process.
    epoch: i64,
    /// The epoch of the last start of `server`.
    server_epoch: i64,
    pub(crate) status: String,
}

from_row!(Locked { id, server, epoch, server_epoch, status });

impl Locked {
    /// Whether a process may add events: it starts the call now, runs it, or ran it to its end.
    pub(crate) fn admits(&self, holder: &Holder) -> bool {
        // A process whose server has started again may not start a call.
        let may_start = self.status == STARTED && self.server_epoch == holder.epoch;
        *self.server == *holder.server && (may_start || self.epoch == holder.epoch)
    }
}

/// Locks conversations until the transaction ends. Those that do not exist are missing in the
/// result.
pub(crate) async fn lock(tx: &mut Transaction, ids: &[&str]) -> Result<HashMap<String, Locked>> {
    let ids: BTreeSet<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let places: Vec<String> = (1..=ids.len()).map(|n| format!("${n}")).collect();
    // All transactions lock in the same order.
    let sql = format!(
        "SELECT conversation.id AS id, server, conversation.epoch AS epoch, status, \
         COALESCE(server.epoch, 0) AS server_epoch FROM conversation \
         LEFT JOIN server ON server.id = conversation.server \
         WHERE conversation.id IN ({}) ORDER BY conversation.id{}",
        places.join(", "),
        if tx.shared { " FOR UPDATE OF conversation" } else { "" },
    );
    let mut query = sqlx::query_as(AssertSqlSafe(sql));
    for id in ids {
        query = query.bind(id);
    }
    let rows: Vec<Locked> = query.fetch_all(&mut **tx).await?;
    Ok(rows.into_iter().map(|row| (row.id.clone(), row)).collect())
}

/// Lets no process add events to a running call any more, because its server was lost.
pub(crate) async fn fence(tx: &mut Transaction, id: &str) -> Result<()> {
    sqlx::query("UPDATE conversation SET epoch = 0 WHERE id = $1")
        .bind(id)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

impl Store {
    /// Claims a conversation that was not joined for `duration` µs, or extends the claim. False if
    /// another server that is not lost has claimed it, or it is no longer STARTED.
    pub(crate) async fn claim_conversation(
        &self,
        id: &str,
        server: &str,
        duration: Micros,
    ) -> Result<bool> {
        let done = sqlx::query(concat!(
            "UPDATE conversation SET server = $1, claimed_until = ",
            database_now!(),
            " + $2 WHERE id = $3 AND status = 'STARTED' AND (server = $1 OR claimed_until < ",
            database_now!(),
            " OR server NOT IN ",
            live_servers!(),
            ")",
        ))
        .bind(server)
        .bind(duration)
        .bind(id)
        .execute(self.reader_pool())
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Takes over the claim of a server that does not accept the offer. False if the claim or the
    /// status has changed.
    pub(crate) async fn take_claim(
        &self,
        id: &str,
        (server, holder): (&str, &str),
        duration: Micros,
    ) -> Result<bool> {
        let done = sqlx::query(concat!(
            "UPDATE conversation SET server = $1, claimed_until = ",
            database_now!(),
            " + $2 WHERE id = $3 AND status = 'STARTED' AND server = $4",
        ))
        .bind(server)
        .bind(duration)
        .bind(id)
        .bind(holder)
        .execute(self.reader_pool())
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Releases a claim, so that another server may accept the next offer at once.
    pub(crate) async fn release_claim(&self, id: &str, server: &str) -> Result<()> {
        sqlx::query(
            "UPDATE conversation SET claimed_until = 0 WHERE id = $1 AND server = $2 \
             AND status = 'STARTED'",
        )
        .bind(id)
        .bind(server)
        .execute(self.reader_pool())
        .await?;
        Ok(())
    }

    /// The server that holds a call: the one that runs it, or has accepted an offer that may still
    /// connect. `None` if there is none, or the conversation has ended.
    pub(crate) async fn call_holder(&self, id: &str) -> Result<Option<String>> {
        Ok(sqlx::query_scalar(concat!(
            "SELECT server FROM conversation WHERE id = $1 AND (status = 'IN_PROGRESS' \
             OR (status = 'STARTED' AND claimed_until >= ",
            database_now!(),
            " AND server IN ",
            live_servers!(),
            "))",
        ))
        .bind(id)
        .fetch_optional(self.reader_pool())
        .await?)
    }
}
