//! Templates for agents: `/v1/ext/template`. An agent copies its template at creation; later
//! changes of the template do not affect it.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde_json::Value;

use crate::error::{ApiError, Resource};
use crate::http::auth::ApiCaller;
use crate::http::extract::{ListResponse, PageQuery, Path};
use crate::http::quota;
use crate::http::responses::{Done, JsonResult};
use crate::resources::agents::parse::{Parsed, parse};
use crate::resources::agents::tokens::Replaced;
use crate::resources::agents::{check_references, draft, response};
use crate::resources::avatars;
use crate::resources::backgrounds::images::{AgentJson, Images};
use crate::resources::variants;
use crate::state::AppState;
use crate::store::agent::Template;
use crate::store::json_record::{self, Row, Table};
use crate::store::secrets::{self, AgentSecrets};
use crate::store::{self, Lock, new_id};

const NOT_FOUND: ApiError = ApiError::NotFound(Resource::Template);

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/template", post(create))
        .route("/v1/ext/templates", get(list))
        .route("/v1/ext/template/{id}", get(read).put(replace).delete(remove))
}

async fn create(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    AgentJson(mut body): AgentJson,
) -> Result<(StatusCode, axum::Json<Done>), ApiError> {
    let available_avatars = avatars::list_available(&state, &caller.workspace).await?;
    let images = Images::take(&state, &mut body).await?;
    let Parsed { document, mut secrets } = parse::<Template>(body, &available_avatars, None)?;
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    let (workspace, settings) = (&caller.workspace, &document.settings);
    check_references(&mut tx, workspace, settings).await?;
    variants::keep_images(&state, &mut tx, workspace, settings, &mut secrets, &images).await?;
    let id = new_id();
    let sealed = secrets::seal(&state.vault, &id, &secrets);
    let text = json_record::to_text(&document);
    quota::check_bytes(&state, &mut tx, workspace, text.len() + sealed.len()).await?;
    json_record::insert(
        &mut tx,
        Table::Template,
        &draft(workspace, &id, &document, &text, &sealed),
    )
    .await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, axum::Json(Done { id, message: "Template created successfully" })))
}

async fn to_json_list(
    state: &AppState,
    workspace: &str,
    rows: &[Row],
) -> store::Result<Vec<Value>> {
    response::to_json_list::<Template>(state, workspace, rows).await
}

async fn list(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    PageQuery(page): PageQuery<false>,
) -> Result<ListResponse, ApiError> {
    let (rows, total) =
        state.store.document_page(Table::Template, &caller.workspace, &page).await?;
    Ok(ListResponse(to_json_list(&state, &caller.workspace, &rows).await?, total))
}

async fn read(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Value> {
    let id = store::normalize_id(&id).ok_or(NOT_FOUND)?;
    let row =
        state.store.document(Table::Template, &caller.workspace, &id).await?.ok_or(NOT_FOUND)?;
    Ok(axum::Json(to_json_list(&state, &caller.workspace, &[row]).await?.pop().unwrap_or_default()))
}

async fn replace(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
    AgentJson(mut body): AgentJson,
) -> JsonResult<Done> {
    // An invalid body is reported before a missing template.
    let mut images = Images::take(&state, &mut body).await?;
    let available_avatars = avatars::list_available(&state, &caller.workspace).await?;
    parse::<Template>(body.clone(), &available_avatars, None)?;
    let id = store::normalize_id(&id).ok_or(NOT_FOUND)?;
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    let row = json_record::find_in(&mut tx, Table::Template, &caller.workspace, &id)
        .await?
        .ok_or(NOT_FOUND)?;
    let old: AgentSecrets = secrets::open(&state.vault, &row.id, &row.secrets)?;
    let stored: Template = json_record::parse_document(&row.document)?;
    let replaced = Replaced { avatars: &stored.settings.avatars, secrets: &old };
    let Parsed { document, mut secrets } =
        parse::<Template>(body, &available_avatars, Some(replaced))?;
    let (workspace, settings) = (&caller.workspace, &document.settings);
    check_references(&mut tx, workspace, settings).await?;
    images.add_stored(&old);
    variants::keep_images(&state, &mut tx, workspace, settings, &mut secrets, &images).await?;
    let sealed = secrets::seal(&state.vault, &id, &secrets);
    let text = json_record::to_text(&document);
    quota::check_growth(&state, &mut tx, workspace, &row, text.len() + sealed.len()).await?;
    json_record::update(
        &mut tx,
        Table::Template,
        &draft(workspace, &id, &document, &text, &sealed),
    )
    .await?;
    tx.commit().await?;
    Ok(axum::Json(Done { id, message: "Template details updated successfully" }))
}

async fn remove(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Done> {
    let id = store::normalize_id(&id).ok_or(NOT_FOUND)?;
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    let found = json_record::delete(&mut tx, Table::Template, &caller.workspace, &id).await?;
    tx.commit().await?;
    if !found {
        return Err(NOT_FOUND);
    }
    Ok(axum::Json(Done { id, message: "Template details deleted successfully" }))
}
