//! Custom avatars and their jobs.

use sqlx::{AssertSqlSafe, FromRow};

use super::{Error, Page, Result, Sql, Store, Transaction, page::searchable};
use crate::clock::Micros;

/// One custom avatar, without its picture.
#[derive(Clone, Debug, FromRow)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) job_id: String,
    pub(crate) name: String,
    pub(crate) gender: String,
    pub(crate) is_private: i64,
    pub(crate) status: String,
    /// JSON, once COMPLETED.
    pub(crate) output: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) created_at: Micros,
    pub(crate) updated_at: Micros,
}

const COLUMNS: &str = "id, job_id, name, gender, is_private, status, output, error, created_at, updated_at";

/// What is written of a new one.
pub(crate) struct Draft<'a> {
    pub(crate) id: &'a str,
    pub(crate) workspace: &'a str,
    pub(crate) job_id: &'a str,
    pub(crate) name: &'a str,
    pub(crate) gender: &'a str,
    pub(crate) is_private: bool,
    /// Of what the face is made: JSON.
    pub(crate) source: &'a str,
    pub(crate) at: Micros,
}

/// Adds one whose job is QUEUED.
pub(crate) async fn insert(tx: &mut Transaction, draft: &Draft<'_>) -> Result<Row> {
    sqlx::query(
        "INSERT INTO custom_avatar (id, workspace, search, job_id, name, gender, is_private, source, status, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'QUEUED', $9, $9)",
    )
    .bind(draft.id)
    .bind(draft.workspace)
    .bind(searchable(&[draft.id, draft.name]))
    .bind(draft.job_id)
    .bind(draft.name)
    .bind(draft.gender)
    .bind(i64::from(draft.is_private))
    .bind(draft.source)
    .bind(draft.at)
    .execute(&mut **tx)
    .await?;
    let sql = format!("SELECT {COLUMNS} FROM custom_avatar WHERE id = $1");
    sqlx::query_as(AssertSqlSafe(sql)).bind(draft.id).fetch_one(&mut **tx).await.map_err(Error::from)
}

/// Ends every job that waits with a reason; their pictures are not needed any more.
pub(crate) async fn fail_queued(tx: &mut Transaction, error: &str, at: Micros) -> Result<()> {
    sqlx::query(
        "UPDATE custom_avatar SET status = 'FAILED', error = $1, source = NULL, updated_at = $2 WHERE status = 'QUEUED'",
    )
    .bind(error)
    .bind(at)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Removes one; false if there was none.
pub(crate) async fn delete(tx: &mut Transaction, workspace: &str, id: &str) -> Result<bool> {
    let done = sqlx::query("DELETE FROM custom_avatar WHERE id = $1 AND workspace = $2")
        .bind(id)
        .bind(workspace)
        .execute(&mut **tx)
        .await?;
    Ok(done.rows_affected() > 0)
}

impl Store {
    /// One custom avatar.
    pub(crate) async fn custom_avatar(&self, workspace: &str, id: &str) -> Result<Option<Row>> {
        let sql = format!("SELECT {COLUMNS} FROM custom_avatar WHERE id = $1 AND workspace = $2");
        Ok(sqlx::query_as(AssertSqlSafe(sql)).bind(id).bind(workspace).fetch_optional(self.read()).await?)
    }

    /// One page and the number of all matches.
    pub(crate) async fn custom_avatar_page(&self, workspace: &str, page: &Page) -> Result<(Vec<Row>, i64)> {
        let mut count = Sql::new("SELECT COUNT(*) FROM custom_avatar");
        page.filter(&mut count, workspace, false, &[]);
        let total = count.count(self.read()).await?;
        let mut sql = Sql::new(format!("SELECT {COLUMNS} FROM custom_avatar"));
        page.filter(&mut sql, workspace, false, &[]);
        page.window(&mut sql);
        Ok((sql.all(self.read()).await?, total))
    }
}
