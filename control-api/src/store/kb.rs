//! Knowledge bases and their documents.

use sqlx::{FromRow, QueryBuilder};

use super::{Page, Result, Store, Transaction, fresh_id, page::searchable};
use crate::clock::Micros;

/// One knowledge base.
#[derive(Clone, Debug, FromRow)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) description: String,
    /// Documents.
    pub(crate) no_of_rec: i64,
    pub(crate) created_at: Micros,
    pub(crate) updated_at: Micros,
}

/// One document, without its text.
#[derive(Clone, Debug, FromRow)]
pub(crate) struct Document {
    pub(crate) id: String,
    pub(crate) name: String,
    #[sqlx(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) error_message: Option<String>,
}

/// A document's words, for the index.
#[derive(Clone, Debug, FromRow)]
pub(crate) struct Body {
    pub(crate) kb: String,
    pub(crate) id: String,
    pub(crate) body: String,
}

const COLUMNS: &str = "id, name, description, (SELECT COUNT(*) FROM kb_document d WHERE d.kb = kb.id) AS no_of_rec, created_at, updated_at";

/// Adds an empty knowledge base and tells its id.
pub(crate) async fn insert(
    tx: &mut Transaction,
    workspace: &str,
    name: &str,
    description: &str,
    at: Micros,
) -> Result<String> {
    let id = fresh_id();
    sqlx::query("INSERT INTO kb (id, workspace, search, name, description, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $6)")
        .bind(&id)
        .bind(workspace)
        .bind(searchable(&[&id, name]))
        .bind(name)
        .bind(description)
        .bind(at)
        .execute(&mut **tx)
        .await?;
    Ok(id)
}

/// Adds a document that is plain text already, ready to be searched.
pub(crate) async fn insert_document(
    tx: &mut Transaction,
    workspace: &str,
    kb: &str,
    name: &str,
    kind: &str,
    body: &str,
    at: Micros,
) -> Result<String> {
    let id = fresh_id();
    sqlx::query(
        "INSERT INTO kb_document (id, workspace, kb, position, name, type, status, body, created_at) \
         VALUES ($1, $2, $3, (SELECT COUNT(*) FROM kb_document WHERE kb = $3), $4, $5, 'ready', $6, $7)",
    )
    .bind(&id)
    .bind(workspace)
    .bind(kb)
    .bind(name)
    .bind(kind)
    .bind(body)
    .bind(at)
    .execute(&mut **tx)
    .await?;
    Ok(id)
}

/// Removes a knowledge base with its documents; false if there was none.
pub(crate) async fn delete(tx: &mut Transaction, workspace: &str, id: &str) -> Result<bool> {
    let done = sqlx::query("DELETE FROM kb WHERE id = $1 AND workspace = $2")
        .bind(id)
        .bind(workspace)
        .execute(&mut **tx)
        .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query("DELETE FROM kb_document WHERE kb = $1").bind(id).execute(&mut **tx).await?;
    Ok(true)
}

impl Store {
    /// One knowledge base.
    pub(crate) async fn kb(&self, workspace: &str, id: &str) -> Result<Option<Row>> {
        Ok(self.kbs(workspace, &[id.to_owned()]).await?.pop())
    }

    /// Those of `ids` that exist, in no order.
    pub(crate) async fn kbs(&self, workspace: &str, ids: &[String]) -> Result<Vec<Row>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut sql = QueryBuilder::new(format!("SELECT {COLUMNS} FROM kb WHERE workspace = "));
        sql.push_bind(workspace.to_owned()).push(" AND id IN (");
        let mut list = sql.separated(", ");
        for id in ids {
            list.push_bind(id.clone());
        }
        sql.push(")");
        Ok(sql.build_query_as().fetch_all(self.read()).await?)
    }

    /// One page and the number of all matches.
    pub(crate) async fn kb_page(&self, workspace: &str, page: &Page) -> Result<(Vec<Row>, i64)> {
        let mut count = QueryBuilder::new("SELECT COUNT(*) FROM kb");
        page.filter(&mut count, workspace, false, false);
        let total = count.build_query_scalar().fetch_one(self.read()).await?;
        let mut sql = QueryBuilder::new(format!("SELECT {COLUMNS} FROM kb"));
        page.filter(&mut sql, workspace, false, false);
        page.window(&mut sql);
        Ok((sql.build_query_as().fetch_all(self.read()).await?, total))
    }

    /// The documents of a knowledge base, in the order they came.
    pub(crate) async fn kb_documents(&self, kb: &str) -> Result<Vec<Document>> {
        Ok(sqlx::query_as("SELECT id, name, type, status, error_message FROM kb_document WHERE kb = $1 ORDER BY position, id")
            .bind(kb)
            .fetch_all(self.read())
            .await?)
    }

    /// The words of all documents of these knowledge bases that are ready.
    pub(crate) async fn kb_bodies(&self, workspace: &str, kbs: &[String]) -> Result<Vec<Body>> {
        if kbs.is_empty() {
            return Ok(Vec::new());
        }
        let mut sql =
            QueryBuilder::new("SELECT kb, id, body FROM kb_document WHERE status = 'ready' AND workspace = ");
        sql.push_bind(workspace.to_owned()).push(" AND kb IN (");
        let mut list = sql.separated(", ");
        for id in kbs {
            list.push_bind(id.clone());
        }
        sql.push(") ORDER BY kb, position");
        Ok(sql.build_query_as().fetch_all(self.read()).await?)
    }
}

/// Whether there is such a knowledge base.
pub(crate) async fn exists(tx: &mut Transaction, workspace: &str, id: &str) -> Result<bool> {
    let found: Option<String> = sqlx::query_scalar("SELECT id FROM kb WHERE id = $1 AND workspace = $2")
        .bind(id)
        .bind(workspace)
        .fetch_optional(&mut **tx)
        .await?;
    Ok(found.is_some())
}
