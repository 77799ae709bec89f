//! Custom avatars and their jobs. The rows with a `base_avatar` are variants of avatars
//! ([`super::variant`]); they have the same jobs. A finished row that an older plan drew is drawn
//! again by a job of [`super::renewal`].
//!
//! ```text
//! (insert) ---> QUEUED
//! QUEUED ------ claim_job ---------------------------------------> PROCESSING
//! PROCESSING -- server restarted or no longer alive, claim_job --> PROCESSING
//! PROCESSING -- finish_job: baked -------------------------------> COMPLETED
//! PROCESSING -- finish_job: error -------------------------------> FAILED
//! ```

use sqlx::AssertSqlSafe;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::framing::VideoSize;
use super::page::search_text;
use super::server::live_servers;
use super::{Error, Page, Result, SqlBuilder, Store, Transaction, fairness};
use crate::clock::Micros;

/// What a finished job gives, as it is stored and returned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "CustomAvatarOutput")]
pub(crate) struct Output {
    /// Picture, as a base64 data URI.
    pub(crate) preview_url: String,
    /// Pixels.
    pub(crate) width: u32,
    /// Pixels.
    pub(crate) height: u32,
    /// Video frames per second.
    pub(crate) fps: u32,
}

/// One custom avatar, without its photo and its poses.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) job_id: String,
    pub(crate) name: String,
    pub(crate) gender: String,
    pub(crate) is_private: i64,
    /// The character from which it is drawn, as JSON; `None` for a photo avatar.
    pub(crate) character: Option<String>,
    pub(crate) status: String,
    /// Progress of the drawing, in percent.
    pub(crate) progress: i64,
    /// [`Output`] as JSON, once there are poses.
    pub(crate) output: Option<String>,
    pub(crate) error: Option<String>,
    /// When the person of a photo gave consent.
    pub(crate) consent_at: Option<Micros>,
    /// Whether the photo's crop is stored.
    pub(crate) has_source: i64,
    pub(crate) created_at: Micros,
    pub(crate) updated_at: Micros,
}

from_row!(Row {
    id,
    job_id,
    name,
    gender,
    is_private,
    character = "person",
    status,
    progress,
    output,
    error,
    consent_at,
    has_source,
    created_at,
    updated_at
});

const COLUMNS: &str = "id, job_id, name, gender, is_private, person, status, progress, output, \
    error, consent_at, CAST(CASE WHEN source IS NULL THEN 0 ELSE 1 END AS BIGINT) AS has_source, \
    created_at, updated_at";

/// SQL condition: an avatar itself.
const NO_BACKGROUND: &str = " AND base_avatar IS NULL";

/// Values of a new custom avatar.
pub(crate) struct Draft<'a> {
    pub(crate) id: &'a str,
    pub(crate) workspace: &'a str,
    pub(crate) job_id: &'a str,
    pub(crate) name: &'a str,
    pub(crate) gender: &'a str,
    pub(crate) is_private: bool,
    /// The crop of a photo, as JSON, encrypted.
    pub(crate) source: Option<&'a str>,
    /// Or the character from which it is drawn, as JSON.
    pub(crate) character: Option<&'a str>,
    /// Whether the crop stays when the avatar is finished.
    pub(crate) keep_source: bool,
    pub(crate) size: VideoSize,
    /// When the person of the photo gave consent, and the hash of the API key that said so.
    pub(crate) consent: Option<(Micros, &'a str)>,
    pub(crate) at: Micros,
}

/// Adds a custom avatar whose job is QUEUED.
pub(crate) async fn insert(tx: &mut Transaction, draft: &Draft<'_>) -> Result<Row> {
    sqlx::query(
        "INSERT INTO custom_avatar (id, workspace, search, job_id, name, gender, is_private, \
         source, person, keep_source, size, consent_at, consent_key, status, created_at, \
         updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 'QUEUED', $14, $14)",
    )
    .bind(draft.id)
    .bind(draft.workspace)
    .bind(search_text(&[draft.id, draft.name]))
    .bind(draft.job_id)
    .bind(draft.name)
    .bind(draft.gender)
    .bind(i64::from(draft.is_private))
    .bind(draft.source)
    .bind(draft.character)
    .bind(i64::from(draft.keep_source))
    .bind(draft.size.name())
    .bind(draft.consent.map(|(at, _)| at))
    .bind(draft.consent.map(|(_, key)| key))
    .bind(draft.at)
    .execute(&mut **tx)
    .await?;
    let sql = format!("SELECT {COLUMNS} FROM custom_avatar WHERE id = $1");
    sqlx::query_as(AssertSqlSafe(sql))
        .bind(draft.id)
        .fetch_one(&mut **tx)
        .await
        .map_err(Error::from)
}

/// A drawing job.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) workspace: String,
    pub(crate) gender: String,
    /// What it is drawn from, as JSON: a character.
    pub(crate) character: Option<String>,
    /// Or the crop of a photo, encrypted.
    pub(crate) source: Option<String>,
    /// Or the avatar of which it is a variant.
    pub(crate) base_avatar: Option<String>,
    /// What replaces its background, as [`super::variant::Draft`] stores it.
    pub(crate) background: Option<String>,
    /// Whether the background is encrypted, because it contains a picture.
    pub(crate) image_hash: Option<String>,
    /// [`super::framing::Framing`]
    pub(crate) framing: String,
    /// [`VideoSize`]
    pub(crate) size: String,
}

/// Columns of a [`Job`].
macro_rules! job_columns {
    () => {
        "id, name, workspace, gender, person, source, base_avatar, background, image_hash, \
         framing, size"
    };
}
pub(super) use job_columns;

from_row!(Job {
    id,
    name,
    workspace,
    gender,
    character = "person",
    source,
    base_avatar,
    background,
    image_hash,
    framing,
    size
});

/// SQL condition: a drawing job that server `$1` may claim, because no live server works on it.
macro_rules! claimable_job {
    () => {
        concat!(
            "(status = 'QUEUED' OR (status = 'PROCESSING' AND (server = $1 \
             OR server NOT IN ",
            live_servers!(),
            ")))"
        )
    };
}

/// Number of a workspace's drawing jobs that are queued or in progress.
pub(crate) async fn count_unfinished_jobs(tx: &mut Transaction, workspace: &str) -> Result<i64> {
    Ok(sqlx::query_scalar(
        "SELECT COUNT(*) FROM custom_avatar WHERE workspace = $1 \
         AND status IN ('QUEUED', 'PROCESSING')",
    )
    .bind(workspace)
    .fetch_one(&mut **tx)
    .await?)
}

/// Claims a drawing job that no live server works on. Interrupted jobs, of this server or of one
/// that is no longer alive, come first. Within each group, the oldest job of the workspace whose
/// turn it is.
pub(crate) async fn claim_job(
    tx: &mut Transaction,
    server: &str,
    now: Micros,
) -> Result<Option<Job>> {
    let claimed: Option<Job> = sqlx::query_as(concat!(
        "UPDATE custom_avatar SET status = 'PROCESSING', server = $1, updated_at = $2 \
         WHERE id = (SELECT id FROM custom_avatar AS waits WHERE ",
        claimable_job!(),
        " ORDER BY CASE status WHEN 'PROCESSING' THEN 0 ELSE 1 END, ",
        fairness::last_turn!("avatar", "waits.workspace"),
        ", created_at, id LIMIT 1) RETURNING ",
        job_columns!(),
    ))
    .bind(server)
    .bind(now)
    .fetch_optional(&mut **tx)
    .await?;
    if let Some(job) = &claimed {
        fairness::record_turn(tx, fairness::AVATAR_JOBS, &job.workspace).await?;
    }
    Ok(claimed)
}

/// Records the progress of a drawing; false if this server no longer owns the job, or the job is
/// gone.
pub(crate) async fn update_progress(
    tx: &mut Transaction,
    server: &str,
    id: &str,
    percent: i64,
    at: Micros,
) -> Result<bool> {
    // Poses drawn before a restart are not drawn again, so the progress never decreases.
    let done = sqlx::query(
        "UPDATE custom_avatar SET progress = CASE WHEN progress < $1 THEN $1 ELSE progress END, \
         updated_at = $2 WHERE id = $3 AND server = $4 AND status = 'PROCESSING'",
    )
    .bind(percent)
    .bind(at)
    .bind(id)
    .bind(server)
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Poses as they are stored.
#[derive(Clone, Copy)]
pub(crate) struct Poses<'a> {
    /// Completed share in percent.
    pub(crate) share: i64,
    /// [`Output`] as JSON.
    pub(crate) output: &'a str,
    /// The pose set in base64.
    pub(crate) poses: &'a str,
    /// Version of plan and renderer that drew them.
    pub(crate) plan_version: i64,
}

/// Stores the poses drawn so far. Existing poses with the same or a larger share stay. False if this
/// server no longer owns the job, or the job is gone.
pub(crate) async fn save_partial_poses(
    tx: &mut Transaction,
    server: &str,
    id: &str,
    Poses { share, output, poses, plan_version }: Poses<'_>,
    at: Micros,
) -> Result<bool> {
    let done = sqlx::query(
        "UPDATE custom_avatar SET output = CASE WHEN share < $1 THEN $2 ELSE output END, \
         poses = CASE WHEN share < $1 THEN $3 ELSE poses END, \
         plan_version = CASE WHEN share < $1 THEN $4 ELSE plan_version END, \
         share = CASE WHEN share < $1 THEN $1 ELSE share END, updated_at = $5 \
         WHERE id = $6 AND server = $7 AND status = 'PROCESSING'",
    )
    .bind(share)
    .bind(output)
    .bind(poses)
    .bind(plan_version)
    .bind(at)
    .bind(id)
    .bind(server)
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Finishes a drawing: with its poses, or with the error. Deletes the crop of a photo, unless the
/// avatar is finished and the crop is to be kept. Does nothing if this server no longer owns the
/// job.
pub(crate) async fn finish_job(
    tx: &mut Transaction,
    server: &str,
    id: &str,
    result: std::result::Result<Poses<'_>, &str>,
    at: Micros,
) -> Result<()> {
    let (status, poses, error) = match result {
        Ok(poses) => ("COMPLETED", Some(poses), None),
        Err(reason) => ("FAILED", None, Some(reason)),
    };
    // The crop, or the partial poses.
    tx.mark_pictures_deleted();
    sqlx::query(
        "UPDATE custom_avatar SET status = $1, output = $2, poses = $3, error = $4, \
         source = CASE WHEN $1 = 'COMPLETED' AND keep_source = 1 THEN source ELSE NULL END, \
         updated_at = $5, share = $6, plan_version = $7, \
         progress = CASE WHEN $1 = 'COMPLETED' THEN 100 ELSE progress END WHERE id = $8 \
         AND server = $9 AND status = 'PROCESSING'",
    )
    .bind(status)
    .bind(poses.map(|poses| poses.output))
    .bind(poses.map(|poses| poses.poses))
    .bind(error)
    .bind(at)
    .bind(poses.map_or(0, |poses| poses.share))
    .bind(poses.map_or(0, |poses| poses.plan_version))
    .bind(id)
    .bind(server)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Deletes a custom avatar; false if there was none.
pub(crate) async fn delete(tx: &mut Transaction, workspace: &str, id: &str) -> Result<bool> {
    let done = sqlx::query(
        "DELETE FROM custom_avatar WHERE id = $1 AND workspace = $2 AND base_avatar IS NULL",
    )
    .bind(id)
    .bind(workspace)
    .execute(&mut **tx)
    .await?;
    let found = done.rows_affected() > 0;
    if found {
        tx.mark_pictures_deleted();
    }
    Ok(found)
}

impl Store {
    /// One custom avatar.
    pub(crate) async fn custom_avatar(&self, workspace: &str, id: &str) -> Result<Option<Row>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM custom_avatar \
             WHERE id = $1 AND workspace = $2 AND base_avatar IS NULL"
        );
        Ok(sqlx::query_as(AssertSqlSafe(sql))
            .bind(id)
            .bind(workspace)
            .fetch_optional(self.reader_pool())
            .await?)
    }

    /// Whether there is a drawing job that this server may claim.
    pub(crate) async fn has_claimable_job(&self, server: &str) -> Result<bool> {
        let sql = concat!("SELECT id FROM custom_avatar WHERE ", claimable_job!(), " LIMIT 1");
        let found: Option<String> =
            sqlx::query_scalar(sql).bind(server).fetch_optional(self.reader_pool()).await?;
        Ok(found.is_some())
    }

    /// Rank of the poses of a custom avatar, or of a variant: the version that drew them, and their
    /// completed share in percent. `None` if it has no poses.
    pub(crate) async fn custom_avatar_rank(
        &self,
        workspace: &str,
        id: &str,
    ) -> Result<Option<(i64, i64)>> {
        Ok(sqlx::query_as(
            "SELECT plan_version, share FROM custom_avatar WHERE id = $1 AND workspace = $2 \
             AND poses IS NOT NULL",
        )
        .bind(id)
        .bind(workspace)
        .fetch_optional(self.reader_pool())
        .await?)
    }

    /// The same with the poses, in base64.
    pub(crate) async fn custom_avatar_poses(
        &self,
        workspace: &str,
        id: &str,
    ) -> Result<Option<(i64, i64, String)>> {
        Ok(sqlx::query_as(
            "SELECT plan_version, share, poses FROM custom_avatar WHERE id = $1 AND workspace = $2 \
             AND poses IS NOT NULL",
        )
        .bind(id)
        .bind(workspace)
        .fetch_optional(self.reader_pool())
        .await?)
    }

    /// Id, name and gender of each custom avatar that can be shown.
    pub(crate) async fn showable_custom_avatars(
        &self,
        workspace: &str,
    ) -> Result<Vec<(String, String, String)>> {
        Ok(sqlx::query_as(
            "SELECT id, name, gender FROM custom_avatar \
             WHERE workspace = $1 AND poses IS NOT NULL AND base_avatar IS NULL",
        )
        .bind(workspace)
        .fetch_all(self.reader_pool())
        .await?)
    }

    /// One page and the number of all matches.
    pub(crate) async fn custom_avatar_page(
        &self,
        workspace: &str,
        page: &Page,
    ) -> Result<(Vec<Row>, i64)> {
        let mut snapshot = self.begin_read().await?;
        let mut count = SqlBuilder::new("SELECT COUNT(*) FROM custom_avatar");
        page.push_filter(&mut count, workspace, false, &[]);
        count.push(NO_BACKGROUND);
        let total = count.fetch_count(&mut *snapshot).await?;
        let mut sql = SqlBuilder::new(format!("SELECT {COLUMNS} FROM custom_avatar"));
        page.push_filter(&mut sql, workspace, false, &[]);
        sql.push(NO_BACKGROUND);
        page.push_window(&mut sql);
        let rows = sql.fetch_all(&mut *snapshot).await?;
        snapshot.commit().await?;
        Ok((rows, total))
    }
}
