//! Claims: which server accepts the offers of a conversation that was not joined. Only a shared
//! PostgreSQL database has them. Its clock decides, because those of the servers differ.

use super::{Result, Store};
use crate::clock::Micros;

/// SQL expression: now, in µs, by the clock of PostgreSQL.
macro_rules! database_now {
    () => {
        "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"
    };
}

impl Store {
    /// Claims a conversation that was not joined for `duration` µs, or extends the claim. False if
    /// another server has claimed it, or it is no longer STARTED.
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
            ")",
        ))
        .bind(server)
        .bind(duration)
        .bind(id)
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
            "))",
        ))
        .bind(id)
        .fetch_optional(self.reader_pool())
        .await?)
    }
}
