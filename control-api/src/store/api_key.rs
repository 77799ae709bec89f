//! Workspaces and API keys. Only the SHA-256 of a key is stored.

use sqlx::AssertSqlSafe;

use super::{Error, Result, Store, Transaction, new_id};
use crate::clock::{self, Micros};
use crate::scope::Scope;

/// One key, without its secret value.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) workspace: String,
    pub(crate) name: String,
    pub(crate) prefix: String,
    pub(crate) created_at: Micros,
    pub(crate) expires_at: Option<Micros>,
    /// Name of its [`Scope`].
    pub(crate) scope: String,
    /// With a resolution of one minute.
    pub(crate) last_used_at: Option<Micros>,
}

from_row!(Row { id, workspace, name, prefix, created_at, expires_at, scope, last_used_at });

impl Row {
    /// The scope of the key.
    pub(crate) fn scope(&self) -> Result<Scope> {
        self.scope.parse().map_err(|_| Error::CorruptRow("api_key", "its scope is unknown".into()))
    }
}

const COLUMNS: &str = "id, workspace, name, prefix, created_at, expires_at, scope, last_used_at";

/// Values of a new key.
pub(crate) struct Draft<'a> {
    pub(crate) workspace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) prefix: &'a str,
    pub(crate) hash: &'a str,
    pub(crate) expires_at: Option<Micros>,
    pub(crate) scope: Scope,
}

/// Adds a key and returns its id.
pub(crate) async fn insert(tx: &mut Transaction, draft: &Draft<'_>) -> Result<String> {
    let id = new_id();
    sqlx::query(
        "INSERT INTO api_key (id, workspace, name, prefix, hash, created_at, expires_at, scope) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(&id)
    .bind(draft.workspace)
    .bind(draft.name)
    .bind(draft.prefix)
    .bind(draft.hash)
    .bind(clock::now())
    .bind(draft.expires_at)
    .bind(draft.scope.name())
    .execute(&mut **tx)
    .await?;
    Ok(id)
}

/// Stores the time of a key's last use, unless a use after `stale` is already stored.
pub(crate) async fn record_use(
    tx: &mut Transaction,
    hash: &str,
    at: Micros,
    stale: Micros,
) -> Result<()> {
    sqlx::query(
        "UPDATE api_key SET last_used_at = $1 WHERE hash = $2 \
         AND (last_used_at IS NULL OR last_used_at <= $3)",
    )
    .bind(at)
    .bind(hash)
    .bind(stale)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Id of the workspace with this name, created if there is none; and whether it was created.
pub(crate) async fn get_or_create_workspace(
    tx: &mut Transaction,
    name: &str,
) -> Result<(String, bool)> {
    let known: Option<String> = sqlx::query_scalar("SELECT id FROM workspace WHERE name = $1")
        .bind(name)
        .fetch_optional(&mut **tx)
        .await?;
    if let Some(id) = known {
        return Ok((id, false));
    }
    let id = new_id();
    sqlx::query("INSERT INTO workspace (id, name, created_at) VALUES ($1, $2, $3)")
        .bind(&id)
        .bind(name)
        .bind(clock::now())
        .execute(&mut **tx)
        .await?;
    Ok((id, true))
}

/// Revokes a key, of one workspace or of any; false if there is none.
pub(crate) async fn delete(
    tx: &mut Transaction,
    workspace: Option<&str>,
    id: &str,
) -> Result<bool> {
    let done = sqlx::query("DELETE FROM api_key WHERE id = $1 AND ($2 IS NULL OR workspace = $2)")
        .bind(id)
        .bind(workspace)
        .execute(&mut **tx)
        .await?;
    Ok(done.rows_affected() > 0)
}

impl Store {
    /// The key with this hash, expired or not.
    pub(crate) async fn api_key_by_hash(&self, hash: &str) -> Result<Option<Row>> {
        let sql = format!("SELECT {COLUMNS} FROM api_key WHERE hash = $1");
        Ok(sqlx::query_as(AssertSqlSafe(sql)).bind(hash).fetch_optional(self.reader_pool()).await?)
    }

    /// All keys, of one workspace or of all, newest first.
    pub(crate) async fn api_keys(&self, workspace: Option<&str>) -> Result<Vec<Row>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM api_key WHERE $1 IS NULL OR workspace = $1 \
             ORDER BY created_at DESC, id DESC"
        );
        Ok(sqlx::query_as(AssertSqlSafe(sql)).bind(workspace).fetch_all(self.reader_pool()).await?)
    }

    /// Id of the workspace with this name or id.
    pub(crate) async fn find_workspace(&self, name: &str) -> Result<Option<String>> {
        Ok(sqlx::query_scalar("SELECT id FROM workspace WHERE id = $1 OR name = $1")
            .bind(name)
            .fetch_optional(self.reader_pool())
            .await?)
    }

    /// The name of a workspace.
    pub(crate) async fn workspace_name(&self, id: &str) -> Result<Option<String>> {
        Ok(sqlx::query_scalar("SELECT name FROM workspace WHERE id = $1")
            .bind(id)
            .fetch_optional(self.reader_pool())
            .await?)
    }
}
