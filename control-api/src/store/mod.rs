//! The store: SQLite in the data folder, one writing connection and several readers (WAL).
//!
//! The SQL suits PostgreSQL too; [`Db`] is the one place that names the database. Each table has a file of its own here.

mod command;
pub(crate) mod conversation;
pub(crate) mod delivery;
pub(crate) mod document;
pub(crate) mod event;
pub(crate) mod kb;
pub(crate) mod key;
mod page;

use std::path::Path;
use std::str::FromStr as _;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

pub(crate) use page::Page;

/// The database behind the store.
pub(crate) type Db = sqlx::Sqlite;
/// A transaction that writes.
pub(crate) type Transaction = sqlx::Transaction<'static, Db>;

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
}

/// What a question to the store yields.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The database of one data folder. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    writer: SqlitePool,
    readers: SqlitePool,
}

impl Store {
    /// Opens the file, makes it if absent, brings its tables up to date.
    pub(crate) async fn open(file: &Path) -> Result<Self> {
        // `busy_timeout` is for the second process: `visavis keys` beside a running server.
        let options = SqliteConnectOptions::from_str("sqlite:")?
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(Duration::from_secs(5))
            .statement_cache_capacity(200);
        let writer = SqlitePoolOptions::new().max_connections(1).connect_with(options.clone()).await?;
        sqlx::migrate!("./migrations").run(&writer).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(4)
            .min_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_with(options.read_only(true))
            .await?;
        Ok(Self { writer, readers })
    }

    /// Begins to write. There is one writer at a time; taking the lock at once avoids dead ends between processes.
    pub(crate) async fn write(&self) -> Result<Transaction> {
        Ok(self.writer.begin_with("BEGIN IMMEDIATE").await?)
    }

    /// Where to read.
    pub(crate) fn read(&self) -> &SqlitePool {
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
        self.writer.close().await;
    }

    /// What the server remembered under `name`.
    pub(crate) async fn setting(&self, name: &str) -> Result<Option<String>> {
        Ok(sqlx::query_scalar("SELECT value FROM setting WHERE name = $1")
            .bind(name)
            .fetch_optional(&self.readers)
            .await?)
    }

    /// Remembers `value` under `name`.
    pub(crate) async fn remember(&self, name: &str, value: &str) -> Result<()> {
        let mut tx = self.write().await?;
        sqlx::query("INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value")
            .bind(name)
            .bind(value)
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }
}

/// A fresh id: a UUID that rises with time, so that rows made together lie together.
pub(crate) fn fresh_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// The id in its stored form, if `text` is a UUID.
pub(crate) fn id(text: &str) -> Option<String> {
    text.parse::<::conversation::call::ConversationId>().ok().map(|id| id.to_string())
}
