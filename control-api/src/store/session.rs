//! Console sessions that were logged out.

use super::{Result, Store, Transaction};
use crate::clock::{self, Micros};

/// Marks a session as ended. Its cookies are valid until `until`. Entries whose cookies have all
/// expired are deleted.
pub(crate) async fn mark_ended(tx: &mut Transaction, id: &str, until: Micros) -> Result<()> {
    sqlx::query("DELETE FROM ended_session WHERE until < $1")
        .bind(clock::now())
        .execute(&mut **tx)
        .await?;
    sqlx::query(
        "INSERT INTO ended_session (id, until) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE \
         SET until = excluded.until",
    )
    .bind(id)
    .bind(until)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

impl Store {
    /// Whether the session was logged out.
    pub(crate) async fn session_has_ended(&self, id: &str) -> Result<bool> {
        let found: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM ended_session WHERE id = $1")
            .bind(id)
            .fetch_one(self.reader_pool())
            .await?;
        Ok(found > 0)
    }
}
