//! One page of a list: newest first, ties by id descending.

use super::Sql;
use crate::clock::Micros;

/// Characters of a type that an index holds.
const TYPE_INDEXED: usize = 100;

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
    /// ` WHERE …` for a table with the columns workspace, search, created_at (and type where told). `statuses`: those that match the search
    /// too, in a table that has a status.
    pub(super) fn filter(&self, sql: &mut Sql, workspace: &str, with_type: bool, statuses: &[String]) {
        sql.push(" WHERE workspace = ").bind(workspace.to_owned());
        if let Some(part) = &self.search {
            let pattern = like(part);
            sql.push(" AND (search LIKE ").bind(pattern).push(" ESCAPE '\\'");
            if !statuses.is_empty() {
                sql.push(" OR status IN (").bind_all(statuses).push(")");
            }
            sql.push(")");
        }
        if let Some(from) = self.from {
            sql.push(" AND created_at >= ").bind(from);
        }
        if let Some(to) = self.to {
            sql.push(" AND created_at < ").bind(to);
        }
        if let (Some(kind), true) = (&self.kind, with_type) {
            // By the part that the index of conversations holds; a longer one is looked up whole as well.
            let head: String = kind.chars().take(TYPE_INDEXED).collect();
            let whole = head.len() == kind.len() && head.chars().count() < TYPE_INDEXED;
            sql.push(" AND SUBSTR(type, 1, 100) = ").bind(head);
            if !whole {
                sql.push(" AND type = ").bind(kind.clone());
            }
        }
    }

    /// ` ORDER BY … LIMIT …`
    pub(super) fn window(&self, sql: &mut Sql) {
        sql.push(" ORDER BY created_at DESC, id DESC LIMIT ");
        sql.bind(self.perpage.unwrap_or(i64::MAX)).push(" OFFSET ").bind(self.offset);
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
