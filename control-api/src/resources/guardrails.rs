//! Guardrails: `/v1/ext/guardrail`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde_json::Value;

use crate::clock;
use crate::error::{ApiError, Resource};
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::{Json, ListResponse, PageQuery, Path};
use crate::http::quota;
use crate::http::responses::{Done, JsonResult};
use crate::http::validate::is_http_url;
use crate::resources::document_resource::DocumentResource;
use crate::state::AppState;
use crate::store::Lock;
use crate::store::guardrail::GuardrailDocument;
use crate::store::json_record::{self, Draft, Table};
use crate::store::new_id;

const GUARDRAIL: DocumentResource = DocumentResource {
    table: Table::Guardrail,
    resource: Resource::Guardrail,
    read_error: "Internal server error",
};

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/guardrail", post(create).get(list))
        .route("/v1/ext/guardrail/{id}", get(read).put(replace).delete(remove))
}

/// Parses the fields that a client sets; missing ones are empty.
pub(crate) fn parse(body: Value) -> Result<GuardrailDocument, ApiError> {
    let guardrail: GuardrailDocument = body::parse(body)?;
    // The contract names these errors by their own texts.
    for (text, message) in
        [(&guardrail.name, "name is required"), (&guardrail.prompt, "prompt is required")]
    {
        if text.trim().is_empty() {
            return Err(ApiError::BadRequest(message.into()));
        }
    }
    if !guardrail.callback_url.is_empty() && !is_http_url(&guardrail.callback_url) {
        return Err(ApiError::BadRequest("callback_url must be a valid http(s) URL".into()));
    }
    Ok(guardrail)
}

/// The permanent slug of a name: in lower case, with one `_` for every character other than a-z and
/// 0-9.
fn slug(name: &str) -> String {
    let slug: String = name
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' })
        .collect();
    if slug.is_empty() { "guardrail".into() } else { slug }
}

/// The text of the document with this key.
fn with_key(key: &str, guardrail: &GuardrailDocument) -> String {
    json_record::to_text(&GuardrailDocument { key: key.to_owned(), ..guardrail.clone() })
}

fn draft<'a>(workspace: &'a str, id: &'a str, name: &'a str, document: &'a str) -> Draft<'a> {
    Draft { workspace, id, name, kind: None, document, secrets: "", at: clock::now() }
}

async fn create(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json,
) -> Result<(StatusCode, axum::Json<Done>), ApiError> {
    let guardrail = parse(body)?;
    let id = new_id();
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    let size = with_key("", &guardrail).len();
    quota::check_bytes(&state, &mut tx, &caller.workspace, size).await?;
    let draft = draft(&caller.workspace, &id, &guardrail.name, "");
    json_record::insert_guardrail(&mut tx, &draft, &slug(&guardrail.name), |key| {
        with_key(key, &guardrail)
    })
    .await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, axum::Json(Done { id, message: "Guardrail created" })))
}

async fn list(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    PageQuery(page): PageQuery<true>,
) -> Result<ListResponse, ApiError> {
    GUARDRAIL.list(&state, &caller, &page).await
}

async fn read(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Value> {
    GUARDRAIL.read(&state, &caller, &id).await.map(axum::Json)
}

async fn replace(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
    Json(body): Json,
) -> JsonResult<Done> {
    let guardrail = parse(body)?;
    let id = GUARDRAIL.parse_id(&id)?;
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    let row = json_record::find_in(&mut tx, Table::Guardrail, &caller.workspace, &id).await?;
    let row = row.ok_or_else(|| GUARDRAIL.not_found())?;
    let GuardrailDocument { key, .. } = json_record::parse_document(&row.document)?;
    let text = with_key(&key, &guardrail);
    quota::check_growth(&state, &mut tx, &caller.workspace, &row, text.len()).await?;
    let name = format!("{}\n{key}", guardrail.name);
    json_record::update(&mut tx, Table::Guardrail, &draft(&caller.workspace, &id, &name, &text))
        .await?;
    tx.commit().await?;
    Ok(axum::Json(Done { id, message: "Guardrail updated" }))
}

async fn remove(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Done> {
    let id = GUARDRAIL.remove(&state, &caller, &id).await?;
    Ok(axum::Json(Done { id, message: "Guardrail deleted" }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_is_the_lower_case_name_with_one_underscore_for_every_other_character() {
        for (name, key) in [
            ("No medical advice", "no_medical_advice"),
            ("A--b  c!", "a__b__c_"),
            ("Ärger 2", "_rger_2"),
            ("İ", "i_"),
            ("日本", "__"),
        ] {
            assert_eq!(slug(name), key, "{name}");
        }
        assert_eq!(slug(""), "guardrail");
    }

    #[test]
    fn each_missing_guardrail_field_has_its_own_error_text() {
        let rejection = |body: Value| match parse(body) {
            Err(ApiError::BadRequest(text)) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(rejection(json!({})), "name is required");
        assert_eq!(rejection(json!({"name": "  ", "prompt": "p"})), "name is required");
        assert_eq!(rejection(json!({"name": "n"})), "prompt is required");
        assert_eq!(
            rejection(json!({"name": "n", "prompt": "p", "callback_url": "ftp://x"})),
            "callback_url must be a valid http(s) URL"
        );
        assert!(
            matches!(parse(json!({"name": 1})), Err(ApiError::Invalid(f)) if f[0].field == "name")
        );
        let whole = parse(json!({"name": "n", "prompt": "p", "callback_url": ""})).unwrap();
        assert_eq!(whole.category, "");
    }
}
