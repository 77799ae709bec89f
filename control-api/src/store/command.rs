//! Commands sent before the join. They wait for the offer that starts the call.

use conversation::input::Command;

use super::{Error, Lock, Result, Store};

impl Store {
    /// Queues a command; false if the conversation is no longer STARTED.
    pub(crate) async fn queue_command(
        &self,
        workspace: &str,
        conversation: &str,
        command: &Command,
    ) -> Result<bool> {
        let json = serde_json::to_string(command)
            .map_err(|e| Error::CorruptRow("command", e.to_string()))?;
        let mut tx = self.begin_write(Lock::Rows).await?;
        let done = sqlx::query(
            "INSERT INTO command (conversation, position, workspace, json) \
             SELECT id, (SELECT COUNT(*) FROM command WHERE conversation = $1), workspace, $2 \
             FROM conversation WHERE id = $1 AND workspace = $3 AND status = 'STARTED'",
        )
        .bind(conversation)
        .bind(json)
        .bind(workspace)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(done.rows_affected() > 0)
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
