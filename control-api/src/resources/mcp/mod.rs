//! MCP (tool server) configurations: `/v1/ext/mcp`. Their sessions in a call are in [`session`].

mod budget;
mod http;
mod legacy_sse;
pub(crate) mod session;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde_json::{Value, json};

use crate::clock;
use crate::error::{ApiError, Missing, OwnText};
use crate::http::auth::Caller;
use crate::http::extract::{Json, Listed, Paged, Path};
use crate::http::quota;
use crate::http::validate::{Faults, Fields, is_http};
use crate::resources::document_resource::{self, Kept};
use crate::resources::secret_headers::{self, Headers};
use crate::state::AppState;
use crate::store::document::{self, Draft, Table};
use crate::store::{fresh_id, secrets};

type Answer = Result<axum::Json<Value>, ApiError>;

const MCP: Kept =
    Kept { table: Table::Mcp, missing: Missing::Mcp, unreadable: "Failed to retrieve MCP details" };
/// Values of `type`: whichever transport the server supports, streamable HTTP, or the legacy
/// transport with server-sent events.
const TYPES: &[&str] = &["shttp/sse", "shttp", "sse"];

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/mcp", post(create).get(list))
        .route("/v1/ext/mcp/{id}", get(one).put(replace).delete(remove))
        .layer(Extension(OwnText::of(MCP.unreadable)))
}

/// Parses an MCP configuration. `old` are the header values of the one that it replaces.
fn parse(body: Value, old: Option<&Headers>) -> Result<(Value, Headers), ApiError> {
    let faults = Faults::default();
    let fields = Fields::body(body, &faults)?;
    let name = fields.required("name");
    let description = fields.text("description").unwrap_or_default();
    let kind = fields.choice("type", TYPES, TYPES[0]);
    let request = fields.object("request_config");
    let url = request.required("url");
    if !url.is_empty() && !is_http(&url) {
        request.fault("url", "must be a valid http(s) URL");
    }
    let (shown, secret) = secret_headers::take(&request, old);
    let document = json!({
        "name": name,
        "description": description,
        "type": kind,
        "request_config": {"url": url, "headers": shown},
    });
    faults.unless((document, secret))
}

fn draft<'a>(
    workspace: &'a str,
    id: &'a str,
    document: &'a Value,
    text: &'a str,
    secrets: &'a str,
) -> Draft<'a> {
    let name = document["name"].as_str().unwrap_or_default();
    Draft { workspace, id, name, kind: document["type"].as_str(), document: text, secrets, at: clock::now() }
}

async fn create(State(shared): State<Arc<AppState>>, caller: Caller, Json(body): Json) -> Answer {
    let (document, headers) = parse(body, None)?;
    let id = fresh_id();
    let sealed = secrets::seal(&shared.vault, &id, &headers);
    let text = document.to_string();
    let draft = draft(&caller.workspace, &id, &document, &text, &sealed);
    let created_at = clock::iso(draft.at);
    let mut tx = shared.store.write().await?;
    quota::bytes(&shared, &mut tx, &caller.workspace, text.len()).await?;
    document::insert(&mut tx, Table::Mcp, &draft).await?;
    tx.commit().await?;
    Ok(axum::Json(json!({
        "id": id,
        "name": document["name"],
        "description": document["description"],
        "type": document["type"],
        "created_at": created_at,
    })))
}

async fn list(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Paged(page): Paged<true>,
) -> Result<Listed, ApiError> {
    MCP.list(&shared, &caller, &page).await
}

async fn one(State(shared): State<Arc<AppState>>, caller: Caller, Path(id): Path<String>) -> Answer {
    MCP.one(&shared, &caller, &id).await.map(axum::Json)
}

async fn replace(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
    Json(body): Json,
) -> Answer {
    // An invalid body is reported before a missing configuration.
    parse(body.clone(), None)?;
    let id = MCP.id(&id)?;
    let mut tx = shared.store.write().await?;
    let row = document::find_in(&mut tx, Table::Mcp, &caller.workspace, &id).await?;
    let row = row.ok_or_else(|| MCP.none())?;
    let old: Headers = secrets::open(&shared.vault, &row.id, &row.secrets)?;
    let (document, headers) = parse(body, Some(&old))?;
    let sealed = secrets::seal(&shared.vault, &id, &headers);
    let text = document.to_string();
    quota::growth(&shared, &mut tx, &caller.workspace, &row, text.len() + sealed.len()).await?;
    document::update(&mut tx, Table::Mcp, &draft(&caller.workspace, &id, &document, &text, &sealed)).await?;
    let row = document::find_in(&mut tx, Table::Mcp, &caller.workspace, &id).await?;
    let row = row.ok_or_else(|| MCP.none())?;
    tx.commit().await?;
    Ok(axum::Json(document_resource::shown(&row)?))
}

async fn remove(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    MCP.remove(&shared, &caller, &id).await.map(|_| StatusCode::NO_CONTENT)
}
