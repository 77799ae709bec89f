//! The store: SQLite in the data folder (WAL), or PostgreSQL, which several servers may share. One SQL suits both.
//!
//! There is one writer at a time, in SQLite by its lock and in PostgreSQL by an advisory lock that all servers take: whatever a transaction
//! reads stays true until it commits, on either. Each table has a file of its own here.

#[macro_use]
mod row;

mod command;
pub(crate) mod conversation;
pub(crate) mod custom_avatar;
pub(crate) mod delivery;
pub(crate) mod document;
pub(crate) mod erased;
pub(crate) mod event;
pub(crate) mod failed_event;
mod health;
pub(crate) mod kb;
pub(crate) mod key;
mod migrations;
mod page;
pub(crate) mod quota;
pub(crate) mod server;
pub(crate) mod session;
mod sql;
pub(crate) mod turn;

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyPool, ConnectOptions as _, Connection as _, Executor as _};
use url::Url;

use health::Health;
pub(crate) use page::Page;
use sql::Sql;

use crate::watch::{Moment, Watch};

/// The database behind the store.
pub(crate) type Db = sqlx::Any;

/// A transaction that writes; dropped, it is undone.
pub(crate) struct Transaction {
    inner: sqlx::Transaction<'static, Db>,
    watch: Option<Watch>,
    health: Arc<Health>,
}

impl Transaction {
    /// Keeps what was written.
    pub(crate) async fn commit(self) -> Result<()> {
        Moment::BeforeWrite.tell(self.watch);
        self.inner.commit().await.map_err(|error| self.health.failed(&error))?;
        self.health.recovered();
        Moment::AfterWrite.tell(self.watch);
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

/// The store failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database refused or broke.
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    /// The tables could not be brought up to date.
    #[error("the database cannot be brought up to date: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// A row does not hold what was written into it.
    #[error("a row of {0} is damaged: {1}")]
    Damaged(&'static str, String),
    /// No write can begin or end: the disk is full, or the database is away or does not answer.
    #[error("the store takes no writes: {0}")]
    Unwritable(String),
    /// The code of an operation panicked, perhaps behind its COMMIT.
    #[error("the code of this server panicked")]
    Panicked,
}

impl Error {
    /// Whether no other write would have been taken either.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::Unwritable(_) => true,
            // No connection became free in time: the statements on all of them hang.
            Self::Sql(
                sqlx::Error::Io(_)
                | sqlx::Error::WorkerCrashed
                | sqlx::Error::PoolClosed
                | sqlx::Error::PoolTimedOut,
            ) => true,
            Self::Sql(sqlx::Error::Database(error)) => error.code().is_some_and(|code| is_outage(&code)),
            _ => false,
        }
    }
}

/// Whether a database's code says that it takes no writes at all.
fn is_outage(code: &str) -> bool {
    match code.parse::<u32>() {
        // Primary result codes of SQLite: busy, read-only, I/O error, full. https://sqlite.org/rescode.html
        Ok(number) if code.len() < 5 => matches!(number % 256, 5 | 8 | 10 | 13),
        // Of PostgreSQL: a read-only transaction; time-outs of a transaction, a lock and a statement, because what is late is not refused;
        // and the classes of lost connections, missing resources, operators and the system.
        // https://www.postgresql.org/docs/current/errcodes-appendix.html
        _ => {
            matches!(code, "25006" | "25P03" | "55P03" | "57014")
                || ["08", "53", "57P", "58"].iter().any(|class| code.starts_with(class))
        }
    }
}

/// What a question to the store yields.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Where the database is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// A file of SQLite's.
    File(&'a Path),
    /// The URL of a PostgreSQL database.
    Url(&'a str),
}

/// Number of the lock that a writing transaction holds in PostgreSQL: any number that no other program of the database uses.
const WRITER: i64 = 0x7669_7361_7669_7300;
/// Longest wait for a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Begins a transaction that writes in PostgreSQL, with limits for the wait for a lock, for a statement, and for a client that no longer
/// answers. They are set for the transaction alone, because a pooler may share the connection.
const BEGIN: &str = "BEGIN; SET LOCAL lock_timeout = '10s'; SET LOCAL statement_timeout = '20s'; SET LOCAL idle_in_transaction_session_timeout = '60s'";
/// Time that a connection to PostgreSQL has to answer before it may be used again.
const ANSWER: Duration = Duration::from_secs(5);
/// Connections that read.
const READERS: u32 = 8;

/// The database. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    /// Where to write. In PostgreSQL it is replaced when its connection does not become free: a statement on it may never be answered.
    writer: Arc<RwLock<AnyPool>>,
    readers: AnyPool,
    /// Whether other servers may use it too.
    shared: bool,
    /// Told before and after each commit.
    pub(crate) watch: Option<Watch>,
    /// Whether writes are taken.
    pub(crate) health: Arc<Health>,
}

impl Store {
    /// Opens the database, brings its tables up to date. A file is made if absent.
    pub(crate) async fn open(place: Place<'_>) -> Result<Self> {
        sqlx::any::install_default_drivers();
        let (writer, readers) = match place {
            Place::File(file) => (sqlite(file, "rwc")?, sqlite(file, "ro")?),
            Place::Url(url) => {
                let url = Url::parse(url).map_err(|e| sqlx::Error::Configuration(e.into()))?;
                (AnyConnectOptions::from_url(&url)?, AnyConnectOptions::from_url(&url)?)
            }
        };
        let shared = matches!(place, Place::Url(_));
        let mut writers = AnyPoolOptions::new().max_connections(1);
        let mut options = AnyPoolOptions::new().max_connections(READERS);
        if shared {
            writers = writers.after_release(|connection, _| Box::pin(answers(connection)));
            options = options.after_release(|connection, _| Box::pin(answers(connection)));
        } else {
            writers = writers.after_release(|connection, _| Box::pin(is_whole(connection)));
            options =
                options.min_connections(1).idle_timeout(None).max_lifetime(None).test_before_acquire(false);
            writers = writers.idle_timeout(None).max_lifetime(None).test_before_acquire(false).after_connect(
                |connection, _| {
                    Box::pin(async move {
                        // The time-out is for the second process: `visavis keys` beside a running server.
                        let pragmas = "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL";
                        connection.execute(sqlx::raw_sql(pragmas)).await?;
                        Ok(())
                    })
                },
            );
        }
        let writer = writers.acquire_timeout(PATIENCE).connect_with(writer).await?;
        migrations::migrator().run(&writer).await?;
        let readers = options.acquire_timeout(PATIENCE).connect_with(readers).await?;
        let writer = Arc::new(RwLock::new(writer));
        Ok(Self { writer, readers, shared, watch: None, health: Arc::default() })
    }

    /// How many events a database holds that it refused alone. Changes nothing in it; one of an older server has no table for them.
    pub(crate) async fn count_failed_events(place: Place<'_>) -> Result<i64> {
        sqlx::any::install_default_drivers();
        let options = match place {
            Place::File(file) => sqlite(file, "ro")?,
            Place::Url(url) => {
                let url = Url::parse(url).map_err(|e| sqlx::Error::Configuration(e.into()))?;
                AnyConnectOptions::from_url(&url)?
            }
        };
        let mut connection = sqlx::AnyConnection::connect_with(&options).await?;
        let counted =
            sqlx::query_scalar("SELECT COUNT(*) FROM failed_event").fetch_one(&mut connection).await;
        connection.close().await?;
        match counted {
            Err(sqlx::Error::Database(_)) => Ok(0),
            other => Ok(other?),
        }
    }

    /// Whether other servers may use the database too.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Begins to write. There is one writer at a time; taking the lock at once avoids dead ends.
    ///
    /// # Errors
    /// At once while writes fail: the ledger sees when they are taken again.
    pub(crate) async fn write(&self) -> Result<Transaction> {
        match self.health.failing() {
            Some(reason) => Err(Error::Unwritable(reason)),
            None => self.try_write().await,
        }
    }

    /// Begins to write even if the last write failed.
    pub(crate) async fn try_write(&self) -> Result<Transaction> {
        let inner = self.begin().await.map_err(|error| self.health.failed(&error))?;
        Ok(Transaction { inner, watch: self.watch, health: Arc::clone(&self.health) })
    }

    async fn begin(&self) -> sqlx::Result<sqlx::Transaction<'static, Db>> {
        let writer = self.writer();
        if !self.shared {
            return writer.begin_with("BEGIN IMMEDIATE").await;
        }
        let begun = writer.begin_with(BEGIN).await;
        if matches!(begun, Err(sqlx::Error::PoolTimedOut)) {
            self.replace(&writer);
        }
        let mut tx = begun?;
        sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(WRITER).execute(&mut *tx).await?;
        Ok(tx)
    }

    fn writer(&self) -> AnyPool {
        self.writer.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens another pool in place of one whose connection does not become free. That connection is closed once it does.
    fn replace(&self, stuck: &AnyPool) {
        let mut writer = self.writer.write().unwrap_or_else(PoisonError::into_inner);
        // Of several that waited for it one replaces it.
        if !stuck.is_closed() {
            // It is closed from here on. What is still under way on it goes on.
            drop(stuck.close());
            *writer = stuck.options().clone().connect_lazy_with((*stuck.connect_options()).clone());
        }
    }

    /// Writes a little, to see whether writes are taken again.
    pub(crate) async fn probe(&self) -> Result<()> {
        let mut tx = self.try_write().await?;
        sqlx::query("INSERT INTO setting (name, value) VALUES ('probe', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value")
            .bind(fresh_id())
            .execute(&mut *tx)
            .await
            .map_err(|error| self.health.failed(&error))?;
        tx.commit().await
    }

    /// Where to read.
    pub(crate) fn read(&self) -> &AnyPool {
        &self.readers
    }

    /// Whether the database answers.
    pub(crate) async fn alive(&self) -> Result<()> {
        sqlx::query("SELECT 1").execute(&self.readers).await?;
        Ok(())
    }

    /// Closes every connection, so that the last one folds the log into the file.
    pub(crate) async fn close(&self) {
        self.readers.close().await;
        self.writer().close().await;
    }

    /// What the server remembered under `name`.
    pub(crate) async fn setting(&self, name: &str) -> Result<Option<String>> {
        Ok(sqlx::query_scalar("SELECT value FROM setting WHERE name = $1")
            .bind(name)
            .fetch_optional(&self.readers)
            .await?)
    }

    /// Remembers `value` under `name` unless something is remembered there; what is.
    pub(crate) async fn first_to_remember(&self, name: &str, value: &str) -> Result<String> {
        let mut tx = self.write().await?;
        sqlx::query("INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING")
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

    /// Remembers `value` under `name`.
    pub(crate) async fn remember(&self, name: &str, value: &str) -> Result<()> {
        let mut tx = self.write().await?;
        sqlx::query("INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value")
            .bind(name)
            .bind(value)
            .execute(&mut *tx)
            .await?;
        tx.commit().await
    }
}

/// Whether a connection may be used again. After a COMMIT or ROLLBACK that failed the driver believes the transaction open, and refuses the
/// next one for ever.
async fn is_whole(connection: &mut sqlx::AnyConnection) -> sqlx::Result<bool> {
    // What waits to be rolled back is.
    connection.ping().await?;
    Ok(!connection.is_in_transaction())
}

/// The same for a connection over a network. A statement that was given up may still hang, and a lost peer never answers: such a connection is
/// closed, so that another one can be opened.
async fn answers(connection: &mut sqlx::AnyConnection) -> sqlx::Result<bool> {
    match tokio::time::timeout(ANSWER, is_whole(connection)).await {
        Ok(whole) => whole,
        Err(late) => Err(sqlx::Error::Io(late.into())),
    }
}

/// The options of a connection to a file, opened in a `mode` of SQLite's.
fn sqlite(file: &Path, mode: &str) -> Result<AnyConnectOptions> {
    let bad = |why: &'static str| sqlx::Error::Configuration(why.into());
    let file = std::path::absolute(file).map_err(sqlx::Error::Io)?;
    let url = Url::from_file_path(file).map_err(|()| bad("the data folder's path cannot be used"))?;
    let url = url.as_str().replacen("file:", "sqlite:", 1) + "?mode=" + mode;
    let url = Url::parse(&url).map_err(|_| bad("the data folder's path cannot be used"))?;
    Ok(AnyConnectOptions::from_url(&url)?)
}

/// A fresh id: a UUID that rises with time, so that rows made together lie together.
pub(crate) fn fresh_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// The id in its stored form, if `text` is a UUID.
pub(crate) fn id(text: &str) -> Option<String> {
    text.parse::<::conversation::call_config::ConversationId>().ok().map(|id| id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data folder's database of this test's own.
    async fn fresh(name: &str) -> (Store, std::path::PathBuf) {
        let file = std::env::temp_dir().join(format!("visavis-store-{name}-{}.db", std::process::id()));
        (Store::open(Place::File(&file)).await.unwrap(), file)
    }

    #[tokio::test]
    async fn after_a_commit_that_failed_the_next_write_is_taken() {
        let (store, file) = fresh("commit").await;
        for round in 0..3 {
            let mut tx = store.write().await.unwrap();
            // What SQLite does by itself where a disk is full: the COMMIT behind it fails, and so does the ROLLBACK behind that.
            tx.execute("ROLLBACK").await.unwrap();
            assert!(matches!(tx.commit().await, Err(Error::Unwritable(_))));
            assert!(matches!(store.write().await, Err(Error::Unwritable(_))), "told at once");
            assert!(store.health.failing().is_some());
            store.probe().await.unwrap();
            assert_eq!(store.health.failing(), None);
            store.remember("round", &round.to_string()).await.unwrap();
            assert_eq!(store.setting("round").await.unwrap(), Some(round.to_string()));
        }
        store.close().await;
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn an_outage_is_told_from_a_refusal_by_its_code() {
        for code in ["13", "778", "8", "517", "53100", "25006", "08006", "55P03", "57014", "57P01", "58030"] {
            assert!(is_outage(code), "{code}");
        }
        assert!(Error::from(sqlx::Error::PoolTimedOut).is_outage());
        for code in ["19", "1811", "23505", "22021", "22P05", "25001", "40P01", "42P01"] {
            assert!(!is_outage(code), "{code}");
        }
    }

    #[tokio::test]
    async fn a_transaction_that_is_dropped_half_way_leaves_a_good_connection() {
        let (store, file) = fresh("drop").await;
        for _ in 0..3 {
            let mut tx = store.write().await.unwrap();
            tx.execute("INSERT INTO setting (name, value) VALUES ('half', '1')").await.unwrap();
            drop(tx);
            assert_eq!(store.setting("half").await.unwrap(), None);
        }
        store.remember("whole", "1").await.unwrap();
        assert_eq!(store.health.failing(), None);
        store.close().await;
        std::fs::remove_file(file).unwrap();
    }
}
