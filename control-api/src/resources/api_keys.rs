//! API keys: `/v1/ext/apikey`. A key shares the workspace of the key that created it, and has at
//! most its scope.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, post};
use serde_json::{Value, json};

use crate::clock::{self, Micros};
use crate::error::{ApiError, Resource};
use crate::http::auth::ApiCaller;
use crate::http::extract::{Json, ListResponse, PageQuery, Path};
use crate::http::validate::{FieldErrors, Fields};
use crate::scope::Scope;
use crate::state::AppState;
use crate::state::api_key::{generate_key, key_prefix, stored_hash};
use crate::store::{self, api_key};

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/ext/apikey", post(create).get(list)).route("/v1/ext/apikey/{id}", delete(remove))
}

/// Name, time of expiry and scope of a new key.
pub(crate) fn parse(body: Value) -> Result<(String, Option<Micros>, Scope), ApiError> {
    let errors = FieldErrors::default();
    let fields = Fields::body(body, &errors)?;
    let name = fields.required("name");
    let expires_at = fields.text("expires_at").and_then(|text| {
        let at = clock::parse_timestamp(&text);
        if at.is_none_or(|at| at <= clock::now()) {
            fields.add_error("expires_at", "must be an ISO 8601 time to come");
        }
        at
    });
    let scope = fields.choice("scope", &Scope::ALL.map(Scope::name), Scope::Administer.name());
    errors.into_result((name, expires_at, scope.parse().unwrap_or(Scope::Administer)))
}

async fn create(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json,
) -> Result<(StatusCode, axum::Json<Value>), ApiError> {
    let (name, expires_at, scope) = parse(body)?;
    if scope > caller.scope {
        return Err(ApiError::Forbidden(caller.scope.forbidden_message()));
    }
    let key = generate_key();
    let (prefix, hash) = (key_prefix(&key), stored_hash(&key));
    let mut tx = state.store.begin_write().await?;
    let draft =
        api_key::Draft { workspace: &caller.workspace, name: &name, prefix, hash: &hash, expires_at, scope };
    let id = api_key::insert(&mut tx, &draft).await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, axum::Json(json!({"id": id, "name": name, "key": key, "prefix": prefix}))))
}

async fn list(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    PageQuery(page): PageQuery<false>,
) -> Result<ListResponse, ApiError> {
    let keys = state.store.api_keys(Some(&caller.workspace)).await?;
    let matches = |row: &&api_key::Row| {
        let text = format!("{}\n{}\n{}", row.id, row.name, row.prefix).to_lowercase();
        page.search.as_ref().is_none_or(|part| text.contains(part))
            && page.from.is_none_or(|from| row.created_at >= from)
            && page.to.is_none_or(|to| row.created_at < to)
    };
    let to_json = |row: &api_key::Row| {
        json!({
            "id": row.id,
            "name": row.name,
            "prefix": row.prefix,
            "created_at": clock::to_iso8601(row.created_at),
            "expires_at": row.expires_at.map(clock::to_iso8601),
            "scope": row.scope,
            "last_used_at": row.last_used_at.map(clock::to_iso8601),
        })
    };
    Ok(ListResponse::page_of(keys.iter().filter(matches).map(to_json).collect(), &page))
}

async fn remove(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> Result<axum::Json<Value>, ApiError> {
    let id = store::normalize_id(&id).ok_or(ApiError::NotFound(Resource::ApiKey))?;
    let mut tx = state.store.begin_write().await?;
    let found = api_key::delete(&mut tx, Some(&caller.workspace), &id).await?;
    tx.commit().await?;
    if !found {
        return Err(ApiError::NotFound(Resource::ApiKey));
    }
    Ok(axum::Json(json!({"id": id, "message": "API key deleted successfully"})))
}
