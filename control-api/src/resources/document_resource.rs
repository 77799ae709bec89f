//! Guardrails, tools and MCP configurations: resources that are returned as they are stored. Their
//! common code for lists, reads and deletions.

use serde_json::{Map, Value};

use crate::clock;
use crate::error::{ApiError, Missing, OrFail as _};
use crate::http::auth::Caller;
use crate::http::extract::Listed;
use crate::state::AppState;
use crate::store::document::{self, Row, Table};
use crate::store::{self, Page};

/// One of these resources.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) table: Table,
    pub(crate) missing: Missing,
    /// Text of the 500 if the resource cannot be read.
    pub(crate) unreadable: &'static str,
}

/// A document as returned: first its id, then its fields, then its times.
pub(crate) fn shown(row: &Row) -> store::Result<Value> {
    let damaged = |e: serde_json::Error| store::Error::Damaged("document", e.to_string());
    let document: Map<String, Value> = serde_json::from_str(&row.document).map_err(damaged)?;
    let mut told = Map::new();
    told.insert("id".into(), row.id.clone().into());
    told.extend(document);
    told.insert("created_at".into(), clock::iso(row.created_at).into());
    told.insert("updated_at".into(), clock::iso(row.updated_at).into());
    Ok(Value::Object(told))
}

impl Kept {
    /// 404 in the resource's own format.
    pub(crate) fn none(self) -> ApiError {
        ApiError::Missing(self.missing)
    }

    /// The id in a path, in its stored form.
    pub(crate) fn id(self, path: &str) -> Result<String, ApiError> {
        store::id(path).ok_or_else(|| self.none())
    }

    pub(crate) async fn list(
        self,
        shared: &AppState,
        caller: &Caller,
        page: &Page,
    ) -> Result<Listed, ApiError> {
        let found = shared.store.document_page(self.table, &caller.workspace, page).await;
        let (rows, total) = found.or_fail(self.unreadable)?;
        let told = rows.iter().map(shown).collect::<store::Result<_>>().or_fail(self.unreadable)?;
        Ok(Listed(told, total))
    }

    pub(crate) async fn one(self, shared: &AppState, caller: &Caller, path: &str) -> Result<Value, ApiError> {
        let id = self.id(path)?;
        let row = shared.store.document(self.table, &caller.workspace, &id).await.or_fail(self.unreadable)?;
        shown(&row.ok_or_else(|| self.none())?).or_fail(self.unreadable)
    }

    /// Deletes the document and returns its id.
    pub(crate) async fn remove(
        self,
        shared: &AppState,
        caller: &Caller,
        path: &str,
    ) -> Result<String, ApiError> {
        let id = self.id(path)?;
        let mut tx = shared.store.write().await?;
        let found = document::delete(&mut tx, self.table, &caller.workspace, &id).await?;
        tx.commit().await?;
        if found { Ok(id) } else { Err(self.none()) }
    }
}
