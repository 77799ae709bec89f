//! Agents, templates, tools, guardrails and MCP configurations: a JSON document, its encrypted
//! secrets, and the columns for lists.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::AssertSqlSafe;

use super::page::search_text;
use super::{Error, Page, Result, SqlBuilder, Store, Transaction};
use crate::clock::Micros;

/// The table of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Agent,
    Template,
    Tool,
    Guardrail,
    Mcp,
}

impl Table {
    fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Template => "template",
            Self::Tool => "tool",
            Self::Guardrail => "guardrail",
            Self::Mcp => "mcp",
        }
    }
}

/// One document.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) document: String,
    /// Encrypted, and bound to `id`.
    pub(crate) secrets: String,
    pub(crate) created_at: Micros,
    pub(crate) updated_at: Micros,
}

from_row!(Row { id, document, secrets, created_at, updated_at });

/// Values of a document to store.
pub(crate) struct Draft<'a> {
    pub(crate) workspace: &'a str,
    pub(crate) id: &'a str,
    /// Searched in lists, in addition to the id.
    pub(crate) name: &'a str,
    /// Filtered in lists.
    pub(crate) kind: Option<&'a str>,
    pub(crate) document: &'a str,
    pub(crate) secrets: &'a str,
    pub(crate) at: Micros,
}

const COLUMNS: &str = "id, document, secrets, created_at, updated_at";

/// Adds a document.
pub(crate) async fn insert(tx: &mut Transaction, table: Table, draft: &Draft<'_>) -> Result<()> {
    let sql = format!(
        "INSERT INTO {} (id, workspace, search, type, document, secrets, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        table.name()
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(draft.id)
        .bind(draft.workspace)
        .bind(search_text(&[draft.id, draft.name]))
        .bind(draft.kind)
        .bind(draft.document)
        .bind(draft.secrets)
        .bind(draft.at)
        .bind(draft.at)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Replaces a document; false if there is none.
pub(crate) async fn update(tx: &mut Transaction, table: Table, draft: &Draft<'_>) -> Result<bool> {
    let sql = format!(
        "UPDATE {} SET search = $1, type = $2, document = $3, secrets = $4, updated_at = $5 \
         WHERE id = $6 AND workspace = $7",
        table.name()
    );
    let done = sqlx::query(AssertSqlSafe(sql))
        .bind(search_text(&[draft.id, draft.name]))
        .bind(draft.kind)
        .bind(draft.document)
        .bind(draft.secrets)
        .bind(draft.at)
        .bind(draft.id)
        .bind(draft.workspace)
        .execute(&mut **tx)
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Deletes a document; false if there was none.
pub(crate) async fn delete(
    tx: &mut Transaction,
    table: Table,
    workspace: &str,
    id: &str,
) -> Result<bool> {
    let sql = format!("DELETE FROM {} WHERE id = $1 AND workspace = $2", table.name());
    Ok(sqlx::query(AssertSqlSafe(sql))
        .bind(id)
        .bind(workspace)
        .execute(&mut **tx)
        .await?
        .rows_affected()
        > 0)
}

/// One document as the transaction sees it.
pub(crate) async fn find_in(
    tx: &mut Transaction,
    table: Table,
    workspace: &str,
    id: &str,
) -> Result<Option<Row>> {
    let sql = format!("SELECT {COLUMNS} FROM {} WHERE id = $1 AND workspace = $2", table.name());
    Ok(sqlx::query_as(AssertSqlSafe(sql))
        .bind(id)
        .bind(workspace)
        .fetch_optional(&mut **tx)
        .await?)
}

/// Adds a guardrail under the first unused slug of `slug`, `slug_2`, `slug_3` …, and returns that
/// slug. `document` builds the JSON for it.
pub(crate) async fn insert_guardrail(
    tx: &mut Transaction,
    draft: &Draft<'_>,
    slug: &str,
    document: impl Fn(&str) -> String,
) -> Result<String> {
    for n in 1_u64.. {
        let key = if n == 1 { slug.to_owned() } else { format!("{slug}_{n}") };
        let done = sqlx::query(
            "INSERT INTO guardrail \
             (id, workspace, slug, search, document, secrets, created_at, updated_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $7) ON CONFLICT (workspace, slug) DO NOTHING",
        )
        .bind(draft.id)
        .bind(draft.workspace)
        .bind(&key)
        .bind(search_text(&[draft.id, draft.name, &key]))
        .bind(document(&key))
        .bind(draft.secrets)
        .bind(draft.at)
        .execute(&mut **tx)
        .await?;
        if done.rows_affected() > 0 {
            return Ok(key);
        }
    }
    unreachable!("some number is unused")
}

impl Store {
    /// One document.
    pub(crate) async fn document(
        &self,
        table: Table,
        workspace: &str,
        id: &str,
    ) -> Result<Option<Row>> {
        let sql =
            format!("SELECT {COLUMNS} FROM {} WHERE id = $1 AND workspace = $2", table.name());
        Ok(sqlx::query_as(AssertSqlSafe(sql))
            .bind(id)
            .bind(workspace)
            .fetch_optional(self.reader_pool())
            .await?)
    }

    /// Those of `ids` that exist, in any order.
    pub(crate) async fn documents(
        &self,
        table: Table,
        workspace: &str,
        ids: &[String],
    ) -> Result<Vec<Row>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut sql =
            SqlBuilder::new(format!("SELECT {COLUMNS} FROM {} WHERE workspace = ", table.name()));
        sql.bind(workspace.to_owned()).push(" AND id IN (");
        sql.bind_all(ids);
        sql.push(")");
        sql.fetch_all(self.reader_pool()).await
    }

    /// One page and the number of all matches.
    pub(crate) async fn document_page(
        &self,
        table: Table,
        workspace: &str,
        page: &Page,
    ) -> Result<(Vec<Row>, i64)> {
        let mut snapshot = self.begin_read().await?;
        let mut count = SqlBuilder::new(format!("SELECT COUNT(*) FROM {}", table.name()));
        page.push_filter(&mut count, workspace, true, &[]);
        let total = count.fetch_count(&mut *snapshot).await?;
        let mut sql = SqlBuilder::new(format!("SELECT {COLUMNS} FROM {}", table.name()));
        page.push_filter(&mut sql, workspace, true, &[]);
        page.push_window(&mut sql);
        let rows = sql.fetch_all(&mut *snapshot).await?;
        snapshot.commit().await?;
        Ok((rows, total))
    }

    /// The agent with this id in any workspace, with that workspace. For visitors, who belong to
    /// none.
    pub(crate) async fn agent_in_any_workspace(&self, id: &str) -> Result<Option<(String, Row)>> {
        let workspace: Option<String> =
            sqlx::query_scalar("SELECT workspace FROM agent WHERE id = $1")
                .bind(id)
                .fetch_optional(self.reader_pool())
                .await?;
        match workspace {
            None => Ok(None),
            Some(workspace) => {
                Ok(self.document(Table::Agent, &workspace, id).await?.map(|row| (workspace, row)))
            }
        }
    }
}

/// Whether an agent's receiver answered 410 since the agent's last update.
pub(crate) async fn are_webhooks_stopped(tx: &mut Transaction, agent: &str) -> Result<bool> {
    let stopped = sqlx::query_scalar::<_, i64>("SELECT 1 FROM agent WHERE id = $1 AND stopped = 1");
    Ok(stopped.bind(agent).fetch_optional(&mut **tx).await?.is_some())
}

/// Records whether webhooks to an agent's receiver are stopped (after a 410).
pub(crate) async fn set_webhooks_stopped(
    tx: &mut Transaction,
    agent: &str,
    stopped: bool,
) -> Result<()> {
    sqlx::query("UPDATE agent SET stopped = $1 WHERE id = $2")
        .bind(i64::from(stopped))
        .bind(agent)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Counts one more conversation of an agent and returns its number, from 0.
pub(crate) async fn next_conversation_number(tx: &mut Transaction, agent: &str) -> Result<i64> {
    let calls: Option<i64> =
        sqlx::query_scalar("UPDATE agent SET calls = calls + 1 WHERE id = $1 RETURNING calls")
            .bind(agent)
            .fetch_optional(&mut **tx)
            .await?;
    Ok(calls.unwrap_or(1) - 1)
}

/// A stored document, parsed.
pub(crate) fn parse_document<D: DeserializeOwned>(document: &str) -> Result<D> {
    serde_json::from_str(document).map_err(|e| Error::CorruptRow("document", e.to_string()))
}

/// The documents of these rows, parsed.
pub(crate) fn parse_documents<D: DeserializeOwned>(rows: &[Row]) -> Result<Vec<D>> {
    rows.iter().map(|row| parse_document(&row.document)).collect()
}

/// The text of a document.
#[expect(clippy::expect_used, reason = "plain data serializes")]
pub(crate) fn to_text<D: Serialize>(document: &D) -> String {
    serde_json::to_string(document).expect("a document serializes to JSON")
}
