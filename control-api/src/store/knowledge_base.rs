//! Knowledge bases and their documents.
//!
//! ```text
//! (insert_document, text) ---> ready
//! (insert_document, file) ---> started
//! started ----- claim_document ---------------------------------------> processing
//! processing -- server restarted or no longer alive, claim_document --> processing
//! processing -- save_document_text: text -----------------------------> ready
//! processing -- save_document_text: error ----------------------------> error
//! ```
//!
//! The columns `directions` and `directions_of` hold a document's embeddings and the name of their
//! model; the job `meaning` computes them. These names are older than the term.

use super::page::search_text;
use super::server::live_servers;
use super::{Page, Result, SqlBuilder, Store, Transaction, fairness, new_id};
use crate::clock::Micros;

/// One knowledge base.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) description: String,
    /// Number of documents.
    pub(crate) document_count: i64,
    pub(crate) created_at: Micros,
    pub(crate) updated_at: Micros,
}

from_row!(Row { id, name, description, document_count = "no_of_rec", created_at, updated_at });

/// One document, without its text.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) error_message: Option<String>,
}

from_row!(Document { id, name, kind = "type", status, error_message });

/// The text of a document, for the index.
#[derive(Clone, Debug)]
pub(crate) struct DocumentText {
    pub(crate) kb: String,
    pub(crate) id: String,
    pub(crate) body: String,
    /// The embeddings of its chunks, in base64, if they were requested and are stored.
    pub(crate) embeddings: Option<String>,
}

from_row!(DocumentText { kb, id, body, embeddings = "directions" });

/// A document whose chunks still need embeddings.
#[derive(Clone, Debug)]
pub(crate) struct DocumentToEmbed {
    pub(crate) id: String,
    pub(crate) workspace: String,
    pub(crate) kb: String,
    pub(crate) body: String,
}

from_row!(DocumentToEmbed { id, workspace, kb, body });

const COLUMNS: &str = "id, name, description, \
    (SELECT COUNT(*) FROM kb_document d WHERE d.kb = kb.id) AS no_of_rec, created_at, updated_at";

/// Adds an empty knowledge base and returns its id.
pub(crate) async fn insert(
    tx: &mut Transaction,
    workspace: &str,
    name: &str,
    description: &str,
    at: Micros,
) -> Result<String> {
    let id = new_id();
    sqlx::query(
        "INSERT INTO kb (id, workspace, search, name, description, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $6)",
    )
    .bind(&id)
    .bind(workspace)
    .bind(search_text(&[&id, name]))
    .bind(name)
    .bind(description)
    .bind(at)
    .execute(&mut **tx)
    .await?;
    Ok(id)
}

/// Content of a new document.
pub(crate) enum Content {
    /// Text: searchable at once.
    Text(String),
    /// A file in base64, whose text must be extracted.
    File(String),
}

/// A document that was added.
pub(crate) struct AddedDocument {
    pub(crate) id: String,
}

/// Adds a document after the existing ones.
pub(crate) async fn insert_document(
    tx: &mut Transaction,
    workspace: &str,
    kb: &str,
    name: &str,
    kind: &str,
    content: &Content,
    at: Micros,
) -> Result<AddedDocument> {
    let id = new_id();
    let (status, body, source) = match content {
        Content::Text(text) => ("ready", text.as_str(), None),
        Content::File(file) => ("started", "", Some(file.as_str())),
    };
    sqlx::query(
        "INSERT INTO kb_document \
         (id, workspace, kb, position, name, type, status, body, source, created_at) \
         VALUES ($1, $2, $3, \
         (SELECT COALESCE(MAX(position), -1) + 1 FROM kb_document WHERE kb = $3), \
         $4, $5, $6, $7, $8, $9)",
    )
    .bind(&id)
    .bind(workspace)
    .bind(kb)
    .bind(name)
    .bind(kind)
    .bind(status)
    .bind(body)
    .bind(source)
    .bind(at)
    .execute(&mut **tx)
    .await?;
    Ok(AddedDocument { id })
}

/// A document whose text must be extracted.
#[derive(Clone, Debug)]
pub(crate) struct QueuedDocument {
    pub(crate) id: String,
    pub(crate) workspace: String,
    pub(crate) kb: String,
    pub(crate) kind: String,
    /// The file, in base64.
    pub(crate) source: Option<String>,
}

from_row!(QueuedDocument { id, workspace, kb, kind = "type", source });

/// SQL condition: a document that server `$1` may claim, because its text is not extracted and
/// no live server works on it.
macro_rules! claimable_document {
    () => {
        concat!(
            "(status = 'started' OR (status = 'processing' AND (server = $1 OR server NOT IN ",
            live_servers!(),
            ")))"
        )
    };
}

/// Claims a document whose text must be extracted and that no live server works on. Its extraction
/// is new, or was interrupted here or on a server that is no longer alive. The oldest one of the
/// workspace whose turn it is. Sets its status to `processing`.
pub(crate) async fn claim_document(
    tx: &mut Transaction,
    server: &str,
) -> Result<Option<QueuedDocument>> {
    let claimed: Option<QueuedDocument> = sqlx::query_as(concat!(
        "UPDATE kb_document SET status = 'processing', server = $1 \
         WHERE id = (SELECT id FROM kb_document AS waits WHERE ",
        claimable_document!(),
        " ORDER BY ",
        fairness::last_turn!("document", "waits.workspace"),
        ", created_at, id LIMIT 1) RETURNING id, workspace, kb, type, source",
    ))
    .bind(server)
    .fetch_optional(&mut **tx)
    .await?;
    if let Some(document) = &claimed {
        fairness::record_turn(tx, fairness::DOCUMENT_JOBS, &document.workspace).await?;
    }
    Ok(claimed)
}

/// Stores the extracted text of a document, or the reason why it cannot be extracted.
pub(crate) async fn save_document_text(
    tx: &mut Transaction,
    kb: &str,
    id: &str,
    result: std::result::Result<&str, &str>,
    at: Micros,
) -> Result<()> {
    let (status, body, error) = match result {
        Ok(text) => ("ready", text, None),
        Err(reason) => ("error", "", Some(reason)),
    };
    sqlx::query(
        "UPDATE kb_document SET status = $1, body = $2, error_message = $3, source = NULL \
         WHERE id = $4",
    )
    .bind(status)
    .bind(body)
    .bind(error)
    .bind(id)
    .execute(&mut **tx)
    .await?;
    mark_changed(tx, kb, at).await
}

/// Marks a knowledge base as changed, so that every index of it is rebuilt.
pub(crate) async fn mark_changed(tx: &mut Transaction, id: &str, at: Micros) -> Result<()> {
    sqlx::query(
        "UPDATE kb SET updated_at = CASE WHEN updated_at < $1 THEN $1 ELSE updated_at + 1 END \
         WHERE id = $2",
    )
    .bind(at)
    .bind(id)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Sets the name and the description of a knowledge base; false if there is none.
pub(crate) async fn rename(
    tx: &mut Transaction,
    workspace: &str,
    id: &str,
    name: &str,
    description: &str,
    at: Micros,
) -> Result<bool> {
    let done = sqlx::query(
        "UPDATE kb SET name = $1, description = $2, search = $3, updated_at = $4 WHERE id = $5 \
         AND workspace = $6",
    )
    .bind(name)
    .bind(description)
    .bind(search_text(&[id, name]))
    .bind(at)
    .bind(id)
    .bind(workspace)
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Deletes a document; returns the id of its knowledge base.
pub(crate) async fn delete_document(
    tx: &mut Transaction,
    workspace: &str,
    id: &str,
) -> Result<Option<String>> {
    Ok(sqlx::query_scalar("DELETE FROM kb_document WHERE id = $1 AND workspace = $2 RETURNING kb")
        .bind(id)
        .bind(workspace)
        .fetch_optional(&mut **tx)
        .await?)
}

/// Deletes a knowledge base and its documents; false if there was none.
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

/// Stores the embeddings of a document's chunks by `model`.
pub(crate) async fn save_embeddings(
    tx: &mut Transaction,
    kb: &str,
    id: &str,
    model: &str,
    embeddings: &str,
    at: Micros,
) -> Result<()> {
    sqlx::query("UPDATE kb_document SET directions = $1, directions_of = $2 WHERE id = $3")
        .bind(embeddings)
        .bind(model)
        .bind(id)
        .execute(&mut **tx)
        .await?;
    mark_changed(tx, kb, at).await
}

impl Store {
    /// Whether there is a document that this server may claim.
    pub(crate) async fn has_claimable_document(&self, server: &str) -> Result<bool> {
        let sql = concat!("SELECT id FROM kb_document WHERE ", claimable_document!(), " LIMIT 1");
        let found: Option<String> =
            sqlx::query_scalar(sql).bind(server).fetch_optional(self.reader_pool()).await?;
        Ok(found.is_some())
    }

    /// A document without embeddings of `model`: the oldest one of the workspace whose turn it is.
    pub(crate) async fn next_document_to_embed(
        &self,
        model: &str,
    ) -> Result<Option<DocumentToEmbed>> {
        Ok(sqlx::query_as(concat!(
            "SELECT id, workspace, kb, body FROM kb_document AS waits WHERE status = 'ready' \
             AND (directions_of IS NULL OR directions_of <> $1) ORDER BY ",
            fairness::last_turn!("meaning", "waits.workspace"),
            ", created_at, id LIMIT 1",
        ))
        .bind(model)
        .fetch_optional(self.reader_pool())
        .await?)
    }

    /// One knowledge base.
    pub(crate) async fn kb(&self, workspace: &str, id: &str) -> Result<Option<Row>> {
        Ok(self.kbs(workspace, &[id.to_owned()]).await?.pop())
    }

    /// Those of `ids` that exist, in any order.
    pub(crate) async fn kbs(&self, workspace: &str, ids: &[String]) -> Result<Vec<Row>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut sql = SqlBuilder::new(format!("SELECT {COLUMNS} FROM kb WHERE workspace = "));
        sql.bind(workspace.to_owned()).push(" AND id IN (");
        sql.bind_all(ids);
        sql.push(")");
        sql.fetch_all(self.reader_pool()).await
    }

    /// One page and the number of all matches.
    pub(crate) async fn kb_page(&self, workspace: &str, page: &Page) -> Result<(Vec<Row>, i64)> {
        let mut snapshot = self.begin_read().await?;
        let mut count = SqlBuilder::new("SELECT COUNT(*) FROM kb");
        page.push_filter(&mut count, workspace, false, &[]);
        let total = count.fetch_count(&mut *snapshot).await?;
        let mut sql = SqlBuilder::new(format!("SELECT {COLUMNS} FROM kb"));
        page.push_filter(&mut sql, workspace, false, &[]);
        page.push_window(&mut sql);
        let rows = sql.fetch_all(&mut *snapshot).await?;
        snapshot.commit().await?;
        Ok((rows, total))
    }

    /// The documents of a knowledge base, in the order in which they were added.
    pub(crate) async fn kb_documents(&self, kb: &str) -> Result<Vec<Document>> {
        Ok(sqlx::query_as(
            "SELECT id, name, type, status, error_message FROM kb_document WHERE kb = $1 \
             ORDER BY position, id",
        )
        .bind(kb)
        .fetch_all(self.reader_pool())
        .await?)
    }

    /// The texts of all ready documents of these knowledge bases, with their embeddings by `model`.
    pub(crate) async fn kb_document_texts(
        &self,
        workspace: &str,
        kbs: &[String],
        model: Option<&str>,
    ) -> Result<Vec<DocumentText>> {
        if kbs.is_empty() {
            return Ok(Vec::new());
        }
        // The empty string is the name of no model. One type for all values works with both
        // databases.
        let model = model.unwrap_or_default().to_owned();
        let mut sql = SqlBuilder::new("SELECT kb, id, body, CASE WHEN directions_of = ");
        sql.bind(model).push(
            " THEN directions END AS directions FROM kb_document WHERE status = 'ready' \
             AND workspace = ",
        );
        sql.bind(workspace.to_owned()).push(" AND kb IN (");
        sql.bind_all(kbs);
        sql.push(") ORDER BY kb, position");
        sql.fetch_all(self.reader_pool()).await
    }
}

/// Whether there is such a knowledge base.
pub(crate) async fn exists(tx: &mut Transaction, workspace: &str, id: &str) -> Result<bool> {
    let found: Option<String> =
        sqlx::query_scalar("SELECT id FROM kb WHERE id = $1 AND workspace = $2")
            .bind(id)
            .bind(workspace)
            .fetch_optional(&mut **tx)
            .await?;
    Ok(found.is_some())
}
