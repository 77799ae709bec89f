//! Knowledge bases: `/v1/ext/kb`. Documents that are plain text; other kinds of files are refused with a reason.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequest as _, Multipart, Path, Request, State};
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::app::Shared;
use crate::auth::Caller;
use crate::clock;
use crate::error::{ApiError, Fault, Missing, OrFail as _};
use crate::request::{self, Listed, Paged};
use crate::store::{self, kb};

const READ: &str = "Failed to retrieve knowledge base";
/// Of one document.
const DOCUMENT_LIMIT: usize = 10 << 20;
/// Of one request.
const CREATE_LIMIT: usize = 100 << 20;

pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        // The limits are ours, and a document that is too large is a 400.
        .route("/v1/ext/kb", post(create).layer(DefaultBodyLimit::disable()))
        .route("/v1/ext/kbs", get(list))
        .route("/v1/ext/kb/{id}", get(one).delete(remove))
}

/// A knowledge base as it is told.
pub(crate) fn shown(row: &kb::Row) -> Value {
    json!({
        "id": row.id,
        "name": row.name,
        "description": row.description,
        "no_of_rec": row.no_of_rec,
        "created_at": clock::iso(row.created_at),
        "updated_at": clock::iso(row.updated_at),
    })
}

struct Document {
    name: String,
    kind: &'static str,
    body: String,
}

#[derive(Default)]
struct Form {
    name: Option<String>,
    description: Option<String>,
    documents: Vec<Document>,
}

async fn form(request: Request) -> Result<Form, ApiError> {
    if request::media_type(request.headers()).as_deref() != Some("multipart/form-data") {
        return Err(ApiError::MediaType("multipart/form-data"));
    }
    let invalid = |_| ApiError::Invalid(Vec::new());
    let mut parts = Multipart::from_request(request, &()).await.map_err(|_| ApiError::Invalid(Vec::new()))?;
    let mut form = Form::default();
    let mut total = 0;
    while let Some(mut part) = parts.next_field().await.map_err(invalid)? {
        let field = part.name().unwrap_or_default().to_owned();
        let file = part.file_name().map(str::to_owned);
        let mut bytes = Vec::new();
        while let Some(chunk) = part.chunk().await.map_err(invalid)? {
            total += chunk.len();
            if bytes.len() + chunk.len() > DOCUMENT_LIMIT {
                return Err(ApiError::field(field, "a document may hold at most 10 MB"));
            }
            if total > CREATE_LIMIT {
                return Err(ApiError::field(field, "one request may hold at most 100 MB"));
            }
            bytes.extend_from_slice(&chunk);
        }
        let text = |bytes| {
            String::from_utf8(bytes).map_err(|_| ApiError::field(field.as_str(), "must be UTF-8 text"))
        };
        match field.as_str() {
            "name" => form.name = Some(text(bytes)?),
            "description" => form.description = Some(text(bytes)?),
            "text" => form.documents.push(Document { name: "text".into(), kind: "text", body: text(bytes)? }),
            "input" => {
                let name = file.unwrap_or_default();
                let kind =
                    match name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase()).as_deref() {
                        Some("txt") => "txt",
                        Some("md") => "md",
                        _ => {
                            return Err(ApiError::field(
                                "input",
                                "only .txt and .md files can be read by this server",
                            ));
                        }
                    };
                form.documents.push(Document { name, kind, body: text(bytes)? });
            }
            _ => {}
        }
    }
    Ok(form)
}

async fn create(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    request: Request,
) -> Result<axum::Json<Value>, ApiError> {
    let form = form(request).await?;
    let mut faults = Vec::new();
    for (field, value) in [("name", &form.name), ("description", &form.description)] {
        if value.as_deref().is_none_or(|v| v.trim().is_empty()) {
            faults.push(Fault { field: field.into(), reason: "is required".into() });
        }
    }
    for document in &form.documents {
        if document.body.trim().is_empty() {
            faults.push(Fault {
                field: if document.kind == "text" { "text" } else { "input" }.into(),
                reason: "holds no text".into(),
            });
        }
    }
    if !faults.is_empty() {
        return Err(ApiError::Invalid(faults));
    }
    let documents: Vec<(&str, &str, &str)> =
        form.documents.iter().map(|d| (d.name.as_str(), d.kind, d.body.as_str())).collect();
    let id = insert(
        &shared,
        &caller.workspace,
        &form.name.unwrap_or_default(),
        &form.description.unwrap_or_default(),
        &documents,
    )
    .await?;
    Ok(axum::Json(json!({"id": id, "message": "Knowledge Base created successfully"})))
}

/// Makes a knowledge base of documents, each with its name, kind and text; its id.
pub(crate) async fn insert(
    shared: &Shared,
    workspace: &str,
    name: &str,
    description: &str,
    documents: &[(&str, &str, &str)],
) -> store::Result<String> {
    let at = clock::now();
    let mut tx = shared.store.write().await?;
    let id = kb::insert(&mut tx, workspace, name, description, at).await?;
    for (name, kind, body) in documents {
        kb::insert_document(&mut tx, workspace, &id, name, kind, body, at).await?;
    }
    tx.commit().await?;
    Ok(id)
}

async fn list(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Paged(page): Paged<false>,
) -> Result<Listed, ApiError> {
    let (rows, total) = shared.store.kb_page(&caller.workspace, &page).await.or_fail(READ)?;
    Ok(Listed(rows.iter().map(shown).collect(), total))
}

async fn one(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<axum::Json<Value>, ApiError> {
    let id = store::id(&id).ok_or(ApiError::Missing(Missing::Knowledge))?;
    let row = shared
        .store
        .kb(&caller.workspace, &id)
        .await
        .or_fail(READ)?
        .ok_or(ApiError::Missing(Missing::Knowledge))?;
    let documents = shared.store.kb_documents(&id).await.or_fail(READ)?;
    let documents: Vec<Value> = documents
        .iter()
        .map(|d| json!({"id": d.id, "name": d.name, "type": d.kind, "status": d.status, "error_message": d.error_message}))
        .collect();
    Ok(axum::Json(json!({"knowledge_base": shown(&row), "documents": documents})))
}

async fn remove(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<axum::Json<Value>, ApiError> {
    let id = store::id(&id).ok_or(ApiError::Missing(Missing::Knowledge))?;
    let mut tx = shared.store.write().await.or_fail(READ)?;
    let found = kb::delete(&mut tx, &caller.workspace, &id).await.or_fail(READ)?;
    tx.commit().await.map_err(store::Error::from).or_fail(READ)?;
    if !found {
        return Err(ApiError::Missing(Missing::Knowledge));
    }
    Ok(axum::Json(json!({"id": id, "message": "Knowledge base deleted successfully"})))
}
