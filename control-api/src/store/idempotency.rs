//! Responses to requests that a client may send twice, by the key that it chose
//! (`Idempotency-Key`).

use super::{Db, Result, Store, Transaction};
use crate::clock::Micros;

/// How long a key is remembered.
const LIFETIME: Micros = 24 * 3600 * 1_000_000;

/// What a key stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// SHA-256 of the request.
    pub(crate) request: String,
    /// Id of the record that the request created.
    pub(crate) resource: String,
    /// The response, encrypted for the record.
    pub(crate) response: String,
}

from_row!(Row { request, resource, response });

/// The response to an earlier request with this key, if it is remembered at `now`.
pub(crate) async fn find<'e>(
    executor: impl sqlx::Executor<'e, Database = Db>,
    workspace: &str,
    key: &str,
    now: Micros,
) -> Result<Option<Row>> {
    Ok(sqlx::query_as(
        "SELECT request, resource, response FROM idempotency \
         WHERE workspace = $1 AND key = $2 AND created_at > $3",
    )
    .bind(workspace)
    .bind(key)
    .bind(now - LIFETIME)
    .fetch_optional(executor)
    .await?)
}

/// Remembers the response to a request. An earlier one with this key is forgotten.
pub(crate) async fn insert(
    tx: &mut Transaction,
    workspace: &str,
    key: &str,
    row: &Row,
    now: Micros,
) -> Result<()> {
    sqlx::query(
        "INSERT INTO idempotency (workspace, key, request, resource, response, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (workspace, key) DO UPDATE SET \
         request = excluded.request, resource = excluded.resource, response = excluded.response, \
         created_at = excluded.created_at",
    )
    .bind(workspace)
    .bind(key)
    .bind(&row.request)
    .bind(&row.resource)
    .bind(&row.response)
    .bind(now)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

impl Store {
    /// Whether there are keys that are no longer remembered.
    pub(crate) async fn has_old_idempotency_keys(&self, now: Micros) -> Result<bool> {
        let sql = "SELECT key FROM idempotency WHERE created_at <= $1 LIMIT 1";
        let found: Option<String> =
            sqlx::query_scalar(sql).bind(now - LIFETIME).fetch_optional(self.reader_pool()).await?;
        Ok(found.is_some())
    }

    /// The response to an earlier request with this key, if it is remembered at `now`.
    pub(crate) async fn idempotent_response(
        &self,
        workspace: &str,
        key: &str,
        now: Micros,
    ) -> Result<Option<Row>> {
        find(self.reader_pool(), workspace, key, now).await
    }
}

/// Forgets the keys that are no longer remembered.
pub(crate) async fn delete_old(tx: &mut Transaction, now: Micros) -> Result<()> {
    sqlx::query("DELETE FROM idempotency WHERE created_at <= $1")
        .bind(now - LIFETIME)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
