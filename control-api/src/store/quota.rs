//! What a workspace has, for the limits that a server may set.

use super::{Result, Store, Transaction};
use crate::clock::Micros;

/// Microseconds of a day.
const DAY: Micros = 24 * 3600 * 1_000_000;

/// The day of an instant: days since the Unix epoch, UTC.
pub(crate) fn day(at: Micros) -> i64 {
    at.div_euclid(DAY)
}

/// The first instant of a day.
pub(crate) fn begin(day: i64) -> Micros {
    day * DAY
}

/// How many agents a workspace has.
pub(crate) async fn agents(tx: &mut Transaction, workspace: &str) -> Result<i64> {
    Ok(sqlx::query_scalar("SELECT COUNT(*) FROM agent WHERE workspace = $1")
        .bind(workspace)
        .fetch_one(&mut **tx)
        .await?)
}

/// How many conversations a workspace made on a day, those included that were erased since.
pub(crate) async fn conversations(tx: &mut Transaction, workspace: &str, day: i64) -> Result<i64> {
    let made = sqlx::query_scalar("SELECT made FROM workspace WHERE id = $1 AND made_on = $2");
    Ok(made.bind(workspace).bind(day).fetch_optional(&mut **tx).await?.unwrap_or(0))
}

/// Bytes that a workspace stores, as they are stored: what its agents, templates, tools, guardrails, MCP configurations, documents of knowledge
/// and own avatars hold. Both databases tell the length of a long text without reading it.
pub(crate) async fn bytes(tx: &mut Transaction, workspace: &str) -> Result<i64> {
    const SUMS: &str = concat!(
        "SELECT (SELECT COALESCE(SUM(OCTET_LENGTH(document) + OCTET_LENGTH(secrets)), 0) FROM agent WHERE workspace = $1)",
        " + (SELECT COALESCE(SUM(OCTET_LENGTH(document) + OCTET_LENGTH(secrets)), 0) FROM template WHERE workspace = $1)",
        " + (SELECT COALESCE(SUM(OCTET_LENGTH(document) + OCTET_LENGTH(secrets)), 0) FROM tool WHERE workspace = $1)",
        " + (SELECT COALESCE(SUM(OCTET_LENGTH(document) + OCTET_LENGTH(secrets)), 0) FROM guardrail WHERE workspace = $1)",
        " + (SELECT COALESCE(SUM(OCTET_LENGTH(document) + OCTET_LENGTH(secrets)), 0) FROM mcp WHERE workspace = $1)",
        " + (SELECT COALESCE(SUM(OCTET_LENGTH(body) + COALESCE(OCTET_LENGTH(source), 0) + COALESCE(OCTET_LENGTH(directions), 0)), 0)",
        " FROM kb_document WHERE kb IN (SELECT id FROM kb WHERE workspace = $1))",
        " + (SELECT COALESCE(SUM(COALESCE(OCTET_LENGTH(source), 0) + COALESCE(OCTET_LENGTH(person), 0)",
        " + COALESCE(OCTET_LENGTH(output), 0) + COALESCE(OCTET_LENGTH(poses), 0)), 0) FROM custom_avatar WHERE workspace = $1)",
    );
    Ok(sqlx::query_scalar(SUMS).bind(workspace).fetch_one(&mut **tx).await?)
}

impl Store {
    /// Conversations of a workspace that run, on whatever server.
    pub(crate) async fn running_of(&self, workspace: &str) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar("SELECT id FROM conversation WHERE status = 'IN_PROGRESS' AND workspace = $1")
            .bind(workspace)
            .fetch_all(self.read())
            .await?)
    }

    /// Whether a conversation waits for its user.
    pub(crate) async fn is_started(&self, id: &str) -> Result<bool> {
        let found =
            sqlx::query_scalar::<_, i64>("SELECT 1 FROM conversation WHERE id = $1 AND status = 'STARTED'");
        Ok(found.bind(id).fetch_optional(self.read()).await?.is_some())
    }
}
