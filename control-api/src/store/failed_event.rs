//! Events that the store refused alone.

use conversation::event::Stamped;

use super::{Error, Result, Store, Transaction};
use crate::clock;

/// Keeps an event as text, with the reason of its refusal.
pub(crate) async fn insert(
    tx: &mut Transaction,
    conversation: &str,
    event: &Stamped,
    reason: &str,
) -> Result<()> {
    // PostgreSQL takes no NUL in a text, and one may be what it was refused for.
    let plain = |text: &str| text.replace('\0', "\u{fffd}");
    let json = serde_json::to_string(&event.event).map_err(|e| Error::Damaged("event", e.to_string()))?;
    sqlx::query(
        "INSERT INTO failed_event (id, conversation, seq, failed_at, json, reason) VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(super::fresh_id())
    .bind(conversation)
    .bind(event.seq as i64)
    .bind(clock::now())
    .bind(plain(&json))
    .bind(plain(reason))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

impl Store {
    /// How many there are.
    pub(crate) async fn failed_events(&self) -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT COUNT(*) FROM failed_event").fetch_one(self.read()).await?)
    }
}
