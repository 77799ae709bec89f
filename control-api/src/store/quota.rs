//! Current use of a workspace, for the quotas that a server may set.

use super::{Result, Store, Transaction};
use crate::clock::Micros;

/// Microseconds per day.
const DAY: Micros = 24 * 3600 * 1_000_000;

/// The day of an instant: days since the Unix epoch, UTC.
pub(crate) fn day_number(at: Micros) -> i64 {
    at.div_euclid(DAY)
}

/// The first instant of a day.
pub(crate) fn day_start(day: i64) -> Micros {
    day * DAY
}

/// Number of agents of a workspace.
pub(crate) async fn count_agents(tx: &mut Transaction, workspace: &str) -> Result<i64> {
    Ok(sqlx::query_scalar("SELECT COUNT(*) FROM agent WHERE workspace = $1")
        .bind(workspace)
        .fetch_one(&mut **tx)
        .await?)
}

/// Number of conversations that a workspace created on a day, including those erased since.
pub(crate) async fn count_conversations(
    tx: &mut Transaction,
    workspace: &str,
    day: i64,
) -> Result<i64> {
    let query = sqlx::query_scalar("SELECT made FROM workspace WHERE id = $1 AND made_on = $2");
    Ok(query.bind(workspace).bind(day).fetch_optional(&mut **tx).await?.unwrap_or(0))
}

/// Number of bytes that a workspace stores, in their stored form: agents, templates, tools,
/// guardrails, MCP configurations, credentials, knowledge documents, custom avatars, and videos with
/// their files. Both databases know the length of a long text without reading it.
pub(crate) async fn stored_bytes(tx: &mut Transaction, workspace: &str) -> Result<i64> {
    const SUMS: &str = concat!(
        "SELECT (SELECT COALESCE(SUM(OCTET_LENGTH(document) + OCTET_LENGTH(secrets)), 0) \
         FROM agent WHERE workspace = $1)",
        " + (SELECT COALESCE(SUM(OCTET_LENGTH(document) + OCTET_LENGTH(secrets)), 0) \
         FROM template WHERE workspace = $1)",
        " + (SELECT COALESCE(SUM(OCTET_LENGTH(document) + OCTET_LENGTH(secrets)), 0) \
         FROM tool WHERE workspace = $1)",
        " + (SELECT COALESCE(SUM(OCTET_LENGTH(document) + OCTET_LENGTH(secrets)), 0) \
         FROM guardrail WHERE workspace = $1)",
        " + (SELECT COALESCE(SUM(OCTET_LENGTH(document) + OCTET_LENGTH(secrets)), 0) \
         FROM mcp WHERE workspace = $1)",
        " + (SELECT COALESCE(SUM(OCTET_LENGTH(secrets)), 0) FROM credential WHERE workspace = $1)",
        " + (SELECT COALESCE(SUM(OCTET_LENGTH(body) + COALESCE(OCTET_LENGTH(source), 0) \
         + COALESCE(OCTET_LENGTH(directions), 0)), 0)",
        " FROM kb_document WHERE kb IN (SELECT id FROM kb WHERE workspace = $1))",
        " + (SELECT COALESCE(SUM(COALESCE(OCTET_LENGTH(source), 0) \
         + COALESCE(OCTET_LENGTH(person), 0) + COALESCE(OCTET_LENGTH(background), 0)",
        " + COALESCE(OCTET_LENGTH(output), 0) + COALESCE(OCTET_LENGTH(poses), 0)), 0) \
         FROM custom_avatar WHERE workspace = $1)",
        " + (SELECT CAST(COALESCE(SUM(OCTET_LENGTH(document) + OCTET_LENGTH(secrets) + bytes), 0) \
         AS BIGINT) FROM video WHERE workspace = $1)",
    );
    Ok(sqlx::query_scalar(SUMS).bind(workspace).fetch_one(&mut **tx).await?)
}

impl Store {
    /// Conversations of a workspace that are in progress, on any server.
    pub(crate) async fn running_conversations_of(&self, workspace: &str) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(
            "SELECT id FROM conversation WHERE status = 'IN_PROGRESS' AND workspace = $1",
        )
        .bind(workspace)
        .fetch_all(self.reader_pool())
        .await?)
    }

    /// Whether a conversation is waiting for its user.
    pub(crate) async fn is_started(&self, id: &str) -> Result<bool> {
        let found = sqlx::query_scalar::<_, i64>(
            "SELECT 1 FROM conversation WHERE id = $1 AND status = 'STARTED'",
        );
        Ok(found.bind(id).fetch_optional(self.reader_pool()).await?.is_some())
    }
}
