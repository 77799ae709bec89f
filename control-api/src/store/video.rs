//! Videos of texts and of sounds. Their jobs are in [`super::video_job`].
//!
//! ```text
//! insert ---------------------------------------------------> QUEUED
//! QUEUED ------ claim --------------------------------------> PROCESSING
//! PROCESSING -- claim, after a failure or a crash ----------> PROCESSING
//! PROCESSING -- mark_rendered: the files are complete ------> STORING
//! STORING ----- mark_completed: they are in the storage ----> COMPLETED
//! STORING ----- claim, if its server is lost ---------------> PROCESSING
//! PROCESSING, STORING -- mark_failed -----------------------> FAILED
//! any --------- begin_deletion -----------------------------> DELETING
//! DELETING ---- finish_deletion: no copy is left -----------> (no row)
//! ```
//!
//! The files of a job are in the data folder of the server that works at it, and so is an uploaded
//! sound from the start.

use sqlx::AssertSqlSafe;

use super::page::search_text;
use super::server::live_servers;
use super::{Db, Page, Result, SqlBuilder, Store, Transaction, variant};
use crate::clock::Micros;

/// The job waits for its turn, or for its picture.
pub(crate) const QUEUED: &str = "QUEUED";
/// A server works at it, or tries it again later.
pub(crate) const PROCESSING: &str = "PROCESSING";
/// The files are in the server's data folder.
pub(crate) const STORING: &str = "STORING";
/// The files are in the storage.
pub(crate) const COMPLETED: &str = "COMPLETED";
/// There is no video, and no further attempt.
pub(crate) const FAILED: &str = "FAILED";

/// Progress of a complete video.
pub(crate) const WHOLE: i64 = 1_000;

/// One video.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) workspace: String,
    /// The request, as JSON.
    pub(crate) document: String,
    pub(crate) status: String,
    /// The status for clients: PROCESSING also while its picture is being drawn, or the files are
    /// being stored.
    pub(crate) shown_status: String,
    /// Per mille, without the drawing of its picture.
    pub(crate) progress: i64,
    /// The server that has the files; empty: none.
    pub(crate) server: String,
    /// Whether that server is alive, or none is needed.
    pub(crate) has_live_server: i64,
    /// Whether the sound was uploaded.
    pub(crate) has_audio: i64,
    /// The row of `custom_avatar` that it shows.
    pub(crate) picture: Option<String>,
    /// Whether its picture was not drawn yet when it was requested.
    pub(crate) draws: i64,
    /// How far its picture is drawn, in percent.
    pub(crate) drawn_percent: Option<i64>,
    /// Attempts of the current step that failed.
    pub(crate) attempts: i64,
    /// Why it failed, or the last attempt did.
    pub(crate) error: Option<String>,
    /// JSON array of sentences.
    pub(crate) warnings: String,
    /// `webm` or `mp4`.
    pub(crate) format: String,
    pub(crate) bytes: i64,
    pub(crate) duration_ms: i64,
    pub(crate) width: i64,
    pub(crate) height: i64,
    /// Whether there is a file with captions.
    pub(crate) has_captions: i64,
    pub(crate) created_at: Micros,
    pub(crate) updated_at: Micros,
    pub(crate) finished_at: Option<Micros>,
}

from_row!(Row {
    id,
    workspace,
    document,
    status,
    shown_status,
    progress,
    server,
    has_live_server,
    has_audio,
    picture,
    draws,
    drawn_percent,
    attempts,
    error,
    warnings,
    format,
    bytes,
    duration_ms,
    width,
    height,
    has_captions,
    created_at,
    updated_at,
    finished_at,
});

/// SQL expression: [`Row::shown_status`].
macro_rules! shown_status {
    () => {
        "CASE WHEN status = 'STORING' THEN 'PROCESSING' \
         WHEN status = 'QUEUED' AND draws = 1 AND EXISTS (SELECT 1 FROM custom_avatar \
         WHERE custom_avatar.id = video.picture AND custom_avatar.status <> 'QUEUED') \
         THEN 'PROCESSING' ELSE status END"
    };
}

/// Columns of a [`Row`].
pub(super) const COLUMNS: &str = concat!(
    "id, workspace, document, status, ",
    shown_status!(),
    " AS shown_status, progress, server, \
     CAST(CASE WHEN server = '' OR server IN ",
    live_servers!(),
    " THEN 1 ELSE 0 END AS BIGINT) AS has_live_server, has_audio, picture, draws, \
     (SELECT custom_avatar.progress FROM custom_avatar WHERE custom_avatar.id = video.picture) \
     AS drawn_percent, \
     attempts, error, warnings, format, bytes, duration_ms, width, height, has_captions, \
     created_at, updated_at, finished_at",
);

/// Values of a new video.
pub(crate) struct Draft<'a> {
    pub(crate) id: &'a str,
    pub(crate) workspace: &'a str,
    pub(crate) title: &'a str,
    pub(crate) avatar: &'a str,
    pub(crate) document: &'a str,
    pub(crate) secrets: &'a str,
    /// The server that has the uploaded sound, if there is one.
    pub(crate) audio_server: Option<&'a str>,
    pub(crate) picture: Option<&'a str>,
    pub(crate) draws: bool,
    pub(crate) format: &'a str,
    pub(crate) size: [usize; 2],
    pub(crate) at: Micros,
}

/// Adds a video whose job is QUEUED.
pub(crate) async fn insert(tx: &mut Transaction, draft: &Draft<'_>) -> Result<()> {
    let [width, height] = draft.size.map(|pixels| i64::try_from(pixels).unwrap_or(0));
    sqlx::query(
        "INSERT INTO video (id, workspace, search, document, secrets, status, server, has_audio, \
         picture, draws, format, width, height, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, 'QUEUED', $6, $7, $8, $9, $10, $11, $12, $13, $13)",
    )
    .bind(draft.id)
    .bind(draft.workspace)
    .bind(search_text(&[draft.id, draft.title, draft.avatar]))
    .bind(draft.document)
    .bind(draft.secrets)
    .bind(draft.audio_server.unwrap_or_default())
    .bind(i64::from(draft.audio_server.is_some()))
    .bind(draft.picture)
    .bind(i64::from(draft.draws))
    .bind(draft.format)
    .bind(width)
    .bind(height)
    .bind(draft.at)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// The video with this id, unless it is being deleted.
pub(crate) async fn find<'e>(
    executor: impl sqlx::Executor<'e, Database = Db>,
    id: &str,
) -> Result<Option<Row>> {
    let sql = format!("SELECT {COLUMNS} FROM video WHERE id = $1 AND status <> 'DELETING'");
    Ok(sqlx::query_as(AssertSqlSafe(sql)).bind(id).fetch_optional(executor).await?)
}

/// Number of a workspace's videos that are not finished.
pub(crate) async fn count_unfinished(tx: &mut Transaction, workspace: &str) -> Result<i64> {
    Ok(sqlx::query_scalar(
        "SELECT COUNT(*) FROM video WHERE workspace = $1 \
         AND status IN ('QUEUED', 'PROCESSING', 'STORING')",
    )
    .bind(workspace)
    .fetch_one(&mut **tx)
    .await?)
}

/// Number of variants of avatars that the videos of a workspace show, except the row `id`.
pub(crate) async fn count_other_variants(
    tx: &mut Transaction,
    workspace: &str,
    id: &str,
) -> Result<i64> {
    Ok(sqlx::query_scalar(
        "SELECT COUNT(*) FROM custom_avatar WHERE workspace = $1 AND base_avatar IS NOT NULL \
         AND id <> $2 AND id IN (SELECT picture FROM video WHERE workspace = $1 \
         AND picture IS NOT NULL)",
    )
    .bind(workspace)
    .bind(id)
    .fetch_one(&mut **tx)
    .await?)
}

/// Clients do not see the video from now on, and all copies will be removed; false if there is no
/// such video. `workspace`: `None` for any. What is stored of its request and of its webhooks
/// beside it is removed at once.
pub(crate) async fn begin_deletion(
    tx: &mut Transaction,
    workspace: Option<&str>,
    id: &str,
    at: Micros,
) -> Result<bool> {
    let done = sqlx::query(
        "UPDATE video SET status = 'DELETING', attempts = 0, next_attempt_at = 0, error = NULL, \
         updated_at = $1 WHERE id = $2 AND (workspace = $3 OR $4 = 1) AND status <> 'DELETING'",
    )
    .bind(at)
    .bind(id)
    .bind(workspace.unwrap_or_default())
    .bind(i64::from(workspace.is_none()))
    .execute(&mut **tx)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    for sql in [
        "DELETE FROM delivery_try WHERE delivery IN \
         (SELECT id FROM delivery WHERE conversation = $1)",
        "DELETE FROM delivery WHERE conversation = $1",
        "DELETE FROM idempotency WHERE resource = $1",
    ] {
        sqlx::query(sql).bind(id).execute(&mut **tx).await?;
    }
    Ok(true)
}

/// No copy is left: removes the row, and the picture if nothing else shows it.
pub(crate) async fn finish_deletion(tx: &mut Transaction, row: &Row) -> Result<()> {
    sqlx::query("DELETE FROM video WHERE id = $1 AND status = 'DELETING'")
        .bind(&row.id)
        .execute(&mut **tx)
        .await?;
    // The text of the request is gone from the log of the database, too.
    tx.mark_pictures_deleted();
    if row.picture.is_some() {
        variant::delete_unused(tx, &row.workspace).await?;
    }
    Ok(())
}

/// The statuses of clients that a search text names, as they are stored.
fn matching_statuses(search: Option<&str>) -> Vec<String> {
    let part = search.unwrap_or_default();
    let shown = |status: &str| match status {
        STORING => PROCESSING.to_lowercase(),
        other => other.to_lowercase(),
    };
    [QUEUED, PROCESSING, STORING, COMPLETED, FAILED]
        .into_iter()
        .filter(|status| !part.is_empty() && shown(status).contains(part))
        .map(str::to_owned)
        .collect()
}

impl Store {
    /// One video of a workspace.
    pub(crate) async fn video(&self, workspace: &str, id: &str) -> Result<Option<Row>> {
        let row = find(self.reader_pool(), id).await?;
        Ok(row.filter(|row| row.workspace == workspace))
    }

    /// One video of any workspace.
    pub(crate) async fn video_in_any_workspace(&self, id: &str) -> Result<Option<Row>> {
        find(self.reader_pool(), id).await
    }

    /// One page and the number of all matches. `page.kind`: a status for clients.
    pub(crate) async fn video_page(&self, workspace: &str, page: &Page) -> Result<(Vec<Row>, i64)> {
        let statuses = matching_statuses(page.search.as_deref());
        let push_filter = |sql: &mut SqlBuilder| {
            page.push_filter(sql, workspace, false, &statuses);
            sql.push(" AND status <> 'DELETING'");
            if let Some(kind) = &page.kind {
                sql.push(concat!(" AND ", shown_status!(), " = ")).bind(kind.to_uppercase());
            }
        };
        let mut snapshot = self.begin_read().await?;
        let mut count = SqlBuilder::new("SELECT COUNT(*) FROM video");
        push_filter(&mut count);
        let total = count.fetch_count(&mut *snapshot).await?;
        let mut sql = SqlBuilder::new(format!("SELECT {COLUMNS} FROM video"));
        push_filter(&mut sql);
        page.push_window(&mut sql);
        let rows = sql.fetch_all(&mut *snapshot).await?;
        snapshot.commit().await?;
        Ok((rows, total))
    }

    /// Ids of the videos that were finished before `before`.
    pub(crate) async fn videos_finished_before(&self, before: Micros) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(
            "SELECT id FROM video WHERE status IN ('COMPLETED', 'FAILED') AND finished_at < $1",
        )
        .bind(before)
        .fetch_all(self.reader_pool())
        .await?)
    }

    /// Number of videos by status, for the metrics.
    pub(crate) async fn video_counts(&self) -> Result<Vec<(String, i64)>> {
        Ok(sqlx::query_as("SELECT status, COUNT(*) FROM video GROUP BY status")
            .fetch_all(self.reader_pool())
            .await?)
    }
}
