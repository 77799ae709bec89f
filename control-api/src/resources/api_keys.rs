//! API keys: `/v1/ext/apikey`. A key shares the workspace of the key that created it, and has at
//! most its scope.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, post};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clock::{self, Iso8601, Micros};
use crate::error::{ApiError, Resource};
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::{Json, ListResponse, PageQuery, Path};
use crate::http::responses::{Done, JsonResult};
use crate::http::validate::FieldErrors;
use crate::scope::Scope;
use crate::state::AppState;
use crate::state::api_key::{generate_key, key_prefix, stored_hash};
use crate::store::{self, Lock, api_key};

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/apikey", post(create).get(list))
        .route("/v1/ext/apikey/{id}", delete(remove))
}

/// A new key.
#[derive(Serialize, JsonSchema)]
pub(crate) struct NewKey {
    #[schemars(extend("format" = "uuid"))]
    id: String,
    name: String,
    /// The key itself. It is not shown again.
    key: String,
    prefix: String,
}

/// A key, without its secret.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Key<'a> {
    #[schemars(extend("format" = "uuid"))]
    id: &'a str,
    name: &'a str,
    prefix: &'a str,
    created_at: Iso8601,
    expires_at: Option<Iso8601>,
    #[schemars(with = "Scope")]
    scope: &'a str,
    last_used_at: Option<Iso8601>,
}

/// A request for a new key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "KeyBody")]
pub(crate) struct NewKeyRequest {
    #[schemars(length(min = 1))]
    pub(crate) name: String,
    /// When the key expires; null = never.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) expires_at: Option<String>,
    /// Scope of the key; null = `administer`.
    pub(crate) scope: Option<Scope>,
}

/// Reads a request, with the time of expiry.
pub(crate) fn parse(body: Value) -> Result<(NewKeyRequest, Option<Micros>), ApiError> {
    let errors = FieldErrors::default();
    let request: NewKeyRequest = body::read(body, &errors)?;
    let expires_at = request.expires_at.as_deref().map(clock::parse_timestamp);
    if expires_at.is_some_and(|at| at.is_none_or(|at| at <= clock::now())) {
        errors.add("expires_at", "must be an ISO 8601 time in the future");
    }
    errors.into_result((request, expires_at.flatten()))
}

async fn create(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json,
) -> Result<(StatusCode, axum::Json<NewKey>), ApiError> {
    let (NewKeyRequest { name, scope, .. }, expires_at) = parse(body)?;
    let scope = scope.unwrap_or(Scope::Administer);
    if scope > caller.scope {
        return Err(ApiError::Forbidden(caller.scope.forbidden_message()));
    }
    let key = generate_key();
    let (prefix, hash) = (key_prefix(&key), stored_hash(&key));
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    let draft = api_key::Draft {
        workspace: &caller.workspace,
        name: &name,
        prefix,
        hash: &hash,
        expires_at,
        scope,
    };
    let id = api_key::insert(&mut tx, &draft).await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, axum::Json(NewKey { id, name, prefix: prefix.to_owned(), key })))
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
        json!(Key {
            id: &row.id,
            name: &row.name,
            prefix: &row.prefix,
            created_at: Iso8601(row.created_at),
            expires_at: row.expires_at.map(Iso8601),
            scope: &row.scope,
            last_used_at: row.last_used_at.map(Iso8601),
        })
    };
    Ok(ListResponse::page_of(keys.iter().filter(matches).map(to_json).collect(), &page))
}

async fn remove(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Done> {
    let id = store::normalize_id(&id).ok_or(ApiError::NotFound(Resource::ApiKey))?;
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    let found = api_key::delete(&mut tx, Some(&caller.workspace), &id).await?;
    tx.commit().await?;
    if !found {
        return Err(ApiError::NotFound(Resource::ApiKey));
    }
    Ok(axum::Json(Done { id, message: "API key deleted successfully" }))
}
