//! A session of this server at the database. As long as it lasts, the server holds an advisory
//! lock, so that others notice within seconds that the process has ended. One server also holds the
//! lock of the leader, who declares others lost.
//!
//! Other connections come and go. This one is only for the locks.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::clock::Micros;
use crate::store::lock_key;
use crate::store::ownership::NOW;

/// The locks of a server.
pub(crate) struct Presence {
    connection: PgConnection,
    server_key: i64,
    /// When the server's lock was taken, by the database's clock; `None` while a session before it
    /// still has the lock.
    since: Option<Micros>,
    is_leader: bool,
}

/// What the leader sees.
pub(crate) struct Observation {
    /// Keys of all advisory locks.
    held: HashSet<i64>,
    /// When this server's lock was taken.
    pub(crate) since: Micros,
}

impl Observation {
    /// The sessions of these servers exist.
    #[cfg(test)]
    pub(super) fn of(servers: &[&str], since: Micros) -> Self {
        Self { held: servers.iter().map(|server| server_key(server)).collect(), since }
    }

    /// Whether a session of this server exists.
    pub(crate) fn is_present(&self, server: &str) -> bool {
        self.held.contains(&server_key(server))
    }
}

fn server_key(server: &str) -> i64 {
    lock_key(&format!("visavis server {server}"))
}

fn leader_key() -> i64 {
    lock_key("visavis leader")
}

impl Presence {
    /// Opens a session. It is checked several times in `lease`.
    pub(crate) async fn open(url: &str, server: &str, lease: Duration) -> sqlx::Result<Self> {
        let mut connection = PgConnection::connect(url).await?;
        // The session of a leader that is frozen or cut off ends, so that another server becomes
        // the leader. It outlives the lease: its end then does not look like that of the process.
        // The times of other sessions (`POSTGRES_SESSION`) are too short for this one.
        let idle = lease * 3 / 2;
        let (idle_ms, idle_s) = (idle.as_millis(), idle.as_secs().max(1));
        let keepalive = AssertSqlSafe(format!(
            "SET tcp_user_timeout = {idle_ms}; SET tcp_keepalives_idle = {idle_s}; \
             SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 3"
        ));
        sqlx::raw_sql(keepalive).execute(&mut connection).await?;
        let sql = AssertSqlSafe(format!("SET idle_session_timeout = {idle_ms}"));
        if let Err(error) = sqlx::raw_sql(sql).execute(&mut connection).await {
            // PostgreSQL 13 does not know the setting.
            tracing::warn!(%error, "sessions at the database have no time limit");
        }
        Ok(Self { connection, server_key: server_key(server), since: None, is_leader: false })
    }

    /// Takes the locks that are free. What the leader sees, if this server is the leader.
    pub(crate) async fn check(&mut self) -> sqlx::Result<Option<Observation>> {
        if self.since.is_none() && self.try_lock(self.server_key).await? {
            let sql = AssertSqlSafe(format!("SELECT {NOW}"));
            self.since = Some(sqlx::query_scalar(sql).fetch_one(&mut self.connection).await?);
        }
        let Some(since) = self.since else { return Ok(None) };
        self.is_leader = self.is_leader || self.try_lock(leader_key()).await?;
        // Also shows that the session still exists.
        let locks: Vec<(i64, i64)> = sqlx::query_as(
            "SELECT CAST(classid AS BIGINT), CAST(objid AS BIGINT) FROM pg_locks \
             WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND database = \
             (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .fetch_all(&mut self.connection)
        .await?;
        // The halves of a key.
        let held = locks.into_iter().map(|(high, low)| (high << 32) | low).collect();
        Ok(self.is_leader.then_some(Observation { held, since }))
    }

    async fn try_lock(&mut self, key: i64) -> sqlx::Result<bool> {
        sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
            .bind(key)
            .fetch_one(&mut self.connection)
            .await
    }
}
