//! The store: SQLite in the data folder (WAL), or PostgreSQL, which several servers may share. The
//! same SQL runs on both.
//!
//! SQLite has one writer at a time. In PostgreSQL a write transaction takes a [`Lock`] that all
//! servers share, or locks the rows that it reads. On both, what it reads under a lock stays valid
//! until it commits. Each table has its own file here.

#[macro_use]
mod row;

pub(crate) mod agent;
pub(crate) mod api_key;
pub(crate) mod background;
mod command;
pub(crate) mod conversation;
mod copy;
pub(crate) mod crash_points;
pub(crate) mod credential;
pub(crate) mod custom_avatar;
pub(crate) mod delivery;
pub(crate) mod erased;
pub(crate) mod event;
pub(crate) mod failed_event;
pub(crate) mod fairness;
pub(crate) mod framing;
pub(crate) mod guardrail;
pub(crate) mod headers;
mod health;
pub(crate) mod idempotency;
pub(crate) mod json_record;
pub(crate) mod knowledge_base;
pub(crate) mod livekit_room;
mod lock;
pub(crate) mod mcp;
pub(crate) mod meeting;
pub(crate) mod message;
mod migrations;
pub(crate) mod ownership;
mod page;
mod pool;
pub(crate) mod providers;
pub(crate) mod quota;
pub(crate) mod recording;
pub(crate) mod renewal;
pub(crate) mod secrets;
pub(crate) mod server;
pub(crate) mod session;
mod sql;
pub(crate) mod tool;
mod unreadable;
pub(crate) mod variant;
pub(crate) mod vault;
pub(crate) mod video;
pub(crate) mod video_job;
mod wal;

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyPool, ConnectOptions as _, Connection as _};
use tokio::sync::Notify;
use url::Url;

use health::WriteHealth;
pub(crate) use lock::{Lock, lock_key};
pub(crate) use page::Page;

use pool::{
    MAX_READERS, MAX_SHARED_WRITERS, WriterPool, open_connection, postgres_pool,
    sqlite_reader_pool, sqlite_writer_pool,
};
use sql::SqlBuilder;

use crate::store::crash_points::{CrashHook, CrashPoint};

/// The database behind the store.
pub(crate) type Db = sqlx::Any;

/// A write transaction; rolled back if dropped.
pub(crate) struct Transaction {
    inner: sqlx::Transaction<'static, Db>,
    /// Whether other servers may write too.
    shared: bool,
    crash_hook: Option<CrashHook>,
    health: Arc<WriteHealth>,
    /// Whether it deletes pictures of a person.
    deletes_pictures: bool,
    pictures_deleted: Arc<Notify>,
}

impl Transaction {
    /// Commits the writes.
    pub(crate) async fn commit(self) -> Result<()> {
        CrashPoint::BeforeCommit.notify(self.crash_hook);
        let committed = self.inner.commit().await;
        if self.deletes_pictures {
            // A COMMIT may have taken effect although it reports an error.
            self.pictures_deleted.notify_one();
        }
        committed.map_err(|error| self.health.report_sql_error(&error))?;
        self.health.report_success();
        CrashPoint::AfterCommit.notify(self.crash_hook);
        Ok(())
    }
}

impl Deref for Transaction {
    type Target = <Db as sqlx::Database>::Connection;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inner
    }
}

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database rejected a statement or failed.
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    /// The migrations failed.
    #[error("cannot migrate the database: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// A newer release has migrated the database.
    #[error(
        "a newer release of Visavis has changed the database (schema {found}; this release knows \
         {known}): run that release, or restore a backup of this one"
    )]
    NewerSchema {
        /// Number of a migration that this release does not know.
        found: i64,
        /// Number of the last migration that it knows.
        known: i64,
    },
    /// A row does not hold what was written into it.
    #[error("a row of {0} is corrupt: {1}")]
    CorruptRow(&'static str, String),
    /// No write can start or finish: the disk is full, or the database is unreachable or does not
    /// respond.
    #[error("the store accepts no writes: {0}")]
    Unwritable(String),
    /// The code of an operation panicked, possibly after its COMMIT.
    #[error("the operation panicked")]
    Panicked,
}

impl Error {
    /// Whether the transaction lost to another one, and succeeds when it is repeated.
    pub(crate) fn is_contention(&self) -> bool {
        matches!(self, Self::Sql(error) if lock::is_contention(error))
    }

    /// The reason in one sentence, without the position in the source of PostgreSQL.
    pub(crate) fn describe(&self) -> String {
        let sql = match self {
            Self::Sql(error) => Some(error),
            Self::Migrate(
                sqlx::migrate::MigrateError::Execute(error)
                | sqlx::migrate::MigrateError::ExecuteMigration(error, _),
            ) => Some(error),
            _ => None,
        };
        match sql {
            Some(sqlx::Error::Database(error)) => error.message().to_owned(),
            Some(sqlx::Error::PoolTimedOut) => "it does not respond".to_owned(),
            Some(sqlx::Error::Io(error)) => error.to_string(),
            _ => self.to_string(),
        }
    }

    /// Whether the same write may succeed later: nothing is wrong with it.
    pub(crate) fn is_temporary(&self) -> bool {
        self.is_outage() || self.is_contention()
    }

    /// Whether every other write would have failed too.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::Unwritable(_) => true,
            // No connection became free in time: the statements on all of them hang. A connection
            // that is cut while it is opened is an error of the protocol.
            Self::Sql(
                sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                | sqlx::Error::Protocol(_)
                | sqlx::Error::WorkerCrashed
                | sqlx::Error::PoolClosed
                | sqlx::Error::PoolTimedOut,
            ) => true,
            Self::Sql(sqlx::Error::Database(error)) => {
                error.code().is_some_and(|code| is_outage_code(&code))
            }
            _ => false,
        }
    }
}

/// Whether an error code of a database means that it accepts no writes at all.
fn is_outage_code(code: &str) -> bool {
    match code.parse::<u32>() {
        // Primary result codes of SQLite: busy, read-only, I/O error, full.
        // https://sqlite.org/rescode.html
        Ok(number) if code.len() < 5 => matches!(number % 256, 5 | 8 | 10 | 13),
        // Error codes of PostgreSQL: a read-only transaction, and timeouts of a transaction and a
        // statement, because a late statement is not a rejected one. Also the classes of connection
        // errors, missing resources, operator intervention and system errors.
        // https://www.postgresql.org/docs/current/errcodes-appendix.html
        _ => {
            matches!(code, "25006" | "25P03" | "57014")
                || ["08", "53", "57P", "58"].iter().any(|class| code.starts_with(class))
        }
    }
}

/// Result of an operation of the store.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Where the database is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DatabaseLocation<'a> {
    /// An SQLite file.
    File(&'a Path),
    /// The URL of a PostgreSQL database.
    Url(&'a str),
}

/// The database. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    writers: WriterPool,
    /// Events have a connection of their own in PostgreSQL, so that they do not wait for requests.
    event_writer: WriterPool,
    reader_pool: AnyPool,
    /// Whether other servers may use the database too.
    shared: bool,
    /// Called before and after each commit.
    pub(crate) crash_hook: Option<CrashHook>,
    /// Whether writes succeed.
    pub(crate) health: Arc<WriteHealth>,
    /// Woken by each commit that deletes pictures of a person.
    pictures_deleted: Arc<Notify>,
}

impl Store {
    /// Opens the database and runs the migrations. Creates the file if it does not exist.
    pub(crate) async fn open(location: DatabaseLocation<'_>) -> Result<Self> {
        sqlx::any::install_default_drivers();
        let (write_options, read_options) = match location {
            DatabaseLocation::File(file) => {
                (sqlite_options(file, "rwc")?, sqlite_options(file, "ro")?)
            }
            DatabaseLocation::Url(url) => {
                let url = Url::parse(url).map_err(|e| sqlx::Error::Configuration(e.into()))?;
                (AnyConnectOptions::from_url(&url)?, AnyConnectOptions::from_url(&url)?)
            }
        };
        let shared = matches!(location, DatabaseLocation::Url(_));
        let (writers, event_writer, reader_pool) = if shared {
            // Pools have short timeouts, and the database may be busy while the server starts.
            let patient = AnyPoolOptions::new().max_connections(1);
            let patient = patient.connect_with(write_options.clone()).await?;
            // A newer release may run on the database too. Its migrations only add.
            migrations::migrator().set_ignore_missing(true).run(&patient).await?;
            patient.close().await;
            let pool =
                |connections| postgres_pool(connections).connect_lazy_with(write_options.clone());
            let (writers, event_writer) = (pool(MAX_SHARED_WRITERS), pool(1));
            let readers = pool(MAX_READERS);
            // The first statements do not wait for a connection.
            for pool in [&writers, &readers, &event_writer] {
                open_connection(pool).await?;
            }
            (WriterPool::of_network(writers), WriterPool::of_network(event_writer), readers)
        } else {
            let writer = sqlite_writer_pool().connect_with(write_options).await?;
            migrations::migrator().run(&writer).await.map_err(migrations::error)?;
            let readers = sqlite_reader_pool().connect_with(read_options).await?;
            let writers = WriterPool::of_file(writer);
            (writers.clone(), writers, readers)
        };
        Ok(Self {
            writers,
            event_writer,
            reader_pool,
            shared,
            crash_hook: None,
            health: Arc::default(),
            pictures_deleted: Arc::default(),
        })
    }

    /// Number of quarantined events in a database. Read-only. 0 for the database of an older
    /// server, which has no table for them.
    pub(crate) async fn count_failed_events(location: DatabaseLocation<'_>) -> Result<i64> {
        let mut connection = connect_reader(location).await?;
        let counted = sqlx::query_scalar("SELECT COUNT(*) FROM failed_event")
            .fetch_one(&mut connection)
            .await;
        connection.close().await?;
        match counted {
            // An older release has not created the table.
            Err(sqlx::Error::Database(error)) if is_missing_table(&*error) => Ok(0),
            other => Ok(other?),
        }
    }

    /// Whether the role of a PostgreSQL database may create the tables of this release.
    pub(crate) async fn may_create_tables(url: &str) -> Result<bool> {
        let mut connection = connect_reader(DatabaseLocation::Url(url)).await?;
        let may: Option<bool> =
            sqlx::query_scalar("SELECT has_schema_privilege(current_schema(), 'CREATE')")
                .fetch_one(&mut connection)
                .await?;
        connection.close().await?;
        Ok(may.unwrap_or(false))
    }

    /// Whether a server has used the database. Read-only.
    pub(crate) async fn has_tables(location: DatabaseLocation<'_>) -> Result<bool> {
        let mut connection = connect_reader(location).await?;
        let found = sqlx::query("SELECT id FROM workspace LIMIT 1");
        let found = found.fetch_optional(&mut connection).await;
        connection.close().await?;
        match found {
            Err(sqlx::Error::Database(error)) if is_missing_table(&*error) => Ok(false),
            other => other.map(|_| true).map_err(Error::from),
        }
    }

    /// Id and name of each workspace of a database, also of an older server. Read-only.
    pub(crate) async fn read_workspaces(
        location: DatabaseLocation<'_>,
    ) -> Result<Vec<(String, String)>> {
        let mut connection = connect_reader(location).await?;
        let rows = sqlx::query_as("SELECT id, name FROM workspace").fetch_all(&mut connection);
        let rows = rows.await;
        connection.close().await?;
        match rows {
            // No server has used the database yet.
            Err(sqlx::Error::Database(error)) if is_missing_table(&*error) => Ok(Vec::new()),
            other => Ok(other?),
        }
    }

    /// Whether other servers may use the database too.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Starts a write transaction.
    ///
    /// # Errors
    /// Fails at once while writes fail. The event writer detects when they succeed again.
    pub(crate) async fn begin_write(&self, lock: Lock<'_>) -> Result<Transaction> {
        match self.health.failure_reason() {
            Some(reason) => Err(Error::Unwritable(reason)),
            None => self.begin(&self.writers, lock).await,
        }
    }

    /// Starts a write transaction of the event writer, even if the last write failed.
    pub(crate) async fn begin_event_write(&self) -> Result<Transaction> {
        self.begin(&self.event_writer, Lock::Rows).await
    }

    async fn begin(&self, pool: &WriterPool, lock: Lock<'_>) -> Result<Transaction> {
        let statement = if self.shared { lock.begin() } else { "BEGIN IMMEDIATE".to_owned() };
        let inner =
            pool.begin(statement).await.map_err(|error| match lock::is_contention(&error) {
                true => Error::Sql(error),
                false => self.health.report_sql_error(&error),
            })?;
        Ok(Transaction {
            inner,
            shared: self.shared,
            crash_hook: self.crash_hook,
            health: Arc::clone(&self.health),
            deletes_pictures: false,
            pictures_deleted: Arc::clone(&self.pictures_deleted),
        })
    }

    /// Writes a row and removes it, to check whether writes succeed again. It is a new row, so that
    /// no other transaction has a lock on it.
    pub(crate) async fn probe(&self) -> Result<()> {
        let mut tx = self.begin_event_write().await?;
        let name = format!("probe {}", new_id());
        for sql in [
            "INSERT INTO setting (name, value) VALUES ($1, '')",
            "DELETE FROM setting WHERE name = $1",
        ] {
            sqlx::query(sql)
                .bind(&name)
                .execute(&mut *tx)
                .await
                .map_err(|error| self.health.report_sql_error(&error))?;
        }
        tx.commit().await
    }

    /// Starts a read transaction: its statements see one state of the database. A page and the
    /// number of all matches are read in one.
    async fn begin_read(&self) -> Result<sqlx::Transaction<'static, Db>> {
        let statement =
            if self.shared { "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" } else { "BEGIN" };
        Ok(self.reader_pool.begin_with(statement).await?)
    }

    /// The pool for reads.
    pub(crate) fn reader_pool(&self) -> &AnyPool {
        &self.reader_pool
    }

    /// Checks that the database responds.
    pub(crate) async fn ping(&self) -> Result<()> {
        sqlx::query("SELECT 1").execute(&self.reader_pool).await?;
        Ok(())
    }

    /// Closes all connections. The last one checkpoints the WAL into the file.
    pub(crate) async fn close(&self) {
        self.reader_pool.close().await;
        self.event_writer.get().close().await;
        self.writers.get().close().await;
    }

    /// The value that the server stored under `name`.
    pub(crate) async fn setting(&self, name: &str) -> Result<Option<String>> {
        Ok(sqlx::query_scalar("SELECT value FROM setting WHERE name = $1")
            .bind(name)
            .fetch_optional(&self.reader_pool)
            .await?)
    }

    /// Stores `value` under `name` unless a value exists; returns the stored value.
    pub(crate) async fn get_or_insert_setting(&self, name: &str, value: &str) -> Result<String> {
        let mut tx = self.begin_write(Lock::Rows).await?;
        sqlx::query(
            "INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
        )
        .bind(name)
        .bind(value)
        .execute(&mut *tx)
        .await?;
        let known = sqlx::query_scalar("SELECT value FROM setting WHERE name = $1")
            .bind(name)
            .fetch_one(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(known)
    }

    /// Stores `value` under `name`.
    pub(crate) async fn set_setting(&self, name: &str, value: &str) -> Result<()> {
        let mut tx = self.begin_write(Lock::Rows).await?;
        sqlx::query(
            "INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE \
             SET value = excluded.value",
        )
        .bind(name)
        .bind(value)
        .execute(&mut *tx)
        .await?;
        tx.commit().await
    }
}

/// Host, port and name of a database, without the credentials of its URL.
#[must_use]
pub fn database_address(url: &str) -> String {
    match Url::parse(url) {
        Ok(url) => format!(
            "{}:{}{}",
            url.host_str().unwrap_or("localhost"),
            url.port().unwrap_or(5432),
            url.path()
        ),
        Err(_) => "an invalid URL".to_owned(),
    }
}

/// Maximum time until a database accepts a connection for a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that does not migrate the database.
async fn connect_reader(location: DatabaseLocation<'_>) -> Result<sqlx::AnyConnection> {
    sqlx::any::install_default_drivers();
    let options = match location {
        DatabaseLocation::File(file) => sqlite_options(file, "ro")?,
        DatabaseLocation::Url(url) => {
            let url = Url::parse(url).map_err(|e| sqlx::Error::Configuration(e.into()))?;
            AnyConnectOptions::from_url(&url)?
        }
    };
    tokio::time::timeout(CHECK_TIMEOUT, sqlx::AnyConnection::connect_with(&options))
        .await
        .map_err(|_| sqlx::Error::PoolTimedOut)?
        .map_err(Error::from)
}

/// Options for a connection to a file, opened in an SQLite `mode`.
fn sqlite_options(file: &Path, mode: &str) -> Result<AnyConnectOptions> {
    let invalid = |why: &'static str| sqlx::Error::Configuration(why.into());
    let file = std::path::absolute(file).map_err(sqlx::Error::Io)?;
    let url = Url::from_file_path(file)
        .map_err(|()| invalid("the path of the data folder is invalid"))?;
    let url = url.as_str().replacen("file:", "sqlite:", 1) + "?mode=" + mode;
    let url = Url::parse(&url).map_err(|_| invalid("the path of the data folder is invalid"))?;
    Ok(AnyConnectOptions::from_url(&url)?)
}

/// A new id: a UUID (version 7) that increases with time, so that rows created together are
/// adjacent.
pub(crate) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// The id in its stored form, if `text` is a UUID.
pub(crate) fn normalize_id(text: &str) -> Option<String> {
    text.parse::<::conversation::id::ConversationId>().ok().map(|id| id.to_string())
}

/// Whether a statement failed because its table does not exist.
fn is_missing_table(error: &dyn sqlx::error::DatabaseError) -> bool {
    // 42P01: undefined_table of PostgreSQL. SQLite has no code of its own for it.
    error.code().is_some_and(|code| code == "42P01") || error.message().starts_with("no such table")
}

#[cfg(test)]
mod tests {
    use sqlx::Executor as _;

    use super::*;

    /// A database in a folder of this test only.
    async fn open_test_store(name: &str) -> (Store, std::path::PathBuf) {
        let file =
            std::env::temp_dir().join(format!("visavis-store-{name}-{}.db", std::process::id()));
        (Store::open(DatabaseLocation::File(&file)).await.unwrap(), file)
    }

    #[tokio::test]
    async fn a_read_transaction_sees_one_state_of_the_database() {
        let (store, file) = open_test_store("snapshot").await;
        let settings = async |executor: &mut sqlx::AnyConnection| {
            SqlBuilder::new("SELECT COUNT(*) FROM setting").fetch_count(executor).await.unwrap()
        };
        let mut snapshot = store.begin_read().await.unwrap();
        let before = settings(&mut snapshot).await;
        store.set_setting("added", "meanwhile").await.unwrap();
        assert_eq!(settings(&mut snapshot).await, before);
        snapshot.commit().await.unwrap();
        let mut later = store.begin_read().await.unwrap();
        assert_eq!(settings(&mut later).await, before + 1);
        drop((later, store));
        let _ = std::fs::remove_file(file);
    }

    #[tokio::test]
    async fn after_a_commit_that_failed_the_next_write_is_taken() {
        let (store, file) = open_test_store("commit").await;
        for round in 0..3 {
            let mut tx = store.begin_write(Lock::Rows).await.unwrap();
            // SQLite does this itself when the disk is full: the COMMIT after it fails, and so does
            // the ROLLBACK after that.
            tx.execute("ROLLBACK").await.unwrap();
            assert!(matches!(tx.commit().await, Err(Error::Unwritable(_))));
            assert!(
                matches!(store.begin_write(Lock::Rows).await, Err(Error::Unwritable(_))),
                "reported at once"
            );
            assert!(store.health.failure_reason().is_some());
            store.probe().await.unwrap();
            assert_eq!(store.health.failure_reason(), None);
            store.set_setting("round", &round.to_string()).await.unwrap();
            assert_eq!(store.setting("round").await.unwrap(), Some(round.to_string()));
        }
        store.close().await;
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn an_outage_is_told_from_a_refusal_by_its_code() {
        for code in ["13", "778", "8", "517", "53100", "25006", "08006", "57014", "57P01", "58030"]
        {
            assert!(is_outage_code(code), "{code}");
        }
        assert!(Error::from(sqlx::Error::PoolTimedOut).is_outage());
        for code in ["19", "1811", "23505", "22021", "22P05", "25001", "40P01", "42P01", "55P03"] {
            assert!(!is_outage_code(code), "{code}");
        }
    }

    #[tokio::test]
    async fn a_transaction_that_is_dropped_half_way_leaves_a_good_connection() {
        let (store, file) = open_test_store("drop").await;
        for _ in 0..3 {
            let mut tx = store.begin_write(Lock::Rows).await.unwrap();
            tx.execute("INSERT INTO setting (name, value) VALUES ('half', '1')").await.unwrap();
            drop(tx);
            assert_eq!(store.setting("half").await.unwrap(), None);
        }
        store.set_setting("whole", "1").await.unwrap();
        assert_eq!(store.health.failure_reason(), None);
        store.close().await;
        std::fs::remove_file(file).unwrap();
    }
}
