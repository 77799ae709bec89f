//! Erasure of deleted pictures from SQLite's write-ahead log.
//!
//! `secure_delete` overwrites deleted content in the pages of the database. The log still holds the
//! older versions of these pages, and a checkpoint that is not of the mode TRUNCATE leaves them
//! there. PostgreSQL has no such mode: its vacuum and its recycling of the log remove them.

use sqlx::{ConnectOptions as _, Connection as _, Executor as _};

use super::{Result, Store, Transaction};

impl Transaction {
    /// Notes that this transaction deletes pictures of a person; its commit wakes
    /// [`Store::pictures_deleted`].
    pub(crate) fn mark_pictures_deleted(&mut self) {
        self.deletes_pictures = true;
    }
}

impl Store {
    /// Waits until a transaction with deleted pictures was committed.
    pub(crate) async fn pictures_deleted(&self) {
        self.pictures_deleted.notified().await;
    }

    /// Moves the write-ahead log of SQLite into the database file and truncates it to 0 bytes. False
    /// if a reader or a writer uses it at this moment: then it must be tried again.
    pub(crate) async fn truncate_wal(&self) -> Result<bool> {
        // A connection of its own: requests do not wait for it, and it waits for no one.
        let options = self.writers.get().connect_options();
        let mut connection = options.connect().await?;
        let done = async {
            connection.execute(sqlx::raw_sql("PRAGMA busy_timeout = 0")).await?;
            // Most of the work, during which others may write. The second statement holds the lock
            // of the writer, only for what was written meanwhile.
            connection.execute(sqlx::raw_sql("PRAGMA wal_checkpoint(PASSIVE)")).await?;
            let (busy, _, _): (i64, i64, i64) = sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)")
                .fetch_one(&mut connection)
                .await?;
            Ok(busy == 0)
        };
        let done = done.await;
        connection.close().await?;
        done
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::store::DatabaseLocation;

    fn contains(file: &Path, text: &str) -> bool {
        std::fs::read(file).unwrap().windows(text.len()).any(|bytes| bytes == text.as_bytes())
    }

    #[tokio::test]
    async fn deleted_content_leaves_the_files_once_no_reader_uses_the_log() {
        let folder = std::env::temp_dir().join(format!("visavis-wal-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, log) = (folder.join("store.db"), folder.join("store.db-wal"));
        let store = Store::open(DatabaseLocation::File(&file)).await.unwrap();
        // Longer than a page, so that it has pages of its own.
        let secret = "somebody's face, ".repeat(4000);
        store.set_setting("picture", &secret).await.unwrap();
        assert!(store.truncate_wal().await.unwrap());
        assert!(contains(&file, &secret[..34]));
        let mut reader = store.reader_pool().begin().await.unwrap();
        reader.fetch_one("SELECT COUNT(*) FROM setting").await.unwrap();
        store.set_setting("picture", "").await.unwrap();
        store.set_setting("other", &secret).await.unwrap();
        store.set_setting("other", "").await.unwrap();
        assert!(!store.truncate_wal().await.unwrap(), "the reader may still need the log");
        assert!(contains(&log, &secret[..34]));
        reader.rollback().await.unwrap();
        assert!(store.truncate_wal().await.unwrap());
        assert_eq!(std::fs::metadata(&log).unwrap().len(), 0);
        assert!(!contains(&file, &secret[..34]));
        store.close().await;
        std::fs::remove_dir_all(folder).unwrap();
    }
}
