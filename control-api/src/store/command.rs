//! Commands sent before the join. They wait for the offer that starts the call.

use conversation::input::Command;

use super::{Error, Lock, Result, Store, ownership};

impl Store {
    /// Queues a command and returns its position; `None` if the conversation is no longer STARTED.
    pub(crate) async fn queue_command(
        &self,
        workspace: &str,
        conversation: &str,
        command: &Command,
    ) -> Result<Option<i64>> {
        let json = serde_json::to_string(command)
            .map_err(|e| Error::CorruptRow("command", e.to_string()))?;
        let mut tx = self.begin_write(Lock::Rows).await?;
        // Two commands at once would get the same position.
        ownership::lock(&mut tx, &[conversation]).await?;
        let position = sqlx::query_scalar(
            "INSERT INTO command (conversation, position, workspace, json) SELECT id, \
             (SELECT COALESCE(MAX(position) + 1, 0) FROM command WHERE conversation = $1), \
             workspace, $2 FROM conversation \
             WHERE id = $1 AND workspace = $3 AND status = 'STARTED' RETURNING position",
        )
        .bind(conversation)
        .bind(json)
        .bind(workspace)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(position)
    }

    /// Removes a queued command, so that the next offer does not read it.
    pub(crate) async fn remove_queued_command(
        &self,
        conversation: &str,
        position: i64,
    ) -> Result<()> {
        let mut tx = self.begin_write(Lock::Rows).await?;
        sqlx::query("DELETE FROM command WHERE conversation = $1 AND position = $2")
            .bind(conversation)
            .bind(position)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(())
    }

    /// The queued commands, in order.
    pub(crate) async fn queued_commands(&self, conversation: &str) -> Result<Vec<Command>> {
        let rows: Vec<String> = sqlx::query_scalar(
            "SELECT json FROM command WHERE conversation = $1 ORDER BY position",
        )
        .bind(conversation)
        .fetch_all(self.reader_pool())
        .await?;
        rows.iter()
            .map(|json| {
                serde_json::from_str(json).map_err(|e| Error::CorruptRow("command", e.to_string()))
            })
            .collect()
    }
}
