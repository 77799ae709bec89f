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
pub(crate) mod kb;
pub(crate) mod key;
mod migrations;
mod page;
pub(crate) mod server;
mod sql;

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use sqlx::AnyPool;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{ConnectOptions as _, Executor as _};
use url::Url;

pub(crate) use page::Page;
use sql::Sql;

use crate::watch::{Moment, Watch};

/// The database behind the store.
pub(crate) type Db = sqlx::Any;

/// A transaction that writes; dropped, it is undone.
pub(crate) struct Transaction(sqlx::Transaction<'static, Db>, Option<Watch>);

impl Transaction {
    /// Keeps what was written.
    pub(crate) async fn commit(self) -> Result<()> {
        Moment::BeforeWrite.tell(self.1);
        self.0.commit().await?;
        Moment::AfterWrite.tell(self.1);
        Ok(())
    }
}

impl Deref for Transaction {
    type Target = <Db as sqlx::Database>::Connection;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
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
/// Connections that read.
const READERS: u32 = 8;

/// The database. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    writer: AnyPool,
    readers: AnyPool,
    /// Whether other servers may use it too.
    shared: bool,
    /// Told before and after each commit.
    pub(crate) watch: Option<Watch>,
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
        if !shared {
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
        Ok(Self { writer, readers, shared, watch: None })
    }

    /// Whether other servers may use the database too.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Begins to write. There is one writer at a time; taking the lock at once avoids dead ends.
    pub(crate) async fn write(&self) -> Result<Transaction> {
        if !self.shared {
            return Ok(Transaction(self.writer.begin_with("BEGIN IMMEDIATE").await?, self.watch));
        }
        let mut tx = self.writer.begin().await?;
        sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(WRITER).execute(&mut *tx).await?;
        Ok(Transaction(tx, self.watch))
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
        self.writer.close().await;
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
    text.parse::<::conversation::call::ConversationId>().ok().map(|id| id.to_string())
}
