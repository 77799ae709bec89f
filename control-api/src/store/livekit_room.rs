//! The LiveKit rooms that were served: a room whose call is over gets no further agent.

use super::{Result, Store, Transaction};
use crate::clock;

/// Stores whose conversation takes place in a room. A room has one conversation after the other.
pub(crate) async fn insert(tx: &mut Transaction, sid: &str, conversation: &str) -> Result<()> {
    sqlx::query(
        "INSERT INTO livekit_room (sid, conversation, created_at) VALUES ($1, $2, $3) \
         ON CONFLICT (sid) DO UPDATE SET conversation = excluded.conversation",
    )
    .bind(sid)
    .bind(conversation)
    .bind(clock::now())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Forgets the rooms of an erased conversation.
pub(crate) async fn erase(tx: &mut Transaction, conversation: &str) -> Result<()> {
    sqlx::query("DELETE FROM livekit_room WHERE conversation = $1")
        .bind(conversation)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

impl Store {
    /// The conversation that took place in a room, or does.
    pub(crate) async fn conversation_of_room(&self, sid: &str) -> Result<Option<String>> {
        Ok(sqlx::query_scalar("SELECT conversation FROM livekit_room WHERE sid = $1")
            .bind(sid)
            .fetch_optional(self.reader_pool())
            .await?)
    }
}
