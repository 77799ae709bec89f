//! Detects a pooler between this server and PostgreSQL that shares connections between transactions.
//! Through it, neither notifications nor session locks work.

use std::pin::pin;
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor as _};

use crate::store::{database_address, new_id};

/// Maximum time until a notification arrives.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time until the database accepts a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// After this time, the log says for what the server waits.
const REPORT_WAIT_AFTER: Duration = Duration::from_secs(2);

/// Whether a session at the database receives notifications. Waits until the database accepts
/// connections. It prepares no statement: those would fail through such a pooler.
pub(crate) async fn has_sessions(url: &str) -> sqlx::Result<bool> {
    let options = PgPoolOptions::new().max_connections(2).acquire_timeout(CONNECT_TIMEOUT);
    let mut connecting = pin!(options.connect(url));
    let pool = match tokio::time::timeout(REPORT_WAIT_AFTER, &mut connecting).await {
        Ok(pool) => pool?,
        Err(_) => {
            tracing::warn!(
                "the database at {} does not respond; waiting for {} s",
                database_address(url),
                CONNECT_TIMEOUT.as_secs()
            );
            connecting.await?
        }
    };
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
