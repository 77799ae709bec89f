//! Deliveries whose row cannot be read: a value has another type, or a text is not UTF-8. Such a
//! row is set aside (state `unreadable`), so that it does not hide the others.

use sqlx::AssertSqlSafe;

use super::delivery::{COLUMNS, Row, set_aside};
use super::{Db, Lock, Result, Store};

/// Whether the database returned a row that the server cannot read.
fn is_unreadable(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_))
}

impl Store {
    /// The result of `read`, which reads pending deliveries of `server`. If a row cannot be read,
    /// all such rows are set aside, and the others are read again.
    pub(super) async fn read_deliveries<F>(
        &self,
        server: &str,
        read: impl Fn() -> F,
    ) -> Result<Vec<Row>>
    where
        F: Future<Output = sqlx::Result<Vec<Row>>>,
    {
        match read().await {
            Err(error) if is_unreadable(&error) => {
                self.set_aside_unreadable(server).await?;
                Ok(read().await?)
            }
            rows => Ok(rows?),
        }
    }

    /// Reads each pending delivery alone, because a row that cannot be read ends the query.
    async fn set_aside_unreadable(&self, server: &str) -> Result<()> {
        let ids: Vec<String> =
            sqlx::query_scalar("SELECT id FROM delivery WHERE state = 'pending' AND server = $1")
                .bind(server)
                .fetch_all(self.reader_pool())
                .await?;
        let sql = format!("SELECT {COLUMNS} FROM delivery WHERE id = $1");
        for id in ids {
            let query = sqlx::query_as::<Db, Row>(AssertSqlSafe(sql.clone())).bind(&id);
            let row = query.fetch_optional(self.reader_pool()).await;
            let Err(error) = row else { continue };
            if !is_unreadable(&error) {
                return Err(error.into());
            }
            let mut tx = self.begin_write(Lock::Rows).await?;
            set_aside(&mut tx, &id, &error.to_string()).await?;
            tx.commit().await?;
            tracing::error!(delivery = %id, %error, "cannot read a webhook: its row is set aside");
        }
        Ok(())
    }
}
