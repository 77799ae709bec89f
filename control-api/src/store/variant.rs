//! Variants of avatars, with another background, framing or size: rows of `custom_avatar` with a
//! `base_avatar`. All agents of a workspace that want the same share one row. Their jobs are those
//! of [`super::custom_avatar`].
//!
//! An agent refers to the row that it wants (`background`) and, until that one is finished, to the
//! finished one that its calls show (`shown_background`). A video refers to the row that it shows
//! (`picture`). A row to which nothing refers is deleted.

use super::framing::{Framing, VideoSize};
use super::{Db, Result, SqlBuilder, Store, Transaction};
use crate::clock::Micros;

/// Status of a finished row.
const COMPLETED: &str = "COMPLETED";
/// Status of a row whose drawing failed.
const FAILED: &str = "FAILED";

/// A row, without its poses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) id: String,
    pub(crate) base_avatar: String,
    pub(crate) status: String,
}

from_row!(Set { id, base_avatar, status });

impl Set {
    pub(crate) fn is_completed(&self) -> bool {
        self.status == COMPLETED
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.status == FAILED
    }
}

/// Values of a new row.
pub(crate) struct Draft<'a> {
    pub(crate) id: &'a str,
    pub(crate) workspace: &'a str,
    /// `avatar_key_id` of the avatar, stock or custom.
    pub(crate) base_avatar: &'a str,
    /// `models::face::background::Background` as JSON, encrypted for `id` if it contains a picture;
    /// `None`: the avatar's own.
    pub(crate) background: Option<&'a str>,
    pub(crate) framing: Framing,
    pub(crate) size: VideoSize,
    /// Identifies what it looks like.
    pub(crate) content_key: &'a str,
    /// SHA-256 of the picture.
    pub(crate) image_hash: Option<&'a str>,
    pub(crate) at: Micros,
}

/// Adds a row whose job is QUEUED.
pub(crate) async fn insert(tx: &mut Transaction, draft: &Draft<'_>) -> Result<()> {
    sqlx::query(
        "INSERT INTO custom_avatar (id, workspace, search, job_id, name, gender, is_private, \
         base_avatar, background, framing, size, content_key, image_hash, status, created_at, \
         updated_at) \
         VALUES ($1, $2, '', $1, '', '', 1, $3, $4, $5, $6, $7, $8, 'QUEUED', $9, $9)",
    )
    .bind(draft.id)
    .bind(draft.workspace)
    .bind(draft.base_avatar)
    .bind(draft.background)
    .bind(draft.framing.name())
    .bind(draft.size.name())
    .bind(draft.content_key)
    .bind(draft.image_hash)
    .bind(draft.at)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// The row with this content.
pub(crate) async fn find(
    tx: &mut Transaction,
    workspace: &str,
    content_key: &str,
) -> Result<Option<Set>> {
    Ok(sqlx::query_as(
        "SELECT id, base_avatar, status FROM custom_avatar \
         WHERE workspace = $1 AND content_key = $2",
    )
    .bind(workspace)
    .bind(content_key)
    .fetch_optional(&mut **tx)
    .await?)
}

/// Whether a row is not drawn yet: an avatar itself, or a variant.
pub(crate) async fn is_pending(tx: &mut Transaction, id: &str) -> Result<bool> {
    let found: Option<String> = sqlx::query_scalar(
        "SELECT id FROM custom_avatar WHERE id = $1 AND status IN ('QUEUED', 'PROCESSING')",
    )
    .bind(id)
    .fetch_optional(&mut **tx)
    .await?;
    Ok(found.is_some())
}

/// Queues a failed job once more.
pub(crate) async fn retry(tx: &mut Transaction, id: &str, at: Micros) -> Result<()> {
    sqlx::query(
        "UPDATE custom_avatar SET status = 'QUEUED', progress = 0, error = NULL, updated_at = $1 \
         WHERE id = $2 AND status = 'FAILED'",
    )
    .bind(at)
    .bind(id)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Id and encrypted background of a row with this picture.
pub(crate) async fn find_image(
    tx: &mut Transaction,
    workspace: &str,
    hash: &str,
) -> Result<Option<(String, String)>> {
    Ok(sqlx::query_as(
        "SELECT id, background FROM custom_avatar \
         WHERE workspace = $1 AND image_hash = $2 ORDER BY id LIMIT 1",
    )
    .bind(workspace)
    .bind(hash)
    .fetch_optional(&mut **tx)
    .await?)
}

/// The rows that an agent refers to: the one that it wants, and the one that its calls show until
/// then.
pub(crate) async fn of_agent(tx: &mut Transaction, agent: &str) -> Result<[Option<Set>; 2]> {
    let mut found = [None, None];
    let statements = [
        "SELECT id, base_avatar, status FROM custom_avatar \
         WHERE id = (SELECT background FROM agent WHERE id = $1)",
        "SELECT id, base_avatar, status FROM custom_avatar \
         WHERE id = (SELECT shown_background FROM agent WHERE id = $1)",
    ];
    for (found, sql) in found.iter_mut().zip(statements) {
        *found = sqlx::query_as(sql).bind(agent).fetch_optional(&mut **tx).await?;
    }
    Ok(found)
}

/// Sets the ids of the rows that an agent refers to.
pub(crate) async fn assign(
    tx: &mut Transaction,
    agent: &str,
    wanted: Option<&str>,
    shown: Option<&str>,
) -> Result<()> {
    sqlx::query("UPDATE agent SET background = $1, shown_background = $2 WHERE id = $3")
        .bind(wanted)
        .bind(shown)
        .bind(agent)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Number of rows of a workspace that agents want, except the agent `agent` and the row `id`.
pub(crate) async fn count_others(
    tx: &mut Transaction,
    workspace: &str,
    agent: &str,
    id: &str,
) -> Result<i64> {
    Ok(sqlx::query_scalar(
        "SELECT COUNT(DISTINCT background) FROM agent \
         WHERE workspace = $1 AND background IS NOT NULL AND id <> $2 AND background <> $3",
    )
    .bind(workspace)
    .bind(agent)
    .bind(id)
    .fetch_one(&mut **tx)
    .await?)
}

/// Deletes the rows of a workspace that no agent and no video refers to.
pub(crate) async fn delete_unused(tx: &mut Transaction, workspace: &str) -> Result<()> {
    let done = sqlx::query(
        "DELETE FROM custom_avatar WHERE workspace = $1 AND base_avatar IS NOT NULL \
         AND id NOT IN (SELECT background FROM agent \
         WHERE workspace = $1 AND background IS NOT NULL) \
         AND id NOT IN (SELECT shown_background FROM agent \
         WHERE workspace = $1 AND shown_background IS NOT NULL) \
         AND id NOT IN (SELECT picture FROM video \
         WHERE workspace = $1 AND picture IS NOT NULL)",
    )
    .bind(workspace)
    .execute(&mut **tx)
    .await?;
    if done.rows_affected() > 0 {
        tx.mark_pictures_deleted();
    }
    Ok(())
}

/// Deletes the rows of a deleted avatar, and the references of agents to them.
pub(crate) async fn delete_of_avatar(
    tx: &mut Transaction,
    workspace: &str,
    avatar: &str,
) -> Result<()> {
    for sql in [
        "UPDATE agent SET background = NULL WHERE workspace = $1 AND background IN \
         (SELECT id FROM custom_avatar WHERE workspace = $1 AND base_avatar = $2)",
        "UPDATE agent SET shown_background = NULL WHERE workspace = $1 AND shown_background IN \
         (SELECT id FROM custom_avatar WHERE workspace = $1 AND base_avatar = $2)",
        "DELETE FROM custom_avatar WHERE workspace = $1 AND base_avatar = $2",
    ] {
        let done = sqlx::query(sql).bind(workspace).bind(avatar).execute(&mut **tx).await?;
        if done.rows_affected() > 0 {
            tx.mark_pictures_deleted();
        }
    }
    Ok(())
}

/// Once a row is finished, the agents that want it need no other one.
pub(crate) async fn release_previous(
    tx: &mut Transaction,
    workspace: &str,
    id: &str,
) -> Result<()> {
    let done = sqlx::query(
        "UPDATE agent SET shown_background = NULL \
         WHERE workspace = $1 AND shown_background IS NOT NULL AND background = \
         (SELECT id FROM custom_avatar WHERE id = $2 AND status = 'COMPLETED')",
    )
    .bind(workspace)
    .bind(id)
    .execute(&mut **tx)
    .await?;
    if done.rows_affected() > 0 {
        delete_unused(tx, workspace).await?;
    }
    Ok(())
}

/// What a custom avatar is drawn from.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) name: String,
    pub(crate) gender: String,
    /// A character as JSON.
    pub(crate) character: Option<String>,
    /// Or the crop of a photo, encrypted.
    pub(crate) source: Option<String>,
    /// Whether the crop stays when the avatar is finished.
    pub(crate) keep_source: i64,
    /// [`VideoSize`] of the avatar itself.
    pub(crate) size: String,
}

from_row!(Base { name, gender, character = "person", source, keep_source, size });

/// What a custom avatar is drawn from; `None` if it was deleted.
pub(crate) async fn find_base<'e>(
    executor: impl sqlx::Executor<'e, Database = Db>,
    workspace: &str,
    avatar: &str,
) -> Result<Option<Base>> {
    Ok(sqlx::query_as(
        "SELECT name, gender, person, source, keep_source, size FROM custom_avatar \
         WHERE id = $1 AND workspace = $2 AND base_avatar IS NULL",
    )
    .bind(avatar)
    .bind(workspace)
    .fetch_optional(executor)
    .await?)
}

/// How far the variant is that an agent wants.
#[derive(Debug)]
pub(crate) struct AgentVariant {
    pub(crate) agent: String,
    pub(crate) status: String,
    /// The finished row that calls show until then.
    pub(crate) shown: Option<String>,
}

from_row!(AgentVariant { agent, status, shown });

/// What calls show.
#[derive(Debug)]
pub(crate) struct ShownVariant {
    pub(crate) id: String,
    /// [`super::custom_avatar::Output`] as JSON.
    pub(crate) output: String,
}

from_row!(ShownVariant { id, output });

impl Store {
    /// What a custom avatar is drawn from; `None` if it was deleted.
    pub(crate) async fn variant_base(&self, workspace: &str, avatar: &str) -> Result<Option<Base>> {
        find_base(self.reader_pool(), workspace, avatar).await
    }

    /// The variants of those of `agents` that want one.
    pub(crate) async fn agent_variants(
        &self,
        workspace: &str,
        agents: &[String],
    ) -> Result<Vec<AgentVariant>> {
        if agents.is_empty() {
            return Ok(Vec::new());
        }
        let mut sql = SqlBuilder::new(
            "SELECT agent.id AS agent, custom_avatar.status AS status, \
             agent.shown_background AS shown FROM agent \
             JOIN custom_avatar ON custom_avatar.id = agent.background WHERE agent.workspace = ",
        );
        sql.bind(workspace.to_owned()).push(" AND agent.id IN (");
        sql.bind_all(agents);
        sql.push(")");
        sql.fetch_all(self.reader_pool()).await
    }

    /// Ids and sizes ([`VideoSize`]) of the custom avatars among `ids`.
    pub(crate) async fn custom_avatar_sizes(
        &self,
        workspace: &str,
        ids: &[String],
    ) -> Result<Vec<(String, String)>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut sql = SqlBuilder::new(
            "SELECT id, size FROM custom_avatar WHERE base_avatar IS NULL AND workspace = ",
        );
        sql.bind(workspace.to_owned()).push(" AND id IN (");
        sql.bind_all(ids);
        sql.push(")");
        sql.fetch_all(self.reader_pool()).await
    }

    /// What a call with an agent's avatar `base` shows, if it is to show the variant with
    /// `content_key`: that one, or else a finished one that the agent refers to.
    pub(crate) async fn shown_variant(
        &self,
        workspace: &str,
        agent: &str,
        base: &str,
        content_key: &str,
    ) -> Result<Option<ShownVariant>> {
        Ok(sqlx::query_as(
            "SELECT id, output FROM custom_avatar \
             WHERE workspace = $1 AND base_avatar = $2 AND status = 'COMPLETED' \
             AND output IS NOT NULL AND (content_key = $3 \
             OR id IN (SELECT background FROM agent WHERE id = $4 AND background IS NOT NULL) \
             OR id IN (SELECT shown_background FROM agent \
             WHERE id = $4 AND shown_background IS NOT NULL)) \
             ORDER BY CASE WHEN content_key = $3 THEN 0 ELSE 1 END, id LIMIT 1",
        )
        .bind(workspace)
        .bind(base)
        .bind(content_key)
        .bind(agent)
        .fetch_optional(self.reader_pool())
        .await?)
    }
}
