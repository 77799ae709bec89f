//! Erased conversations whose files may still exist in a server's data folder.

use super::{Result, Store, Transaction};

/// Removes entries of `server` whose files are deleted.
pub(crate) async fn remove(tx: &mut Transaction, server: &str, ids: &[String]) -> Result<()> {
    for id in ids {
        sqlx::query("DELETE FROM erased WHERE server = $1 AND conversation = $2")
            .bind(server)
            .bind(id)
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}

impl Store {
    /// The entries of `server`.
    pub(crate) async fn erased_conversations(&self, server: &str) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar("SELECT conversation FROM erased WHERE server = $1")
            .bind(server)
            .fetch_all(self.reader_pool())
            .await?)
    }
}
