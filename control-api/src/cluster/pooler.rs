//! Detects a pooler between this server and PostgreSQL that shares connections between transactions.
//! Through it, neither notifications nor session locks work.

use std::time::Duration;

use sqlx::postgres::PgListener;

use crate::store::{Store, new_id};

/// Maximum time until a notification arrives.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a session at the database receives notifications.
pub(crate) async fn has_sessions(store: &Store, url: &str) -> sqlx::Result<bool> {
    let channel = format!("visavis_check_{}", new_id());
    let mut listener = PgListener::connect(url).await?;
    listener.listen(&channel).await?;
    sqlx::query("SELECT pg_notify($1, '')").bind(&channel).execute(store.reader_pool()).await?;
    Ok(tokio::time::timeout(TIMEOUT, listener.recv()).await.is_ok_and(|received| received.is_ok()))
}
