//! Servers that share the database. Each renews a lease, and one of them declares those lost that
//! do not. What belongs to a lost server may be taken over by any other.
//!
//! ```text
//! register (start) --- renew_lease, several times per lease ---> alive
//! alive -------------- declare_lost, set_lost at shutdown -----> lost
//! lost --------------- renew_lease: it was only cut off -------> alive, without its calls
//! ```
//!
//! Leases are compared by the clock of the database alone, because those of the servers differ.

use super::ownership::{Holder, database_now};
use super::{Result, Store, Transaction};
use crate::clock::Micros;

/// SQL subquery: the servers that are alive.
macro_rules! live_servers {
    () => {
        "(SELECT id FROM server WHERE lease_until > 0)"
    };
}
pub(super) use live_servers;

/// Registers the start of a server and returns its epoch. Its lease is unchanged.
pub(crate) async fn register(tx: &mut Transaction, id: &str) -> Result<i64> {
    Ok(sqlx::query_scalar(
        "INSERT INTO server (id, lease_until, epoch) VALUES ($1, 0, 1) ON CONFLICT (id) \
         DO UPDATE SET epoch = server.epoch + 1 RETURNING epoch",
    )
    .bind(id)
    .fetch_one(&mut **tx)
    .await?)
}

/// Makes a server alive without a lease: no other server uses the database.
pub(crate) async fn set_alive(tx: &mut Transaction, id: &str) -> Result<()> {
    sqlx::query("UPDATE server SET lease_until = CASE WHEN id = $1 THEN 1 ELSE 0 END")
        .bind(id)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// A server stops: nothing that it left behind needs it any more. Its report becomes empty.
pub(crate) async fn set_lost(tx: &mut Transaction, id: &str) -> Result<()> {
    sqlx::query("UPDATE server SET lease_until = 0, report = '' WHERE id = $1")
        .bind(id)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// A server as others see it. Times are those of the database's clock.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    /// 0 = lost or stopped.
    pub(crate) lease_until: Micros,
    pub(crate) renewed_at: Micros,
    /// What it reported, as JSON.
    pub(crate) report: String,
    /// Now.
    pub(crate) now: Micros,
}

from_row!(Row { id, lease_until, renewed_at, report, now });

impl Store {
    /// Renews a server's lease for `duration` µs, with its report. Returns the time, or `None` if
    /// another process has started with this id. PostgreSQL only.
    pub(crate) async fn renew_lease(
        &self,
        holder: &Holder,
        duration: Micros,
        report: &str,
    ) -> Result<Option<Micros>> {
        Ok(sqlx::query_scalar(concat!(
            "UPDATE server SET lease_until = ",
            database_now!(),
            " + $1, renewed_at = ",
            database_now!(),
            ", report = $2 WHERE id = $3 AND epoch = $4 RETURNING renewed_at",
        ))
        .bind(duration)
        .bind(report)
        .bind(&*holder.server)
        .bind(holder.epoch)
        .fetch_optional(self.reader_pool())
        .await?)
    }

    /// All servers, by id. PostgreSQL only.
    pub(crate) async fn servers(&self) -> Result<Vec<Row>> {
        Ok(sqlx::query_as(concat!(
            "SELECT id, lease_until, renewed_at, report, ",
            database_now!(),
            " AS now FROM server ORDER BY id",
        ))
        .fetch_all(self.reader_pool())
        .await?)
    }

    /// Declares a server lost. False if it has renewed its lease since `row` was read.
    pub(crate) async fn declare_lost(&self, row: &Row) -> Result<bool> {
        let done =
            sqlx::query("UPDATE server SET lease_until = 0 WHERE id = $1 AND lease_until = $2")
                .bind(&row.id)
                .bind(row.lease_until)
                .execute(self.reader_pool())
                .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Whether a server is alive.
    pub(crate) async fn is_server_alive(&self, id: &str) -> Result<bool> {
        let found: Option<String> =
            sqlx::query_scalar("SELECT id FROM server WHERE id = $1 AND lease_until > 0")
                .bind(id)
                .fetch_optional(self.reader_pool())
                .await?;
        Ok(found.is_some())
    }

    /// Calls in progress on servers that are lost.
    pub(crate) async fn orphaned_conversations(&self, server: &str) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(concat!(
            "SELECT id FROM conversation WHERE status = 'IN_PROGRESS' AND server <> $1 \
             AND server NOT IN ",
            live_servers!(),
        ))
        .bind(server)
        .fetch_all(self.reader_pool())
        .await?)
    }

    /// Calls of a server that others ended since `since` (wall clock), because it seemed lost.
    pub(crate) async fn fenced_conversations(
        &self,
        server: &str,
        since: Micros,
    ) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(
            "SELECT id FROM conversation WHERE status = 'ENDED' AND epoch = 0 AND server = $1 \
             AND joined_at IS NOT NULL AND updated_at >= $2",
        )
        .bind(server)
        .bind(since)
        .fetch_all(self.reader_pool())
        .await?)
    }
}
