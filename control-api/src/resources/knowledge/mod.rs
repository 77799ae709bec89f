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
use serde_json::{Value, json};

use crate::clock;
use crate::error::{ApiError, Fault, Missing, OrFail as _, OwnText};
use crate::http::auth::Caller;
use crate::http::extract::{Json, Listed, Paged, Path};
use crate::http::quota;
use crate::http::validate::{Faults, Fields};
use crate::state::AppState;
use crate::store::kb::Content;
use crate::store::{self, Transaction, kb};

const READ: &str = "Failed to retrieve knowledge base";
const MISSING: ApiError = ApiError::Missing(Missing::Knowledge);

type Answer = Result<axum::Json<Value>, ApiError>;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        // The form parser enforces its own limits: a document that is too large is a 400.
        .route("/v1/ext/kb", post(create).layer(DefaultBodyLimit::disable()))
        .route("/v1/ext/kbs", get(list))
        .route("/v1/ext/kb/{id}", get(one).put(change).delete(remove))
        .route("/v1/ext/kb/{id}/doc", post(add).layer(DefaultBodyLimit::disable()))
        .route("/v1/ext/kb/doc/{id}", delete(remove_document))
        .layer(Extension(OwnText::of(READ)))
}

/// A knowledge base as JSON.
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

/// The errors in a form's documents.
fn faults_of(form: &form::Form) -> Vec<Fault> {
    let empty = form.documents.iter().filter(|document| document.is_empty());
    empty
        .map(|document| {
            let field = if document.kind == "text" { "text" } else { "input" };
            Fault { field: field.into(), reason: "holds no text".into() }
        })
        .collect()
}

async fn create(State(shared): State<Arc<AppState>>, caller: Caller, request: Request) -> Answer {
    let form = form::read(request).await?;
    let mut faults = Vec::new();
    for (field, value) in [("name", &form.name), ("description", &form.description)] {
        if value.as_deref().is_none_or(|v| v.trim().is_empty()) {
            faults.push(Fault { field: field.into(), reason: "is required".into() });
        }
    }
    faults.extend(faults_of(&form));
    if !faults.is_empty() {
        return Err(ApiError::Invalid(faults));
    }
    let (name, description) = (form.name.unwrap_or_default(), form.description.unwrap_or_default());
    let size = size(&form.documents);
    let documents: Vec<(&str, &str, &Content)> =
        form.documents.iter().map(|d| (d.name.as_str(), d.kind, &d.content)).collect();
    let mut tx = shared.store.write().await?;
    quota::bytes(&shared, &mut tx, &caller.workspace, size).await?;
    let id = write(&mut tx, &caller.workspace, &name, &description, &documents).await?;
    tx.commit().await?;
    shared.uploads.notify_one();
    shared.read.notify_one();
    Ok(axum::Json(json!({"id": id, "message": "Knowledge Base created successfully"})))
}

/// Adds the form's documents to a knowledge base.
async fn add(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let form = form::read(request).await?;
    let mut faults = faults_of(&form);
    if form.documents.is_empty() {
        faults.push(Fault { field: "input".into(), reason: "is required".into() });
    }
    if !faults.is_empty() {
        return Err(ApiError::Invalid(faults));
    }
    let id = store::id(&id).ok_or(MISSING)?;
    let at = clock::now();
    let mut tx = shared.store.write().await.or_fail(READ)?;
    if !kb::exists(&mut tx, &caller.workspace, &id).await.or_fail(READ)? {
        return Err(MISSING);
    }
    quota::bytes(&shared, &mut tx, &caller.workspace, size(&form.documents)).await?;
    let mut last = String::new();
    for document in &form.documents {
        let kb::Added { id } = kb::insert_document(
            &mut tx,
            &caller.workspace,
            &id,
            &document.name,
            document.kind,
            &document.content,
            at,
        )
        .await
        .or_fail(READ)?;
        last = id;
    }
    kb::touch(&mut tx, &id, at).await.or_fail(READ)?;
    tx.commit().await.or_fail(READ)?;
    shared.uploads.notify_one();
    shared.read.notify_one();
    Ok(axum::Json(json!({
        "added": form.documents.len(),
        "doc_id": last,
        "message": "Content added successfully to existing Knowledge Base",
    })))
}

async fn change(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
    Json(body): Json,
) -> Answer {
    let (name, description) = {
        let faults = Faults::default();
        let fields = Fields::body(body, &faults)?;
        let read = (fields.required("name"), fields.required("description"));
        faults.unless(read)?
    };
    let id = store::id(&id).ok_or(MISSING)?;
    let mut tx = shared.store.write().await.or_fail(READ)?;
    let found = kb::rename(&mut tx, &caller.workspace, &id, &name, &description, clock::now()).await;
    let found = found.or_fail(READ)?;
    tx.commit().await.or_fail(READ)?;
    if !found {
        return Err(MISSING);
    }
    Ok(axum::Json(json!({"id": id, "message": "Knowledge base updated successfully"})))
}

async fn remove_document(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    let missing = || ApiError::Missing(Missing::Document);
    let id = store::id(&id).ok_or_else(missing)?;
    let mut tx = shared.store.write().await.or_fail(READ)?;
    let base = kb::delete_document(&mut tx, &caller.workspace, &id).await.or_fail(READ)?;
    let base = base.ok_or_else(missing)?;
    kb::touch(&mut tx, &base, clock::now()).await.or_fail(READ)?;
    tx.commit().await.or_fail(READ)?;
    Ok(axum::Json(json!({"id": id, "message": "Document deleted successfully"})))
}

/// Creates a knowledge base of documents, each with its name, type and content. Returns its id.
pub(crate) async fn insert(
    shared: &AppState,
    workspace: &str,
    name: &str,
    description: &str,
    documents: &[(&str, &str, &Content)],
) -> store::Result<String> {
    let mut tx = shared.store.write().await?;
    let id = write(&mut tx, workspace, name, description, documents).await?;
    tx.commit().await?;
    Ok(id)
}

async fn write(
    tx: &mut Transaction,
    workspace: &str,
    name: &str,
    description: &str,
    documents: &[(&str, &str, &Content)],
) -> store::Result<String> {
    let at = clock::now();
    let id = kb::insert(tx, workspace, name, description, at).await?;
    for (name, kind, content) in documents {
        kb::insert_document(tx, workspace, &id, name, kind, content, at).await?;
    }
    Ok(id)
}

/// Size of documents as they are stored, bytes.
fn size(documents: &[form::Document]) -> usize {
    let length = |document: &form::Document| match &document.content {
        Content::Text(content) | Content::File(content) => content.len(),
    };
    documents.iter().map(length).sum()
}

async fn list(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Paged(page): Paged<false>,
) -> Result<Listed, ApiError> {
    let (rows, total) = shared.store.kb_page(&caller.workspace, &page).await.or_fail(READ)?;
    Ok(Listed(rows.iter().map(shown).collect(), total))
}

async fn one(State(shared): State<Arc<AppState>>, caller: Caller, Path(id): Path<String>) -> Answer {
    let id = store::id(&id).ok_or(MISSING)?;
    let row = shared.store.kb(&caller.workspace, &id).await.or_fail(READ)?.ok_or(MISSING)?;
    let documents = shared.store.kb_documents(&id).await.or_fail(READ)?;
    let documents: Vec<Value> = documents
        .iter()
        .map(|d| json!({"id": d.id, "name": d.name, "type": d.kind, "status": d.status, "error_message": d.error_message}))
        .collect();
    Ok(axum::Json(json!({"knowledge_base": shown(&row), "documents": documents})))
}

async fn remove(State(shared): State<Arc<AppState>>, caller: Caller, Path(id): Path<String>) -> Answer {
    let id = store::id(&id).ok_or(MISSING)?;
    let mut tx = shared.store.write().await.or_fail(READ)?;
    let found = kb::delete(&mut tx, &caller.workspace, &id).await.or_fail(READ)?;
    tx.commit().await.or_fail(READ)?;
    if !found {
        return Err(MISSING);
    }
    Ok(axum::Json(json!({"id": id, "message": "Knowledge base deleted successfully"})))
}
