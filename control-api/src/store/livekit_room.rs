//! The LiveKit rooms that were served: a room whose call is over gets no further agent.

use std::collections::HashSet;

use super::{Result, Store, Transaction};
use crate::clock::{self, Micros};

/// How long an agent may take to join its room, after which another one may, in µs.
const JOIN_TIME: Micros = 10_000_000;

/// Stores whose conversation takes place in a room. A room has one conversation after the other.
/// Returns false if it has another one now, or if another agent is about to join.
pub(crate) async fn insert(tx: &mut Transaction, sid: &str, conversation: &str) -> Result<bool> {
    let now = clock::now();
    let stored = sqlx::query(
        "INSERT INTO livekit_room (sid, conversation, created_at) VALUES ($1, $2, $3) \
         ON CONFLICT (sid) DO UPDATE \
         SET conversation = excluded.conversation, created_at = excluded.created_at \
         WHERE livekit_room.conversation = excluded.conversation OR NOT EXISTS ( \
         SELECT 1 FROM conversation WHERE id = livekit_room.conversation \
         AND (status = 'IN_PROGRESS' OR (status = 'STARTED' AND livekit_room.created_at > $4)))",
    )
    .bind(sid)
    .bind(conversation)
    .bind(now)
    .bind(now - JOIN_TIME)
    .execute(&mut **tx)
    .await?;
    Ok(stored.rows_affected() > 0)
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

    /// LiveKit's ids of the rooms that have a running call or an agent that is about to join, of all
    /// servers.
    pub(crate) async fn rooms_with_agents(&self) -> Result<HashSet<String>> {
        let sids = sqlx::query_scalar::<_, String>(
            "SELECT sid FROM livekit_room \
             JOIN conversation ON conversation.id = livekit_room.conversation \
             WHERE status = 'IN_PROGRESS' \
             OR (status = 'STARTED' AND livekit_room.created_at > $1)",
        )
        .bind(clock::now() - JOIN_TIME)
        .fetch_all(self.reader_pool())
        .await?;
        Ok(sids.into_iter().collect())
    }

    /// Whether a room has a running call or an agent that is about to join, on any server.
    pub(crate) async fn has_agent(&self, sid: &str) -> Result<bool> {
        let found = sqlx::query_scalar::<_, i64>(
            "SELECT 1 FROM livekit_room \
             JOIN conversation ON conversation.id = livekit_room.conversation \
             WHERE sid = $1 AND (status = 'IN_PROGRESS' \
             OR (status = 'STARTED' AND livekit_room.created_at > $2))",
        )
        .bind(sid)
        .bind(clock::now() - JOIN_TIME)
        .fetch_optional(self.reader_pool())
        .await?;
        Ok(found.is_some())
    }
}
