//! The database migrations, compiled into the program.

use sqlx::SqlSafeStr as _;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};

use super::{Error, Result};

/// Number, name and SQL of each migration: the files of `migrations/`. A released file never
/// changes.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "begin", include_str!("../../migrations/0001_begin.sql")),
    (2, "breadth", include_str!("../../migrations/0002_breadth.sql")),
    (3, "servers", include_str!("../../migrations/0003_servers.sql")),
    (4, "meaning", include_str!("../../migrations/0004_meaning.sql")),
    (5, "large", include_str!("../../migrations/0005_large.sql")),
    (6, "erased", include_str!("../../migrations/0006_erased.sql")),
    (7, "drawn", include_str!("../../migrations/0007_drawn.sql")),
    (8, "share", include_str!("../../migrations/0008_share.sql")),
    (9, "failed_event", include_str!("../../migrations/0009_failed_event.sql")),
    (10, "ended_session", include_str!("../../migrations/0010_ended_session.sql")),
    (12, "key_scope", include_str!("../../migrations/0012_key_scope.sql")),
    (13, "fairness", include_str!("../../migrations/0013_fairness.sql")),
    (14, "document_server", include_str!("../../migrations/0014_document_server.sql")),
    (15, "credential", include_str!("../../migrations/0015_credential.sql")),
    (16, "recording", include_str!("../../migrations/0016_recording.sql")),
    (17, "photo", include_str!("../../migrations/0017_photo.sql")),
    (18, "background", include_str!("../../migrations/0018_background.sql")),
    (19, "fleet", include_str!("../../migrations/0019_fleet.sql")),
    (20, "epoch", include_str!("../../migrations/0020_epoch.sql")),
    (21, "message_deadline", include_str!("../../migrations/0021_message_deadline.sql")),
    (22, "meeting", include_str!("../../migrations/0022_meeting.sql")),
    (23, "livekit_room", include_str!("../../migrations/0023_livekit_room.sql")),
    (24, "framing", include_str!("../../migrations/0024_framing.sql")),
    (25, "video", include_str!("../../migrations/0025_video.sql")),
];

/// All migrations.
pub(super) fn migrator() -> Migrator {
    let step = |&(version, name, sql): &(i64, &'static str, &'static str)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(MIGRATIONS.iter().map(step).collect())
}

/// The error of migrations that did not run.
pub(super) fn error(error: MigrateError) -> Error {
    match error {
        MigrateError::VersionMissing(found) => newer(found),
        other => other.into(),
    }
}

/// Checks that this release knows a schema: the number of the last migration of a database.
///
/// # Errors
/// A newer release has migrated it.
pub(super) fn check(schema: i64) -> Result<()> {
    if schema > newest() { Err(newer(schema)) } else { Ok(()) }
}

fn newer(found: i64) -> Error {
    Error::NewerSchema { found, known: newest() }
}

fn newest() -> i64 {
    MIGRATIONS.last().map_or(0, |(version, ..)| *version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{DatabaseLocation, Store};

    #[tokio::test]
    async fn a_database_of_a_newer_release_is_refused() {
        let file = std::env::temp_dir().join(format!("visavis-newer-{}.db", std::process::id()));
        let store = Store::open(DatabaseLocation::File(&file)).await.unwrap();
        sqlx::query(
            "INSERT INTO _sqlx_migrations \
             (version, description, success, checksum, execution_time) \
             VALUES (9001, 'later', TRUE, X'00', 0)",
        )
        .execute(&store.writers.get())
        .await
        .unwrap();
        store.close().await;
        let refused = Store::open(DatabaseLocation::File(&file)).await.err().unwrap().to_string();
        let expected = "a newer release of Visavis has changed the database (schema 9001; ";
        assert!(refused.starts_with(expected), "{refused}");
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn each_file_is_a_step() {
        let mut files: Vec<String> =
            std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations"))
                .unwrap()
                .map(|file| file.unwrap().file_name().into_string().unwrap())
                .collect();
        files.sort();
        let steps: Vec<String> = MIGRATIONS
            .iter()
            .map(|(version, name, _)| format!("{version:04}_{name}.sql"))
            .collect();
        assert_eq!(steps, files);
    }
}
