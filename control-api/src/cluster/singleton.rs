//! Work that one of the servers on a database does: the one that holds a lock.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::time::timeout;

use crate::store::lock_key;

/// Time for a step at the database.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);

/// A lock of one server, held by a session at the database. Alone, a server always holds it.
pub(crate) struct Singleton {
    database_url: Option<String>,
    key: i64,
    session: Option<PgConnection>,
}

impl Singleton {
    /// `name` identifies the work.
    pub(crate) fn new(database_url: Option<String>, name: &str) -> Self {
        Self { database_url, key: lock_key(&format!("visavis {name}")), session: None }
    }

    /// Whether this server holds the lock, or takes it now. False while the database does not
    /// respond. `interval`: time between two calls.
    pub(crate) async fn is_holder(&mut self, interval: Duration) -> bool {
        let Some(url) = self.database_url.clone() else { return true };
        let held = match self.session.take() {
            Some(session) => timeout(STEP_TIMEOUT, Self::keep(session)).await,
            None => timeout(STEP_TIMEOUT, Self::take(&url, self.key, interval)).await,
        };
        match held {
            Ok(Ok(session)) => self.session = session,
            Ok(Err(error)) => tracing::debug!(%error, "a lock of the fleet cannot be taken"),
            Err(_) => tracing::debug!("a lock of the fleet cannot be taken: timeout"),
        }
        self.session.is_some()
    }

    /// Gives the lock to another server. Alone, a server keeps it.
    pub(crate) fn release(&mut self) {
        // The lock ends with its session.
        self.session = None;
    }

    /// Whether other servers may do the work.
    pub(crate) fn is_shared(&self) -> bool {
        self.database_url.is_some()
    }

    /// The session with the lock still exists.
    async fn keep(mut session: PgConnection) -> sqlx::Result<Option<PgConnection>> {
        sqlx::raw_sql("SELECT 1").execute(&mut session).await?;
        Ok(Some(session))
    }

    async fn take(url: &str, key: i64, interval: Duration) -> sqlx::Result<Option<PgConnection>> {
        let mut session = PgConnection::connect(url).await?;
        // The session of a server that is frozen or cut off ends.
        let limit = (interval * 10).as_millis();
        let sql = AssertSqlSafe(format!("SET tcp_user_timeout = {limit}"));
        sqlx::raw_sql(sql).execute(&mut session).await?;
        let sql = AssertSqlSafe(format!("SET idle_session_timeout = {limit}"));
        if let Err(error) = sqlx::raw_sql(sql).execute(&mut session).await {
            // PostgreSQL 13 does not know the setting.
            tracing::debug!(%error, "sessions at the database have no time limit");
        }
        let is_taken: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
            .bind(key)
            .fetch_one(&mut session)
            .await?;
        Ok(is_taken.then_some(session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_without_a_shared_database_does_the_work() {
        let mut singleton = Singleton::new(None, "test");
        assert!(singleton.is_holder(Duration::from_secs(1)).await);
        let unreachable = Some("postgres://127.0.0.1:1/none".to_owned());
        let mut singleton = Singleton::new(unreachable, "test");
        assert!(!singleton.is_holder(Duration::from_secs(1)).await);
    }
}
