//! Servers that share the database, each with a lease. Any server may take over what belongs to one
//! with an expired lease.

use super::{Result, Store, Transaction};
use crate::clock::Micros;

/// SQL subquery: the servers that are alive at time `$n`.
macro_rules! live_servers {
    ($n:literal) => {
        concat!("(SELECT id FROM server WHERE lease_until > ", $n, ")")
    };
}
pub(super) use live_servers;

/// Sets the end of a server's lease.
pub(crate) async fn set_lease(tx: &mut Transaction, id: &str, until: Micros) -> Result<()> {
    sqlx::query(
        "INSERT INTO server (id, lease_until) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE \
         SET lease_until = excluded.lease_until",
    )
    .bind(id)
    .bind(until)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

impl Store {
    /// Calls in progress on servers that are no longer alive.
    pub(crate) async fn orphaned_conversations(
        &self,
        server: &str,
        now: Micros,
    ) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(concat!(
            "SELECT id FROM conversation WHERE status = 'IN_PROGRESS' AND server <> $1 \
             AND server NOT IN ",
            live_servers!("$2"),
        ))
        .bind(server)
        .bind(now)
        .fetch_all(self.reader_pool())
        .await?)
    }
}
