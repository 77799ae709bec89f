//! Detects a pooler between this server and PostgreSQL that shares connections between transactions.
//! Through it, neither notifications nor session locks work.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor as _};

use crate::store::new_id;

/// Maximum time until a notification arrives.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a session at the database receives notifications. Waits until the database accepts
/// connections. It prepares no statement: those would fail through such a pooler.
pub(crate) async fn has_sessions(url: &str) -> sqlx::Result<bool> {
    let pool = PgPoolOptions::new().max_connections(2).connect(url).await?;
    let channel = format!("visavis_check_{}", new_id());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(&channel).await?;
    let notify = sqlx::raw_sql(AssertSqlSafe(format!("NOTIFY \"{channel}\"")));
    match pool.execute(notify).await {
        // The notification arrived here, because the pooler used one session for both.
        Err(sqlx::Error::Protocol(_)) => return Ok(false),
        result => result?,
    };
    let received = tokio::time::timeout(TIMEOUT, listener.recv()).await;
    drop(listener);
    pool.close().await;
    Ok(received.is_ok_and(|received| received.is_ok()))
}
