//! Guardrails, tools and MCP configurations: resources that are returned as they are stored. Their
//! common code for lists, reads and deletions.

use serde_json::{Map, Value};

use crate::clock;
use crate::error::{ApiError, OrInternalError as _, Resource};
use crate::http::auth::ApiCaller;
use crate::http::extract::ListResponse;
use crate::state::AppState;
use crate::store::json_record::{self, Row, Table};
use crate::store::{self, Lock, Page};

/// One of these resources.
#[derive(Clone, Copy)]
pub(crate) struct DocumentResource {
    pub(crate) table: Table,
    pub(crate) resource: Resource,
    /// Text of the 500 if the resource cannot be read.
    pub(crate) read_error: &'static str,
}

/// A document as returned: first its id, then its fields, then its times.
pub(crate) fn to_json(row: &Row) -> store::Result<Value> {
    let damaged = |e: serde_json::Error| store::Error::CorruptRow("document", e.to_string());
    let document: Map<String, Value> = serde_json::from_str(&row.document).map_err(damaged)?;
    let mut object = Map::new();
    object.insert("id".into(), row.id.clone().into());
    object.extend(document);
    object.insert("created_at".into(), clock::to_iso8601(row.created_at).into());
    object.insert("updated_at".into(), clock::to_iso8601(row.updated_at).into());
    Ok(Value::Object(object))
}

impl DocumentResource {
    /// 404 in the resource's own format.
    pub(crate) fn not_found(self) -> ApiError {
        ApiError::NotFound(self.resource)
    }

    /// The id in a path, in its stored form.
    pub(crate) fn parse_id(self, path: &str) -> Result<String, ApiError> {
        store::normalize_id(path).ok_or_else(|| self.not_found())
    }

    pub(crate) async fn list(
        self,
        state: &AppState,
        caller: &ApiCaller,
        page: &Page,
    ) -> Result<ListResponse, ApiError> {
        let found = state.store.document_page(self.table, &caller.workspace, page).await;
        let (rows, total) = found.or_internal_error(self.read_error)?;
        let items = rows
            .iter()
            .map(to_json)
            .collect::<store::Result<_>>()
            .or_internal_error(self.read_error)?;
        Ok(ListResponse(items, total))
    }

    pub(crate) async fn read(
        self,
        state: &AppState,
        caller: &ApiCaller,
        path: &str,
    ) -> Result<Value, ApiError> {
        let id = self.parse_id(path)?;
        let row = state
            .store
            .document(self.table, &caller.workspace, &id)
            .await
            .or_internal_error(self.read_error)?;
        to_json(&row.ok_or_else(|| self.not_found())?).or_internal_error(self.read_error)
    }

    /// Deletes the document and returns its id.
    pub(crate) async fn remove(
        self,
        state: &AppState,
        caller: &ApiCaller,
        path: &str,
    ) -> Result<String, ApiError> {
        let id = self.parse_id(path)?;
        let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
        let found = json_record::delete(&mut tx, self.table, &caller.workspace, &id).await?;
        tx.commit().await?;
        if found { Ok(id) } else { Err(self.not_found()) }
    }
}
