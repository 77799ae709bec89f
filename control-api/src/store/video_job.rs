//! The jobs of videos: which server works at which one, and how each step ends. A change of a job
//! takes effect only while the video belongs to the server that makes it.

use sqlx::AssertSqlSafe;

use super::server::live_servers;
use super::video::{COLUMNS, Row};
use super::{Result, Store, Transaction, fairness};
use crate::clock::Micros;

/// SQL condition: a video that server `$1` may make at `$2`. Its picture is drawn, or cannot be
/// drawn. A text that no live server works at may be claimed by any, an uploaded sound only by the
/// server that has it.
macro_rules! claimable {
    () => {
        concat!(
            "next_attempt_at <= $2 AND ((status IN ('QUEUED', 'PROCESSING') AND (server = $1 \
             OR (has_audio = 0 AND (server = '' OR server NOT IN ",
            live_servers!(),
            ")))) OR (status = 'STORING' AND has_audio = 0 AND server <> $1 AND server NOT IN ",
            live_servers!(),
            ")) AND (picture IS NULL OR picture NOT IN (SELECT custom_avatar.id FROM custom_avatar \
             WHERE custom_avatar.status IN ('QUEUED', 'PROCESSING')))"
        )
    };
}

/// Claims the next video for `server`. Those come first whose work was interrupted, or is to be
/// tried again. Within each group, the oldest one of the workspace whose turn it is.
pub(crate) async fn claim(tx: &mut Transaction, server: &str, now: Micros) -> Result<Option<Row>> {
    let sql = [
        concat!(
            "UPDATE video SET status = 'PROCESSING', server = $1, error = NULL, updated_at = $2 \
             WHERE id = (SELECT id FROM video AS waits WHERE ",
            claimable!(),
            " ORDER BY CASE status WHEN 'QUEUED' THEN 1 ELSE 0 END, ",
            fairness::last_turn!("video", "waits.workspace"),
            ", created_at, id LIMIT 1) RETURNING ",
        ),
        COLUMNS,
    ]
    .concat();
    let claimed: Option<Row> =
        sqlx::query_as(AssertSqlSafe(sql)).bind(server).bind(now).fetch_optional(&mut **tx).await?;
    if let Some(row) = &claimed {
        fairness::record_turn(tx, fairness::VIDEO_JOBS, &row.workspace).await?;
    }
    Ok(claimed)
}

/// Stores the progress of a video, which never falls. False if it does not belong to this server
/// any more.
pub(crate) async fn update_progress(
    tx: &mut Transaction,
    server: &str,
    id: &str,
    progress: i64,
    at: Micros,
) -> Result<bool> {
    let done = sqlx::query(
        "UPDATE video SET progress = CASE WHEN progress < $1 THEN $1 ELSE progress END, \
         updated_at = $2 WHERE id = $3 AND server = $4 AND status = 'PROCESSING'",
    )
    .bind(progress)
    .bind(at)
    .bind(id)
    .bind(server)
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// The files of a video.
#[derive(Clone, Debug)]
pub(crate) struct Rendered {
    /// Size of the video.
    pub(crate) bytes: i64,
    pub(crate) duration_ms: i64,
    pub(crate) has_captions: bool,
    /// JSON array of sentences.
    pub(crate) warnings: String,
}

/// All files are complete. False if the video does not belong to this server any more.
pub(crate) async fn mark_rendered(
    tx: &mut Transaction,
    server: &str,
    id: &str,
    rendered: &Rendered,
    progress: i64,
    at: Micros,
) -> Result<bool> {
    let done = sqlx::query(
        "UPDATE video SET status = 'STORING', bytes = $1, duration_ms = $2, has_captions = $3, \
         warnings = $4, progress = $5, attempts = 0, next_attempt_at = 0, error = NULL, \
         updated_at = $6 WHERE id = $7 AND server = $8 AND status = 'PROCESSING'",
    )
    .bind(rendered.bytes)
    .bind(rendered.duration_ms)
    .bind(i64::from(rendered.has_captions))
    .bind(&rendered.warnings)
    .bind(progress)
    .bind(at)
    .bind(id)
    .bind(server)
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// All files are in the storage. False if the video was deleted meanwhile, or does not belong to
/// this server any more.
pub(crate) async fn mark_completed(
    tx: &mut Transaction,
    server: &str,
    id: &str,
    at: Micros,
) -> Result<bool> {
    let done = sqlx::query(
        "UPDATE video SET status = 'COMPLETED', progress = 1000, attempts = 0, error = NULL, \
         updated_at = $1, finished_at = $1 WHERE id = $2 AND server = $3 AND status = 'STORING'",
    )
    .bind(at)
    .bind(id)
    .bind(server)
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// There will be no video. False as for [`mark_completed`].
pub(crate) async fn mark_failed(
    tx: &mut Transaction,
    server: &str,
    id: &str,
    error: &str,
    at: Micros,
) -> Result<bool> {
    let done = sqlx::query(
        "UPDATE video SET status = 'FAILED', bytes = 0, error = $1, updated_at = $2, \
         finished_at = $2 WHERE id = $3 AND server = $4 AND status IN ('PROCESSING', 'STORING')",
    )
    .bind(error)
    .bind(at)
    .bind(id)
    .bind(server)
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// When a step is tried again, and why.
pub(crate) struct Retry<'a> {
    /// The step: the status from now on.
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    /// Whether this attempt counts as a failed one.
    pub(crate) is_counted: bool,
    pub(crate) next: Micros,
}

/// The current step, which is that of `row`, is tried again later.
pub(crate) async fn retry_at(
    tx: &mut Transaction,
    row: &Row,
    retry: &Retry<'_>,
    at: Micros,
) -> Result<()> {
    sqlx::query(
        "UPDATE video SET status = $1, error = $2, attempts = attempts + $3, \
         next_attempt_at = $4, updated_at = $5 WHERE id = $6 AND server = $7 AND status = $8",
    )
    .bind(retry.status)
    .bind(retry.reason)
    .bind(i64::from(retry.is_counted))
    .bind(retry.next)
    .bind(at)
    .bind(&row.id)
    .bind(&row.server)
    .bind(&row.status)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// The deletion of `row` is tried again at `next`. Any server may have tried it.
pub(crate) async fn retry_deletion(
    tx: &mut Transaction,
    id: &str,
    reason: &str,
    next: Micros,
    at: Micros,
) -> Result<()> {
    sqlx::query(
        "UPDATE video SET error = $1, attempts = attempts + 1, next_attempt_at = $2, \
         updated_at = $3 WHERE id = $4 AND status = 'DELETING'",
    )
    .bind(reason)
    .bind(next)
    .bind(at)
    .bind(id)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// The uploads of `server` that failed are due now.
pub(crate) async fn hasten_uploads(tx: &mut Transaction, server: &str) -> Result<()> {
    sqlx::query(
        "UPDATE video SET next_attempt_at = 0 \
         WHERE status = 'STORING' AND server = $1 AND error IS NOT NULL",
    )
    .bind(server)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

impl Store {
    /// Whether there is a video that this server may make now.
    pub(crate) async fn has_claimable_video(&self, server: &str, now: Micros) -> Result<bool> {
        let sql = concat!("SELECT id FROM video WHERE ", claimable!(), " LIMIT 1");
        let found: Option<String> = sqlx::query_scalar(sql)
            .bind(server)
            .bind(now)
            .fetch_optional(self.reader_pool())
            .await?;
        Ok(found.is_some())
    }

    /// Whether there are videos that are not made yet.
    pub(crate) async fn has_unmade_videos(&self) -> Result<bool> {
        let sql = "SELECT id FROM video WHERE status IN ('QUEUED', 'PROCESSING') LIMIT 1";
        let found: Option<String> =
            sqlx::query_scalar(sql).fetch_optional(self.reader_pool()).await?;
        Ok(found.is_some())
    }

    /// Whether `server` needs the files of a video in its data folder.
    pub(crate) async fn needs_video_files(&self, server: &str, id: &str) -> Result<bool> {
        let sql = "SELECT id FROM video WHERE id = $1 AND server = $2 \
                   AND status IN ('QUEUED', 'PROCESSING', 'STORING')";
        let found: Option<String> = sqlx::query_scalar(sql)
            .bind(id)
            .bind(server)
            .fetch_optional(self.reader_pool())
            .await?;
        Ok(found.is_some())
    }

    /// Whether `server` works at the video.
    pub(crate) async fn is_making_video(&self, server: &str, id: &str) -> Result<bool> {
        let sql = "SELECT id FROM video WHERE id = $1 AND server = $2 AND status = 'PROCESSING'";
        let found: Option<String> = sqlx::query_scalar(sql)
            .bind(id)
            .bind(server)
            .fetch_optional(self.reader_pool())
            .await?;
        Ok(found.is_some())
    }

    /// Whether a row of `custom_avatar` exists.
    pub(crate) async fn has_picture(&self, id: &str) -> Result<bool> {
        let found: Option<String> =
            sqlx::query_scalar("SELECT id FROM custom_avatar WHERE id = $1")
                .bind(id)
                .fetch_optional(self.reader_pool())
                .await?;
        Ok(found.is_some())
    }

    /// The next video of `server` to upload.
    pub(crate) async fn due_video_upload(&self, server: &str, now: Micros) -> Result<Option<Row>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM video WHERE status = 'STORING' AND server = $1 \
             AND next_attempt_at <= $2 ORDER BY next_attempt_at, created_at LIMIT 1"
        );
        Ok(sqlx::query_as(AssertSqlSafe(sql))
            .bind(server)
            .bind(now)
            .fetch_optional(self.reader_pool())
            .await?)
    }

    /// The next video to delete: of `server`, of none, or of one that is lost, if its files are not
    /// in a folder of that one (`is_local`).
    pub(crate) async fn due_video_deletion(
        &self,
        server: &str,
        is_local: bool,
        now: Micros,
    ) -> Result<Option<Row>> {
        let sql = [
            "SELECT ",
            COLUMNS,
            concat!(
                " FROM video WHERE status = 'DELETING' AND (server = $1 OR server = '' \
                 OR ($3 = 0 AND server NOT IN ",
                live_servers!(),
                ")) AND next_attempt_at <= $2 ORDER BY next_attempt_at, id LIMIT 1"
            ),
        ]
        .concat();
        Ok(sqlx::query_as(AssertSqlSafe(sql))
            .bind(server)
            .bind(now)
            .bind(i64::from(is_local))
            .fetch_optional(self.reader_pool())
            .await?)
    }

    /// Whether there are videos that `server` has to upload or to delete.
    pub(crate) async fn has_videos_to_move(&self, server: &str) -> Result<bool> {
        let sql = "SELECT id FROM video WHERE (status = 'STORING' AND server = $1) \
                   OR status = 'DELETING' LIMIT 1";
        let found: Option<String> =
            sqlx::query_scalar(sql).bind(server).fetch_optional(self.reader_pool()).await?;
        Ok(found.is_some())
    }

    /// Number of videos whose last attempt of the current step failed, for the metrics.
    pub(crate) async fn waiting_videos(&self) -> Result<i64> {
        let sql = "SELECT COUNT(*) FROM video \
                   WHERE status IN ('QUEUED', 'PROCESSING', 'STORING') AND error IS NOT NULL";
        Ok(sqlx::query_scalar(sql).fetch_one(self.reader_pool()).await?)
    }
}
