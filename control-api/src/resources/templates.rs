//! Templates for agents: `/v1/ext/template`. An agent copies its template at creation; later
//! changes of the template do not affect it.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::clock;
use crate::error::{ApiError, Missing};
use crate::http::auth::Caller;
use crate::http::extract::{Json, Listed, Paged, Path};
use crate::http::quota;
use crate::resources::agents::parse::{Form, Parsed, parse_as};
use crate::resources::agents::{known, response};
use crate::resources::avatars;
use crate::state::AppState;
use crate::store::document::{self, Draft, Row, Table};
use crate::store::secrets::{self, Secrets};
use crate::store::{self, fresh_id};

type Answer = Result<axum::Json<Value>, ApiError>;

const MISSING: ApiError = ApiError::Missing(Missing::Template);

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/template", post(create))
        .route("/v1/ext/templates", get(list))
        .route("/v1/ext/template/{id}", get(one).put(replace).delete(remove))
}

fn draft<'a>(
    workspace: &'a str,
    id: &'a str,
    document: &'a Value,
    text: &'a str,
    secrets: &'a str,
) -> Draft<'a> {
    let name = document["template_name"].as_str().unwrap_or_default();
    Draft { workspace, id, name, kind: document["type"].as_str(), document: text, secrets, at: clock::now() }
}

async fn create(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Json(body): Json,
) -> Result<(StatusCode, axum::Json<Value>), ApiError> {
    let faces = avatars::known(&shared, &caller.workspace).await?;
    let Parsed { document, secrets } = parse_as(Form::Template, body, &faces, None)?;
    let mut tx = shared.store.write().await?;
    known(&mut tx, &caller.workspace, &document).await?;
    let id = fresh_id();
    let sealed = secrets::seal(&shared.vault, &id, &secrets);
    let text = document.to_string();
    quota::bytes(&shared, &mut tx, &caller.workspace, text.len()).await?;
    document::insert(&mut tx, Table::Template, &draft(&caller.workspace, &id, &document, &text, &sealed))
        .await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, axum::Json(json!({"id": id, "message": "Template created successfully"}))))
}

async fn shown(shared: &AppState, workspace: &str, rows: &[Row]) -> store::Result<Vec<Value>> {
    let documents =
        rows.iter().map(|row| document::parsed(&row.document)).collect::<store::Result<Vec<_>>>()?;
    let attached = response::Attached::read(shared, workspace, &documents).await?;
    Ok(rows.iter().zip(&documents).map(|(row, document)| response::shown(row, document, &attached)).collect())
}

async fn list(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Paged(page): Paged<false>,
) -> Result<Listed, ApiError> {
    let (rows, total) = shared.store.document_page(Table::Template, &caller.workspace, &page).await?;
    Ok(Listed(shown(&shared, &caller.workspace, &rows).await?, total))
}

async fn one(State(shared): State<Arc<AppState>>, caller: Caller, Path(id): Path<String>) -> Answer {
    let id = store::id(&id).ok_or(MISSING)?;
    let row = shared.store.document(Table::Template, &caller.workspace, &id).await?.ok_or(MISSING)?;
    Ok(axum::Json(shown(&shared, &caller.workspace, &[row]).await?.pop().unwrap_or_default()))
}

async fn replace(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
    Json(body): Json,
) -> Answer {
    // An invalid body is reported before a missing template.
    let faces = avatars::known(&shared, &caller.workspace).await?;
    parse_as(Form::Template, body.clone(), &faces, None)?;
    let id = store::id(&id).ok_or(MISSING)?;
    let mut tx = shared.store.write().await?;
    let row = document::find_in(&mut tx, Table::Template, &caller.workspace, &id).await?.ok_or(MISSING)?;
    let old: Secrets = secrets::open(&shared.vault, &row.id, &row.secrets)?;
    let Parsed { document, secrets } = parse_as(Form::Template, body, &faces, Some(&old))?;
    known(&mut tx, &caller.workspace, &document).await?;
    let sealed = secrets::seal(&shared.vault, &id, &secrets);
    let text = document.to_string();
    quota::growth(&shared, &mut tx, &caller.workspace, &row, text.len() + sealed.len()).await?;
    document::update(&mut tx, Table::Template, &draft(&caller.workspace, &id, &document, &text, &sealed))
        .await?;
    tx.commit().await?;
    Ok(axum::Json(json!({"id": id, "message": "Template details updated successfully"})))
}

async fn remove(State(shared): State<Arc<AppState>>, caller: Caller, Path(id): Path<String>) -> Answer {
    let id = store::id(&id).ok_or(MISSING)?;
    let mut tx = shared.store.write().await?;
    let found = document::delete(&mut tx, Table::Template, &caller.workspace, &id).await?;
    tx.commit().await?;
    if !found {
        return Err(MISSING);
    }
    Ok(axum::Json(json!({"id": id, "message": "Template details deleted successfully"})))
}
