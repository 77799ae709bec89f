//! MCP (tool server) configurations: `/v1/ext/mcp`. Their sessions in a call are in [`session`].

mod budget;
mod http;
mod legacy_sse;
pub(crate) mod session;
mod tool_names;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Router};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::clock::{self, Iso8601};
use crate::error::{ApiError, ErrorText, Resource};
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::{Json, ListResponse, PageQuery, Path};
use crate::http::quota;
use crate::http::responses::JsonResult;
use crate::http::validate::FieldErrors;
use crate::resources::document_resource::{self, DocumentResource};
use crate::resources::secret_headers::{self, SecretHeaders};
use crate::state::AppState;
use crate::store::Lock;
use crate::store::json_record::{self, Draft, Table};
use crate::store::mcp::{McpDocument, TransportType};
use crate::store::{new_id, secrets};

const MCP: DocumentResource = DocumentResource {
    table: Table::Mcp,
    resource: Resource::Mcp,
    read_error: "Failed to retrieve MCP details",
};

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/mcp", post(create).get(list))
        .route("/v1/ext/mcp/{id}", get(read).put(replace).delete(remove))
        .layer(Extension(ErrorText::uniform(MCP.read_error)))
}

/// Parses an MCP configuration. `old` are the header values of the one that it replaces.
pub(crate) fn parse(
    body: Value,
    old: Option<&SecretHeaders>,
) -> Result<(McpDocument, SecretHeaders), ApiError> {
    let errors = FieldErrors::default();
    let mut mcp: McpDocument = body::read(body, &errors)?;
    let headers = secret_headers::take_values(
        &mut mcp.request_config.headers,
        "request_config.headers",
        old,
        &errors,
    );
    errors.into_result((mcp, headers))
}

fn draft<'a>(
    workspace: &'a str,
    id: &'a str,
    mcp: &'a McpDocument,
    text: &'a str,
    secrets: &'a str,
) -> Draft<'a> {
    let (name, kind) = (&mcp.name, Some(mcp.kind.name()));
    Draft { workspace, id, name, kind, document: text, secrets, at: clock::now() }
}

/// A new configuration.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "McpMade")]
pub(crate) struct McpCreated {
    #[schemars(extend("format" = "uuid"))]
    id: String,
    name: String,
    description: String,
    #[serde(rename = "type")]
    kind: TransportType,
    created_at: Iso8601,
}

async fn create(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json,
) -> JsonResult<McpCreated> {
    let (document, headers) = parse(body, None)?;
    let id = new_id();
    let sealed = secrets::seal(&state.vault, &id, &headers);
    let text = json_record::to_text(&document);
    let draft = draft(&caller.workspace, &id, &document, &text, &sealed);
    let created_at = Iso8601(draft.at);
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    quota::check_bytes(&state, &mut tx, &caller.workspace, text.len()).await?;
    json_record::insert(&mut tx, Table::Mcp, &draft).await?;
    tx.commit().await?;
    Ok(axum::Json(McpCreated {
        id,
        name: document.name,
        description: document.description,
        kind: document.kind,
        created_at,
    }))
}

async fn list(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    PageQuery(page): PageQuery<true>,
) -> Result<ListResponse, ApiError> {
    MCP.list(&state, &caller, &page).await
}

async fn read(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Value> {
    MCP.read(&state, &caller, &id).await.map(axum::Json)
}

async fn replace(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
    Json(body): Json,
) -> JsonResult<Value> {
    // An invalid body is reported before a missing configuration.
    parse(body.clone(), None)?;
    let id = MCP.parse_id(&id)?;
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    let row = json_record::find_in(&mut tx, Table::Mcp, &caller.workspace, &id).await?;
    let row = row.ok_or_else(|| MCP.not_found())?;
    let old: SecretHeaders = secrets::open(&state.vault, &row.id, &row.secrets)?;
    let (document, headers) = parse(body, Some(&old))?;
    let sealed = secrets::seal(&state.vault, &id, &headers);
    let text = json_record::to_text(&document);
    quota::check_growth(&state, &mut tx, &caller.workspace, &row, text.len() + sealed.len())
        .await?;
    json_record::update(
        &mut tx,
        Table::Mcp,
        &draft(&caller.workspace, &id, &document, &text, &sealed),
    )
    .await?;
    let row = json_record::find_in(&mut tx, Table::Mcp, &caller.workspace, &id).await?;
    let row = row.ok_or_else(|| MCP.not_found())?;
    tx.commit().await?;
    Ok(axum::Json(document_resource::to_json(&row)?))
}

async fn remove(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    MCP.remove(&state, &caller, &id).await.map(|_| StatusCode::NO_CONTENT)
}
