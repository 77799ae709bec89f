//! The servers that share the database, for their operator.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::clock::{self, Iso8601};
use crate::error::ApiError;
use crate::http::auth::ApiCaller;
use crate::http::extract::{ListResponse, PageQuery};
use crate::state::AppState;
use crate::state::server_report::{Readiness, ServerReport};
use crate::store::server::Row;

/// Lost servers are listed for a day.
const LOST_LISTED: clock::Micros = 86_400_000_000;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/ext/servers", get(list))
}

/// A server.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Server")]
pub(crate) struct ServerItem<'a> {
    #[schemars(extend("format" = "uuid"))]
    id: &'a str,
    version: &'a str,
    /// `server.region`
    region: &'a str,
    /// Running calls.
    calls: u64,
    /// Share of CPU time that `limits.load` is compared with, 0 to 1.
    load: f64,
    #[schemars(extend("enum" = ["ready", "full", "draining", "unavailable", "lost"]))]
    state: &'a str,
    /// Last renewal of its lease; `null` if no other server uses the database.
    renewed_at: Option<Iso8601>,
    /// Whether this server has answered.
    is_self: bool,
}

/// By id, for the operator only: the list tells what other workspaces do. Servers that were stopped
/// are not in the list.
async fn list(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    PageQuery(page): PageQuery<false>,
) -> Result<ListResponse, ApiError> {
    if *caller.workspace != *state.default_workspace {
        return Ok(ListResponse(Vec::new(), 0));
    }
    let own = &*state.server_id;
    let items = if state.store.is_shared() {
        let rows = state.store.servers().await?;
        rows.iter().filter(|row| is_listed(row)).map(|row| row_to_json(row, own)).collect()
    } else {
        vec![to_json(own, &state.reporter().report(), None, None, true)]
    };
    Ok(ListResponse::page_of(items, &page))
}

fn is_listed(row: &Row) -> bool {
    !row.report.is_empty() && (row.lease_until > 0 || row.now - row.renewed_at < LOST_LISTED)
}

fn row_to_json(row: &Row, own: &str) -> Value {
    let lost = (row.lease_until < row.now).then_some("lost");
    // A server of the release before reports nothing.
    let renewed_at = (row.renewed_at > 0).then_some(Iso8601(row.renewed_at));
    to_json(&row.id, &row.report, lost, renewed_at, row.id == own)
}

fn to_json(
    id: &str,
    report: &str,
    lost: Option<&'static str>,
    renewed_at: Option<Iso8601>,
    is_self: bool,
) -> Value {
    // Another release may have written it.
    let report: ServerReport = serde_json::from_str(report).unwrap_or_default();
    json!(ServerItem {
        id,
        version: &report.version,
        region: &report.region,
        calls: report.calls,
        load: (report.load * 1e3).round() / 1e3,
        state: lost.unwrap_or(match report.readiness {
            Readiness::Ready => "ready",
            Readiness::Full => "full",
            Readiness::Draining => "draining",
            Readiness::Unavailable => "unavailable",
        }),
        renewed_at,
        is_self,
    })
}
