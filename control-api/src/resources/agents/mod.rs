//! Agents: `/v1/ext/agent`. Other ways to create one are in [`shorthand`].

pub(crate) mod merge;
pub(crate) mod parse;
pub(crate) mod response;
pub(crate) mod shorthand;
pub(crate) mod turn;

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde_json::{Value, json};

use self::parse::Parsed;
use crate::clock;
use crate::config::StockAvatar;
use crate::error::{ApiError, Missing, OrFail as _, OwnText};
use crate::http::auth::Caller;
use crate::http::extract::{Json, Listed, Paged, Path};
use crate::http::quota;
use crate::http::validate::Faults;
use crate::resources::avatars;
use crate::state::AppState;
use crate::store::document::{self, Draft, Row, Table};
use crate::store::secrets::{self, Secrets};
use crate::store::{self, Transaction, fresh_id};

type Answer = Result<axum::Json<Value>, ApiError>;

const READ: &str = "Failed to retrieve agent details";
const DELETE: &str = "Failed to delete agent";

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/agent", post(create).get(list))
        .route("/v1/ext/agent/{id}", get(one).put(replace).patch(change).delete(remove))
        .route("/v1/ext/agent/{id}/webhook-secret", post(renew))
        .merge(shorthand::routes())
        .layer(Extension(OwnText { read: READ, delete: DELETE }))
}

async fn create(State(shared): State<Arc<AppState>>, caller: Caller, Json(body): Json) -> Answer {
    let (id, webhook) = insert(&shared, &caller.workspace, body).await?;
    Ok(axum::Json(json!({"id": id, "message": "Agent created successfully", "webhook_secret": webhook})))
}

/// Creates an agent within the limits of its workspace. Returns its id and its webhook secret.
pub(crate) async fn insert(
    shared: &AppState,
    workspace: &str,
    body: Value,
) -> Result<(String, String), ApiError> {
    insert_within(shared, workspace, body, true).await
}

/// Like [`insert`], but checks the workspace's limits only if `limited`: the server's own agent is
/// exempt.
pub(crate) async fn insert_within(
    shared: &AppState,
    workspace: &str,
    body: Value,
    limited: bool,
) -> Result<(String, String), ApiError> {
    let parsed = parse::parse(body, &avatars::known(shared, workspace).await?, None)?;
    let mut tx = shared.store.write().await?;
    known(&mut tx, workspace, &parsed.document).await?;
    if limited {
        room(shared, &mut tx, workspace, &parsed.document).await?;
    }
    let made = write(shared, &mut tx, workspace, parsed).await?;
    tx.commit().await?;
    Ok(made)
}

/// 429 if the workspace may not have another agent, or not one of this size.
async fn room(
    shared: &AppState,
    tx: &mut Transaction,
    workspace: &str,
    document: &Value,
) -> Result<(), ApiError> {
    quota::agent(shared, tx, workspace).await?;
    quota::bytes(shared, tx, workspace, document.to_string().len()).await
}

/// Inserts a valid agent. Returns its id and its webhook secret.
async fn write(
    shared: &AppState,
    tx: &mut Transaction,
    workspace: &str,
    Parsed { document, secrets }: Parsed,
) -> store::Result<(String, String)> {
    let id = fresh_id();
    let sealed = secrets::seal(&shared.vault, &id, &secrets);
    let text = document.to_string();
    document::insert(tx, Table::Agent, &draft(workspace, &id, &document, &text, &sealed)).await?;
    Ok((id, secrets.webhook))
}

fn draft<'a>(
    workspace: &'a str,
    id: &'a str,
    document: &'a Value,
    text: &'a str,
    secrets: &'a str,
) -> Draft<'a> {
    let name = document["agent_name"].as_str().unwrap_or_default();
    Draft { workspace, id, name, kind: document["type"].as_str(), document: text, secrets, at: clock::now() }
}

/// Whether a record that an agent references in one of its lists exists.
async fn exists(tx: &mut Transaction, workspace: &str, list: &str, id: &str) -> store::Result<bool> {
    let table = match list {
        "tool" => Table::Tool,
        "guardrail" => Table::Guardrail,
        "mcp" => Table::Mcp,
        _ => return store::kb::exists(tx, workspace, id).await,
    };
    Ok(document::find_in(tx, table, workspace, id).await?.is_some())
}

/// 400 if the document references a record that does not exist.
pub(crate) async fn known(tx: &mut Transaction, workspace: &str, document: &Value) -> Result<(), ApiError> {
    let faults = Faults::default();
    for list in parse::ATTACHED {
        for (i, id) in document::ids(document, list).iter().enumerate() {
            if !exists(tx, workspace, list, id).await? {
                faults.add(format!("{list}[{i}]"), "names nothing");
            }
        }
    }
    faults.unless(())
}

async fn list(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Paged(page): Paged<false>,
) -> Result<Listed, ApiError> {
    let (rows, total) =
        shared.store.document_page(Table::Agent, &caller.workspace, &page).await.or_fail(READ)?;
    let agents = shown(&shared, &caller.workspace, &rows).await.or_fail(READ)?;
    Ok(Listed(agents, total))
}

async fn shown(shared: &AppState, workspace: &str, rows: &[Row]) -> store::Result<Vec<Value>> {
    let documents =
        rows.iter().map(|row| document::parsed(&row.document)).collect::<store::Result<Vec<_>>>()?;
    let attached = response::Attached::read(shared, workspace, &documents).await?;
    Ok(rows.iter().zip(&documents).map(|(row, document)| response::shown(row, document, &attached)).collect())
}

async fn one(State(shared): State<Arc<AppState>>, caller: Caller, Path(id): Path<String>) -> Answer {
    let id = store::id(&id).ok_or(ApiError::Missing(Missing::Agent))?;
    let row = shared.store.document(Table::Agent, &caller.workspace, &id).await.or_fail(READ)?;
    let row = row.ok_or(ApiError::Missing(Missing::Agent))?;
    let mut agents = shown(&shared, &caller.workspace, &[row]).await.or_fail(READ)?;
    Ok(axum::Json(agents.pop().unwrap_or_default()))
}

async fn replace(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
    Json(body): Json,
) -> Answer {
    let check = body.clone();
    let done = update(&shared, &caller, &id, |_| body).await;
    if matches!(done, Err(ApiError::Missing(_))) {
        // An invalid body is reported before a missing agent.
        parse::parse(check, &avatars::known(&shared, &caller.workspace).await?, None)?;
    }
    done
}

async fn change(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
    Json(patch): Json,
) -> Answer {
    if !patch.is_object() {
        return Err(ApiError::Invalid(Vec::new()));
    }
    let merged = |mut document: Value| {
        merge::merge(&mut document, patch);
        document
    };
    update(&shared, &caller, &id, merged).await
}

/// Replaces an agent by the result of `body` on the stored document.
async fn update(shared: &AppState, caller: &Caller, id: &str, body: impl FnOnce(Value) -> Value) -> Answer {
    let missing = || ApiError::Missing(Missing::Agent);
    let id = store::id(id).ok_or_else(missing)?;
    let mut faces = avatars::known(shared, &caller.workspace).await?;
    let mut tx = shared.store.write().await?;
    let row = document::find_in(&mut tx, Table::Agent, &caller.workspace, &id).await?.ok_or_else(missing)?;
    let old: Secrets = secrets::open(&shared.vault, &row.id, &row.secrets)?;
    let mut stored = document::parsed(&row.document)?;
    forget_deleted(&mut tx, &caller.workspace, &mut stored).await?;
    faces.extend(own_faces(&stored));
    let Parsed { document, secrets } = parse::parse(body(stored), &faces, Some(&old))?;
    known(&mut tx, &caller.workspace, &document).await?;
    let sealed = secrets::seal(&shared.vault, &row.id, &secrets);
    let text = document.to_string();
    quota::growth(shared, &mut tx, &caller.workspace, &row, text.len() + sealed.len()).await?;
    document::update(&mut tx, Table::Agent, &draft(&caller.workspace, &row.id, &document, &text, &sealed))
        .await?;
    // The update may have corrected the cause of the receiver's failures.
    document::set_stopped(&mut tx, &row.id, false).await?;
    tx.commit().await?;
    Ok(axum::Json(json!({"id": row.id, "message": "Agent updated successfully"})))
}

/// The avatars of a stored agent. One that was deleted since must not make every change of the
/// agent fail: calls show another avatar instead.
fn own_faces(stored: &Value) -> impl Iterator<Item = StockAvatar> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    stored["avatars"].as_array().into_iter().flatten().map(move |avatar| StockAvatar {
        avatar_key_id: text(&avatar["avatar_key_id"]),
        avatar_name: text(&avatar["persona_name"]),
        ..StockAvatar::default()
    })
}

/// Removes references to deleted records from a stored document: a partial change must not fail
/// because of references that the client cannot see.
pub(crate) async fn forget_deleted(
    tx: &mut Transaction,
    workspace: &str,
    document: &mut Value,
) -> store::Result<()> {
    for list in parse::ATTACHED {
        let mut kept = Vec::new();
        for id in document::ids(document, list) {
            if exists(tx, workspace, list, &id).await? {
                kept.push(Value::from(id));
            }
        }
        if document[list].is_array() {
            document[list] = kept.into();
        }
    }
    Ok(())
}

async fn remove(State(shared): State<Arc<AppState>>, caller: Caller, Path(id): Path<String>) -> Answer {
    let missing = || ApiError::Missing(Missing::Agent);
    let id = store::id(&id).ok_or_else(missing)?;
    let mut tx = shared.store.write().await.or_fail(DELETE)?;
    let found = document::delete(&mut tx, Table::Agent, &caller.workspace, &id).await.or_fail(DELETE)?;
    tx.commit().await.or_fail(DELETE)?;
    if found {
        Ok(axum::Json(json!({"id": id, "message": "Agent deleted successfully"})))
    } else {
        Err(missing())
    }
}

async fn renew(State(shared): State<Arc<AppState>>, caller: Caller, Path(id): Path<String>) -> Answer {
    let missing = || ApiError::Missing(Missing::Agent);
    let id = store::id(&id).ok_or_else(missing)?;
    let mut tx = shared.store.write().await?;
    let row = document::find_in(&mut tx, Table::Agent, &caller.workspace, &id).await?.ok_or_else(missing)?;
    let old: Secrets = secrets::open(&shared.vault, &row.id, &row.secrets)?;
    let secrets = Secrets { webhook: secrets::fresh_webhook(), ..old };
    let sealed = secrets::seal(&shared.vault, &row.id, &secrets);
    let document = document::parsed(&row.document)?;
    let draft = draft(&caller.workspace, &row.id, &document, &row.document, &sealed);
    document::update(&mut tx, Table::Agent, &draft).await?;
    tx.commit().await?;
    Ok(axum::Json(
        json!({"id": id, "message": "Webhook secret renewed successfully", "webhook_secret": secrets.webhook}),
    ))
}
