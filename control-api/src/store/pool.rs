//! Pools of connections to the database.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use sqlx::any::AnyPoolOptions;
use sqlx::{AnyPool, AssertSqlSafe, Connection as _, Executor as _};

use super::Db;

/// Maximum wait for a connection to SQLite.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for PostgreSQL, which may be unreachable: a request is answered within 2 s.
const SHARED_ACQUIRE_TIMEOUT: Duration = Duration::from_millis(1500);
/// Maximum wait for the first connection of a pool, while the server starts.
const FIRST_CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the start polls whether a connection is idle.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum response time of a PostgreSQL connection before it may be used again.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of read connections.
pub(super) const MAX_READERS: u32 = 8;
/// Maximum number of write connections to PostgreSQL, in addition to that of the events.
pub(super) const MAX_SHARED_WRITERS: u32 = 3;
/// Run on each new connection to PostgreSQL. The session of a machine that is lost while the
/// database sends to it ends after 5 s. A statement outside of a transaction waits for a lock as
/// long as one in a transaction (`lock::BEGIN`).
const POSTGRES_SESSION: &str = "SET tcp_user_timeout = 5000; SET tcp_keepalives_idle = 2; \
    SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 3; \
    SET lock_timeout = '1500ms'; SET statement_timeout = '10s'";
/// The timeout is for a second process: `visavis keys` beside a running server. Deleted content is
/// overwritten.
const SQLITE_PRAGMAS: &str = "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; \
    PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON";

/// A pool for write transactions. It is replaced if its connections do not become free: statements
/// on them may never be answered. Cheap to clone.
#[derive(Clone)]
pub(super) struct WriterPool {
    pool: Arc<RwLock<AnyPool>>,
    is_replaceable: bool,
}

impl WriterPool {
    /// The pool of a file, whose connection cannot be stuck.
    pub(super) fn of_file(pool: AnyPool) -> Self {
        Self { pool: Arc::new(RwLock::new(pool)), is_replaceable: false }
    }

    /// A pool of connections over a network.
    pub(super) fn of_network(pool: AnyPool) -> Self {
        Self { pool: Arc::new(RwLock::new(pool)), is_replaceable: true }
    }

    /// The present pool.
    pub(super) fn get(&self) -> AnyPool {
        self.pool.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts a transaction with these statements.
    pub(super) async fn begin(
        &self,
        statements: String,
    ) -> sqlx::Result<sqlx::Transaction<'static, Db>> {
        let pool = self.get();
        let result = pool.begin_with(AssertSqlSafe(statements)).await;
        if self.is_replaceable && matches!(result, Err(sqlx::Error::PoolTimedOut)) {
            self.replace(&pool);
        }
        result
    }

    /// Opens a new pool in place of one whose connections do not become free. An old connection is
    /// closed once it is free.
    fn replace(&self, stuck: &AnyPool) {
        let mut pool = self.pool.write().unwrap_or_else(PoisonError::into_inner);
        // Several tasks may have waited for the pool; only the first one replaces it.
        if !stuck.is_closed() {
            // The pool is closed from here on. Statements in progress on it continue.
            drop(stuck.close());
            *pool = stuck.options().clone().connect_lazy_with((*stuck.connect_options()).clone());
        }
    }
}

/// Options of a pool for PostgreSQL.
pub(super) fn postgres_pool(max_connections: u32) -> AnyPoolOptions {
    AnyPoolOptions::new()
        .max_connections(max_connections)
        .acquire_timeout(SHARED_ACQUIRE_TIMEOUT)
        .after_release(|connection, _| Box::pin(is_responsive(connection)))
        .after_connect(|connection, _| {
            Box::pin(async move {
                connection.execute(sqlx::raw_sql(POSTGRES_SESSION)).await?;
                Ok(())
            })
        })
}

/// Opens the first connection of a pool for PostgreSQL, and waits until a statement can have it: a
/// pool would open a second one meanwhile. Repeats attempts that take too long, because a busy
/// database may need more than [`SHARED_ACQUIRE_TIMEOUT`] for a connection.
pub(super) async fn open_connection(pool: &AnyPool) -> sqlx::Result<()> {
    let deadline = Instant::now() + FIRST_CONNECTION_TIMEOUT;
    loop {
        match pool.acquire().await {
            // It is idle after its `after_release`, unless that closes it.
            Ok(connection) => drop(connection),
            Err(sqlx::Error::PoolTimedOut) if Instant::now() < deadline => continue,
            Err(error) => return Err(error),
        }
        while pool.size() > 0 && pool.num_idle() == 0 {
            tokio::time::sleep(IDLE_POLL_INTERVAL).await;
        }
        // A connection that is closed each time may still serve statements.
        if pool.num_idle() > 0 || Instant::now() >= deadline {
            return Ok(());
        }
    }
}

/// Options of the pool of the one writer of an SQLite file.
pub(super) fn sqlite_writer_pool() -> AnyPoolOptions {
    AnyPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .after_release(|connection, _| Box::pin(is_reusable(connection)))
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .after_connect(|connection, _| {
            Box::pin(async move {
                connection.execute(sqlx::raw_sql(SQLITE_PRAGMAS)).await?;
                Ok(())
            })
        })
}

/// Options of the pool of the readers of an SQLite file.
pub(super) fn sqlite_reader_pool() -> AnyPoolOptions {
    AnyPoolOptions::new()
        .max_connections(MAX_READERS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .min_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}

/// Whether a connection may be used again. After a COMMIT or ROLLBACK that failed, the driver takes
/// the transaction for open and rejects every further one.
async fn is_reusable(connection: &mut sqlx::AnyConnection) -> sqlx::Result<bool> {
    // The ping also runs a pending rollback.
    connection.ping().await?;
    Ok(!connection.is_in_transaction())
}

/// The same for a connection over a network. A cancelled statement may still hang, and a lost peer
/// never responds. Such a connection is closed, so that a new one can be opened.
async fn is_responsive(connection: &mut sqlx::AnyConnection) -> sqlx::Result<bool> {
    match tokio::time::timeout(PING_TIMEOUT, is_reusable(connection)).await {
        Ok(whole) => whole,
        Err(late) => Err(sqlx::Error::Io(late.into())),
    }
}

#[cfg(test)]
mod tests {
    use sqlx::ConnectOptions as _;
    use sqlx::any::AnyConnectOptions;
    use tokio::net::TcpListener;
    use url::Url;

    use super::*;

    #[tokio::test]
    async fn the_first_connection_is_tried_again_if_the_database_is_slow() {
        sqlx::any::install_default_drivers();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = Url::parse(&format!("postgres://visavis@{address}/db?sslmode=disable")).unwrap();
        let pool = postgres_pool(1).connect_lazy_with(AnyConnectOptions::from_url(&url).unwrap());
        let server = tokio::spawn(async move {
            // A server that never answers, then one that cannot be used.
            let silent = listener.accept().await.unwrap();
            let (second, _) = listener.accept().await.unwrap();
            drop(second);
            silent
        });
        let error = open_connection(&pool).await.unwrap_err();
        assert!(!matches!(error, sqlx::Error::PoolTimedOut), "{error}");
        server.await.unwrap();
    }
}
