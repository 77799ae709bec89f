//! One page of a list: newest first, ties by id descending.

use sqlx::QueryBuilder;

use super::Db;
use crate::clock::Micros;

/// Which part of a list is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// Items to skip.
    pub(crate) offset: i64,
    /// Items at most; `None` = all.
    pub(crate) perpage: Option<i64>,
    /// Part of the item's searchable text, in lower case.
    pub(crate) search: Option<String>,
    /// Created at or after.
    pub(crate) from: Option<Micros>,
    /// Created before.
    pub(crate) to: Option<Micros>,
    /// Of this type.
    pub(crate) kind: Option<String>,
}

impl Page {
    /// ` WHERE …` for a table with the columns workspace, search, created_at (and type, status where told).
    pub(super) fn filter(
        &self,
        sql: &mut QueryBuilder<Db>,
        workspace: &str,
        with_type: bool,
        with_status: bool,
    ) {
        sql.push(" WHERE workspace = ").push_bind(workspace.to_owned());
        if let Some(part) = &self.search {
            let pattern = like(part);
            sql.push(" AND (search LIKE ").push_bind(pattern.clone()).push(" ESCAPE '\\'");
            if with_status {
                sql.push(" OR LOWER(status) LIKE ").push_bind(pattern).push(" ESCAPE '\\'");
            }
            sql.push(")");
        }
        if let Some(from) = self.from {
            sql.push(" AND created_at >= ").push_bind(from);
        }
        if let Some(to) = self.to {
            sql.push(" AND created_at < ").push_bind(to);
        }
        if let (Some(kind), true) = (&self.kind, with_type) {
            sql.push(" AND type = ").push_bind(kind.clone());
        }
    }

    /// ` ORDER BY … LIMIT …`
    pub(super) fn window(&self, sql: &mut QueryBuilder<Db>) {
        sql.push(" ORDER BY created_at DESC, id DESC LIMIT ");
        sql.push_bind(self.perpage.unwrap_or(i64::MAX)).push(" OFFSET ").push_bind(self.offset);
    }
}

/// A pattern that matches `part` anywhere, `%` and `_` being themselves.
fn like(part: &str) -> String {
    let mut pattern = String::from("%");
    for c in part.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

/// What `search` looks in: lower case, the parts apart.
pub(crate) fn searchable(parts: &[&str]) -> String {
    parts.join("\n").to_lowercase()
}
