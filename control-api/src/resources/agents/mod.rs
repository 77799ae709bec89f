//! Agents: `/v1/ext/agent`. Other ways to create one are in [`shorthand`].

pub(crate) mod access;
pub(crate) mod merge;
pub(crate) mod parse;
pub(crate) mod response;
pub(crate) mod shorthand;
pub(crate) mod tokens;
pub(crate) mod turn;

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde_json::Value;

use self::parse::{AgentDocument, Parsed};
use self::tokens::Replaced;
use crate::clock;
use crate::config::StockAvatar;
use crate::error::{ApiError, ErrorText, OrInternalError as _, Resource};
use crate::http::auth::ApiCaller;
use crate::http::extract::{ListResponse, PageQuery, Path};
use crate::http::quota;
use crate::http::responses::{Created, Done, JsonResult};
use crate::http::validate::FieldErrors;
use crate::resources::avatars;
use crate::resources::backgrounds::images::{AgentJson, Images};
use crate::resources::variants::{self, Saved};
use crate::state::AppState;
use crate::store::agent::{ATTACHMENT_FIELDS, Agent, AgentSettings};
use crate::store::json_record::{self, Draft, Row, Table};
use crate::store::secrets::{self, AgentSecrets};
use crate::store::{self, Lock, Transaction, new_id, variant};

const READ_FAILED: &str = "Failed to retrieve agent details";
const DELETE_FAILED: &str = "Failed to delete agent";

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/agent", post(create).get(list))
        .route("/v1/ext/agent/{id}", get(read).put(replace).patch(patch).delete(remove))
        .route("/v1/ext/agent/{id}/webhook-secret", post(rotate_webhook_secret))
        .merge(shorthand::routes())
        .layer(Extension(ErrorText { read: READ_FAILED, delete: DELETE_FAILED }))
}

async fn create(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    AgentJson(body): AgentJson,
) -> JsonResult<Created> {
    let (id, webhook) = insert(&state, &caller.workspace, body).await?;
    Ok(axum::Json(Created { id, message: "Agent created successfully", webhook_secret: webhook }))
}

/// Creates an agent within the limits of its workspace. Returns its id and its webhook secret.
pub(crate) async fn insert(
    state: &AppState,
    workspace: &str,
    body: Value,
) -> Result<(String, String), ApiError> {
    insert_with_limits(state, workspace, body, true).await
}

/// Like [`insert`], but checks the workspace's limits only if `limited`: the server's own agent is
/// exempt.
pub(crate) async fn insert_with_limits(
    state: &AppState,
    workspace: &str,
    mut body: Value,
    enforce_quota: bool,
) -> Result<(String, String), ApiError> {
    let images = Images::take(state, &mut body).await?;
    let parsed =
        parse::parse::<Agent>(body, &avatars::list_available(state, workspace).await?, None)?;
    let mut tx = state.store.begin_write(Lock::Workspace(workspace)).await?;
    check_references(&mut tx, workspace, parsed.document.settings()).await?;
    if enforce_quota {
        check_quota(state, &mut tx, workspace, &parsed.document).await?;
    }
    let has_variant = variants::has_variant(&parsed.document.settings);
    let created = insert_in(state, &mut tx, workspace, parsed, &images).await?;
    tx.commit().await?;
    if has_variant {
        state.bake_queued.notify_one();
    }
    Ok(created)
}

/// 429 if the workspace may not have another agent, or not one of this size.
async fn check_quota(
    state: &AppState,
    tx: &mut Transaction,
    workspace: &str,
    agent: &Agent,
) -> Result<(), ApiError> {
    quota::check_agents(state, tx, workspace).await?;
    quota::check_bytes(state, tx, workspace, json_record::to_text(agent).len()).await
}

/// Inserts a valid agent. `images`: the pictures of its backgrounds. Returns its id and its webhook
/// secret.
async fn insert_in(
    state: &AppState,
    tx: &mut Transaction,
    workspace: &str,
    Parsed { document, mut secrets }: Parsed<Agent>,
    images: &Images,
) -> Result<(String, String), ApiError> {
    let id = new_id();
    let saved = Saved { workspace, id: &id, settings: &document.settings, before: &[] };
    let background = variants::prepare(state, tx, saved, &mut secrets, images).await?;
    let sealed = secrets::seal(&state.vault, &id, &secrets);
    let text = json_record::to_text(&document);
    json_record::insert(tx, Table::Agent, &draft(workspace, &id, &document, &text, &sealed))
        .await?;
    variants::assign(tx, workspace, &id, background.as_ref()).await?;
    Ok((id, secrets.webhook))
}

/// The values of an agent or a template to store. `text` is the document's.
pub(crate) fn draft<'a, D: AgentDocument>(
    workspace: &'a str,
    id: &'a str,
    document: &'a D,
    text: &'a str,
    secrets: &'a str,
) -> Draft<'a> {
    let (name, kind) = (document.name(), document.settings().kind.as_deref());
    Draft { workspace, id, name, kind, document: text, secrets, at: clock::now() }
}

/// Whether a record that an agent references in one of its lists exists.
async fn reference_exists(
    tx: &mut Transaction,
    workspace: &str,
    list: &str,
    id: &str,
) -> store::Result<bool> {
    let table = match list {
        "tool" => Table::Tool,
        "guardrail" => Table::Guardrail,
        "mcp" => Table::Mcp,
        _ => return store::knowledge_base::exists(tx, workspace, id).await,
    };
    Ok(json_record::find_in(tx, table, workspace, id).await?.is_some())
}

/// 400 if the settings reference a record that does not exist.
pub(crate) async fn check_references(
    tx: &mut Transaction,
    workspace: &str,
    settings: &AgentSettings,
) -> Result<(), ApiError> {
    let errors = FieldErrors::default();
    for list in ATTACHMENT_FIELDS {
        for (i, id) in settings.attached_ids(list).iter().enumerate() {
            if !reference_exists(tx, workspace, list, id).await? {
                errors.add(format!("{list}[{i}]"), "names nothing");
            }
        }
    }
    errors.into_result(())
}

async fn list(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    PageQuery(page): PageQuery<false>,
) -> Result<ListResponse, ApiError> {
    let (rows, total) = state
        .store
        .document_page(Table::Agent, &caller.workspace, &page)
        .await
        .or_internal_error(READ_FAILED)?;
    let agents =
        to_json_list(&state, &caller.workspace, &rows).await.or_internal_error(READ_FAILED)?;
    Ok(ListResponse(agents, total))
}

async fn to_json_list(
    state: &AppState,
    workspace: &str,
    rows: &[Row],
) -> store::Result<Vec<Value>> {
    response::to_json_list::<Agent>(state, workspace, rows).await
}

async fn read(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Value> {
    let id = store::normalize_id(&id).ok_or(ApiError::NotFound(Resource::Agent))?;
    let row = state
        .store
        .document(Table::Agent, &caller.workspace, &id)
        .await
        .or_internal_error(READ_FAILED)?;
    let row = row.ok_or(ApiError::NotFound(Resource::Agent))?;
    let mut agents =
        to_json_list(&state, &caller.workspace, &[row]).await.or_internal_error(READ_FAILED)?;
    Ok(axum::Json(agents.pop().unwrap_or_default()))
}

async fn replace(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
    AgentJson(mut body): AgentJson,
) -> JsonResult<Done> {
    let images = Images::take(&state, &mut body).await?;
    let submitted = body.clone();
    let done = update(&state, &caller, &id, images, |_| body).await;
    if matches!(done, Err(ApiError::NotFound(_))) {
        // An invalid body is reported before a missing agent.
        parse::parse::<Agent>(
            submitted,
            &avatars::list_available(&state, &caller.workspace).await?,
            None,
        )?;
    }
    done
}

async fn patch(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
    AgentJson(mut patch): AgentJson,
) -> JsonResult<Done> {
    if !patch.is_object() {
        return Err(ApiError::Invalid(Vec::new()));
    }
    let images = Images::take(&state, &mut patch).await?;
    let merged = |mut document: Value| {
        merge::merge(&mut document, patch, &merge::NULLABLE_PATHS);
        document
    };
    update(&state, &caller, &id, images, merged).await
}

/// Replaces an agent by the result of `body` on the stored document. `images`: the uploaded
/// pictures in it.
async fn update(
    state: &AppState,
    caller: &ApiCaller,
    id: &str,
    mut images: Images,
    body: impl FnOnce(Value) -> Value,
) -> JsonResult<Done> {
    let not_found = || ApiError::NotFound(Resource::Agent);
    let id = store::normalize_id(id).ok_or_else(not_found)?;
    let mut available_avatars = avatars::list_available(state, &caller.workspace).await?;
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    let row = json_record::find_in(&mut tx, Table::Agent, &caller.workspace, &id)
        .await?
        .ok_or_else(not_found)?;
    let old: AgentSecrets = secrets::open(&state.vault, &row.id, &row.secrets)?;
    let mut stored: Agent = json_record::parse_document(&row.document)?;
    drop_deleted_references(&mut tx, &caller.workspace, &mut stored.settings).await?;
    available_avatars.extend(stored_avatars(&stored));
    let body = body(serde_json::to_value(&stored).unwrap_or_default());
    let replaced = Replaced { avatars: &stored.settings.avatars, secrets: &old };
    let Parsed { document, mut secrets } =
        parse::parse::<Agent>(body, &available_avatars, Some(replaced))?;
    check_references(&mut tx, &caller.workspace, &document.settings).await?;
    images.add_stored(&old);
    let saved = Saved {
        workspace: &caller.workspace,
        id: &row.id,
        settings: &document.settings,
        before: &stored.settings.avatars,
    };
    let background = variants::prepare(state, &mut tx, saved, &mut secrets, &images).await?;
    let sealed = secrets::seal(&state.vault, &row.id, &secrets);
    let text = json_record::to_text(&document);
    quota::check_growth(state, &mut tx, &caller.workspace, &row, text.len() + sealed.len()).await?;
    json_record::update(
        &mut tx,
        Table::Agent,
        &draft(&caller.workspace, &row.id, &document, &text, &sealed),
    )
    .await?;
    variants::assign(&mut tx, &caller.workspace, &row.id, background.as_ref()).await?;
    // The update may have corrected the cause of the receiver's failures.
    json_record::set_webhooks_stopped(&mut tx, &row.id, false).await?;
    tx.commit().await?;
    if variants::has_variant(&document.settings) {
        state.bake_queued.notify_one();
    }
    Ok(axum::Json(Done { id: row.id, message: "Agent updated successfully" }))
}

/// The avatars of a stored agent. One that was deleted since must not make every change of the
/// agent fail: calls show another avatar instead.
fn stored_avatars(stored: &Agent) -> impl Iterator<Item = StockAvatar> {
    stored.settings.avatars.iter().map(|avatar| StockAvatar {
        avatar_key_id: avatar.avatar_key_id.clone().unwrap_or_default(),
        avatar_name: avatar.persona_name.clone().unwrap_or_default(),
        ..StockAvatar::default()
    })
}

/// Removes references to deleted records from stored settings: a partial change must not fail
/// because of references that the client cannot see.
pub(crate) async fn drop_deleted_references(
    tx: &mut Transaction,
    workspace: &str,
    settings: &mut AgentSettings,
) -> store::Result<()> {
    for list in ATTACHMENT_FIELDS {
        let Some(ids) = settings.attachments_mut(list) else { continue };
        for id in std::mem::take(&mut ids.0) {
            if reference_exists(tx, workspace, list, &id).await? {
                ids.0.push(id);
            }
        }
    }
    Ok(())
}

async fn remove(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Done> {
    let not_found = || ApiError::NotFound(Resource::Agent);
    let id = store::normalize_id(&id).ok_or_else(not_found)?;
    let mut tx = state
        .store
        .begin_write(Lock::Workspace(&caller.workspace))
        .await
        .or_internal_error(DELETE_FAILED)?;
    let found = json_record::delete(&mut tx, Table::Agent, &caller.workspace, &id)
        .await
        .or_internal_error(DELETE_FAILED)?;
    variant::delete_unused(&mut tx, &caller.workspace).await.or_internal_error(DELETE_FAILED)?;
    tx.commit().await.or_internal_error(DELETE_FAILED)?;
    if found {
        Ok(axum::Json(Done { id, message: "Agent deleted successfully" }))
    } else {
        Err(not_found())
    }
}

async fn rotate_webhook_secret(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Created> {
    let not_found = || ApiError::NotFound(Resource::Agent);
    let id = store::normalize_id(&id).ok_or_else(not_found)?;
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    let row = json_record::find_in(&mut tx, Table::Agent, &caller.workspace, &id)
        .await?
        .ok_or_else(not_found)?;
    let old: AgentSecrets = secrets::open(&state.vault, &row.id, &row.secrets)?;
    let secrets = AgentSecrets { webhook: secrets::new_webhook_secret(), ..old };
    let sealed = secrets::seal(&state.vault, &row.id, &secrets);
    let agent: Agent = json_record::parse_document(&row.document)?;
    let draft = draft(&caller.workspace, &row.id, &agent, &row.document, &sealed);
    json_record::update(&mut tx, Table::Agent, &draft).await?;
    tx.commit().await?;
    Ok(axum::Json(Created {
        id,
        message: "Webhook secret renewed successfully",
        webhook_secret: secrets.webhook,
    }))
}
