//! Knowledge bases: `/v1/ext/kb`. Plain text is ready at once; other documents are extracted in the
//! background, by a child process.

pub(crate) mod embeddings;
mod extractor;
mod form;
pub(crate) mod ingestion;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clock::{self, Iso8601};
use crate::error::{ApiError, ErrorText, FieldError, OrInternalError as _, Resource};
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::{Json, ListResponse, PageQuery, Path};
use crate::http::quota;
use crate::http::responses::{Done, JsonResult};
use crate::state::AppState;
use crate::store::knowledge_base::Content;
use crate::store::{self, Lock, Transaction, knowledge_base};

const READ_FAILED: &str = "Failed to retrieve knowledge base";
const NOT_FOUND: ApiError = ApiError::NotFound(Resource::KnowledgeBase);

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        // The form parser enforces its own limits: a document that is too large is a 400.
        .route("/v1/ext/kb", post(create).layer(DefaultBodyLimit::disable()))
        .route("/v1/ext/kbs", get(list))
        .route("/v1/ext/kb/{id}", get(read).put(update).delete(remove))
        .route("/v1/ext/kb/{id}/doc", post(add_documents).layer(DefaultBodyLimit::disable()))
        .route("/v1/ext/kb/doc/{id}", delete(remove_document))
        .layer(Extension(ErrorText::uniform(READ_FAILED)))
}

/// A knowledge base.
#[derive(Serialize, JsonSchema)]
pub(crate) struct KnowledgeBase<'a> {
    #[schemars(extend("format" = "uuid"))]
    id: &'a str,
    name: &'a str,
    description: &'a str,
    /// Number of documents.
    no_of_rec: i64,
    created_at: Iso8601,
    updated_at: Iso8601,
}

/// A document of a knowledge base.
#[derive(Serialize, JsonSchema)]
pub(crate) struct KnowledgeDocument {
    #[schemars(extend("format" = "uuid"))]
    id: String,
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[schemars(extend("enum" = ["started", "processing", "ready", "error"]))]
    status: String,
    error_message: Option<String>,
}

/// A knowledge base with its documents.
#[derive(Serialize, JsonSchema)]
pub(crate) struct KnowledgeBaseWithDocuments<'a> {
    knowledge_base: KnowledgeBase<'a>,
    documents: Vec<KnowledgeDocument>,
}

/// The response to new documents.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Added {
    /// Number of new documents.
    added: usize,
    /// The last one.
    #[schemars(extend("format" = "uuid"))]
    doc_id: String,
    message: &'static str,
}

/// A knowledge base as a response shows it.
fn to_response(row: &knowledge_base::Row) -> KnowledgeBase<'_> {
    KnowledgeBase {
        id: &row.id,
        name: &row.name,
        description: &row.description,
        no_of_rec: row.document_count,
        created_at: Iso8601(row.created_at),
        updated_at: Iso8601(row.updated_at),
    }
}

/// The same as JSON.
pub(crate) fn to_json(row: &knowledge_base::Row) -> Value {
    json!(to_response(row))
}

/// The errors in a form's documents.
fn empty_document_errors(form: &form::Form) -> Vec<FieldError> {
    let empty = form.documents.iter().filter(|document| document.is_empty());
    empty
        .map(|document| {
            let field = if document.kind == "text" { "text" } else { "input" };
            FieldError { field: field.into(), reason: "contains no text".into() }
        })
        .collect()
}

async fn create(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    request: Request,
) -> JsonResult<Done> {
    let form = form::read(request).await?;
    let mut errors = Vec::new();
    for (field, value) in [("name", &form.name), ("description", &form.description)] {
        if value.as_deref().is_none_or(|v| v.trim().is_empty()) {
            errors.push(FieldError { field: field.into(), reason: "is required".into() });
        }
    }
    errors.extend(empty_document_errors(&form));
    if !errors.is_empty() {
        return Err(ApiError::Invalid(errors));
    }
    let (name, description) = (form.name.unwrap_or_default(), form.description.unwrap_or_default());
    let total_bytes = stored_bytes(&form.documents);
    let documents: Vec<(&str, &str, &Content)> =
        form.documents.iter().map(|d| (d.name.as_str(), d.kind, &d.content)).collect();
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    quota::check_bytes(&state, &mut tx, &caller.workspace, total_bytes).await?;
    let id = insert_in(&mut tx, &caller.workspace, &name, &description, &documents).await?;
    tx.commit().await?;
    state.document_queued.notify_one();
    state.document_read.notify_one();
    Ok(axum::Json(Done { id, message: "Knowledge Base created successfully" }))
}

/// Adds the form's documents to a knowledge base.
async fn add_documents(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
    request: Request,
) -> JsonResult<Added> {
    let form = form::read(request).await?;
    let mut errors = empty_document_errors(&form);
    if form.documents.is_empty() {
        errors.push(FieldError { field: "input".into(), reason: "is required".into() });
    }
    if !errors.is_empty() {
        return Err(ApiError::Invalid(errors));
    }
    let id = store::normalize_id(&id).ok_or(NOT_FOUND)?;
    let at = clock::now();
    let mut tx = state
        .store
        .begin_write(Lock::Workspace(&caller.workspace))
        .await
        .or_internal_error(READ_FAILED)?;
    if !knowledge_base::exists(&mut tx, &caller.workspace, &id)
        .await
        .or_internal_error(READ_FAILED)?
    {
        return Err(NOT_FOUND);
    }
    quota::check_bytes(&state, &mut tx, &caller.workspace, stored_bytes(&form.documents)).await?;
    let mut last = String::new();
    for document in &form.documents {
        let knowledge_base::AddedDocument { id } = knowledge_base::insert_document(
            &mut tx,
            &caller.workspace,
            &id,
            &document.name,
            document.kind,
            &document.content,
            at,
        )
        .await
        .or_internal_error(READ_FAILED)?;
        last = id;
    }
    knowledge_base::mark_changed(&mut tx, &id, at).await.or_internal_error(READ_FAILED)?;
    tx.commit().await.or_internal_error(READ_FAILED)?;
    state.document_queued.notify_one();
    state.document_read.notify_one();
    Ok(axum::Json(Added {
        added: form.documents.len(),
        doc_id: last,
        message: "Content added successfully to existing Knowledge Base",
    }))
}

/// New name and description of a knowledge base.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "KnowledgeBody")]
pub(crate) struct UpdateRequest {
    #[schemars(length(min = 1))]
    pub(crate) name: String,
    #[schemars(length(min = 1))]
    pub(crate) description: String,
}

async fn update(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
    Json(body): Json,
) -> JsonResult<Done> {
    let UpdateRequest { name, description } = body::parse(body)?;
    let id = store::normalize_id(&id).ok_or(NOT_FOUND)?;
    let mut tx = state
        .store
        .begin_write(Lock::Workspace(&caller.workspace))
        .await
        .or_internal_error(READ_FAILED)?;
    let found =
        knowledge_base::rename(&mut tx, &caller.workspace, &id, &name, &description, clock::now())
            .await;
    let found = found.or_internal_error(READ_FAILED)?;
    tx.commit().await.or_internal_error(READ_FAILED)?;
    if !found {
        return Err(NOT_FOUND);
    }
    Ok(axum::Json(Done { id, message: "Knowledge base updated successfully" }))
}

async fn remove_document(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Done> {
    let not_found = || ApiError::NotFound(Resource::Document);
    let id = store::normalize_id(&id).ok_or_else(not_found)?;
    let mut tx = state
        .store
        .begin_write(Lock::Workspace(&caller.workspace))
        .await
        .or_internal_error(READ_FAILED)?;
    let base = knowledge_base::delete_document(&mut tx, &caller.workspace, &id)
        .await
        .or_internal_error(READ_FAILED)?;
    let base = base.ok_or_else(not_found)?;
    knowledge_base::mark_changed(&mut tx, &base, clock::now())
        .await
        .or_internal_error(READ_FAILED)?;
    tx.commit().await.or_internal_error(READ_FAILED)?;
    Ok(axum::Json(Done { id, message: "Document deleted successfully" }))
}

/// Creates a knowledge base of documents, each with its name, type and content. Returns its id.
pub(crate) async fn insert(
    state: &AppState,
    workspace: &str,
    name: &str,
    description: &str,
    documents: &[(&str, &str, &Content)],
) -> store::Result<String> {
    let mut tx = state.store.begin_write(Lock::Workspace(workspace)).await?;
    let id = insert_in(&mut tx, workspace, name, description, documents).await?;
    tx.commit().await?;
    Ok(id)
}

async fn insert_in(
    tx: &mut Transaction,
    workspace: &str,
    name: &str,
    description: &str,
    documents: &[(&str, &str, &Content)],
) -> store::Result<String> {
    let at = clock::now();
    let id = knowledge_base::insert(tx, workspace, name, description, at).await?;
    for (name, kind, content) in documents {
        knowledge_base::insert_document(tx, workspace, &id, name, kind, content, at).await?;
    }
    Ok(id)
}

/// Size of documents as they are stored, bytes.
fn stored_bytes(documents: &[form::Document]) -> usize {
    let length = |document: &form::Document| match &document.content {
        Content::Text(content) | Content::File(content) => content.len(),
    };
    documents.iter().map(length).sum()
}

async fn list(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    PageQuery(page): PageQuery<false>,
) -> Result<ListResponse, ApiError> {
    let (rows, total) =
        state.store.kb_page(&caller.workspace, &page).await.or_internal_error(READ_FAILED)?;
    Ok(ListResponse(rows.iter().map(to_json).collect(), total))
}

async fn read(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Value> {
    let id = store::normalize_id(&id).ok_or(NOT_FOUND)?;
    let row = state
        .store
        .kb(&caller.workspace, &id)
        .await
        .or_internal_error(READ_FAILED)?
        .ok_or(NOT_FOUND)?;
    let documents = state.store.kb_documents(&id).await.or_internal_error(READ_FAILED)?;
    let documents = documents.into_iter().map(|document| KnowledgeDocument {
        id: document.id,
        name: document.name,
        kind: document.kind,
        status: document.status,
        error_message: document.error_message,
    });
    let response = KnowledgeBaseWithDocuments {
        knowledge_base: to_response(&row),
        documents: documents.collect(),
    };
    Ok(axum::Json(json!(response)))
}

async fn remove(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Done> {
    let id = store::normalize_id(&id).ok_or(NOT_FOUND)?;
    let mut tx = state
        .store
        .begin_write(Lock::Workspace(&caller.workspace))
        .await
        .or_internal_error(READ_FAILED)?;
    let found = knowledge_base::delete(&mut tx, &caller.workspace, &id)
        .await
        .or_internal_error(READ_FAILED)?;
    tx.commit().await.or_internal_error(READ_FAILED)?;
    if !found {
        return Err(NOT_FOUND);
    }
    Ok(axum::Json(Done { id, message: "Knowledge base deleted successfully" }))
}
