//! Quarantined events: the store rejects them individually, while it accepts others.

use conversation::event::EventEnvelope;

use super::{Error, Result, Store, Transaction};
use crate::clock;

/// Stores an event as text, with the reason of its rejection. It is stored once, even if an earlier
/// COMMIT stored it and the response was lost.
pub(crate) async fn insert(
    tx: &mut Transaction,
    conversation: &str,
    event: &EventEnvelope,
    reason: &str,
) -> Result<()> {
    // PostgreSQL accepts no NUL in a text, and a NUL may be the reason of the rejection.
    let plain = |text: &str| text.replace('\0', "\u{fffd}");
    let json = serde_json::to_string(&event.event)
        .map_err(|e| Error::CorruptRow("event", e.to_string()))?;
    sqlx::query(
        "INSERT INTO failed_event (id, conversation, seq, failed_at, json, reason) SELECT $1, $2, \
         $3, $4, $5, $6 \
         WHERE NOT EXISTS (SELECT 1 FROM failed_event WHERE conversation = $2 AND seq = $3)",
    )
    .bind(super::new_id())
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
    /// Number of quarantined events.
    pub(crate) async fn failed_event_count(&self) -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT COUNT(*) FROM failed_event")
            .fetch_one(self.reader_pool())
            .await?)
    }
}

#[cfg(test)]
mod tests {
    use conversation::event::Event;
    use conversation::time::Time;

    use super::*;
    use crate::store::{DatabaseLocation, Lock};

    #[tokio::test]
    async fn an_event_that_is_kept_twice_is_there_once() {
        let file =
            std::env::temp_dir().join(format!("visavis-failed-event-{}.db", std::process::id()));
        let store = Store::open(DatabaseLocation::File(&file)).await.unwrap();
        for seq in [7, 7, 8] {
            let event = EventEnvelope { seq, at: Time::ZERO, event: Event::CallEnded };
            let mut tx = store.begin_write(Lock::Rows).await.unwrap();
            insert(&mut tx, "call", &event, "refused").await.unwrap();
            tx.commit().await.unwrap();
        }
        assert_eq!(store.failed_event_count().await.unwrap(), 2);
        store.close().await;
        std::fs::remove_file(file).unwrap();
    }
}
