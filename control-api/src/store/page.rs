//! One page of a list: newest first, equal times by id in descending order.

use super::SqlBuilder;
use crate::clock::Micros;

/// Number of characters of a type that the index holds.
const INDEXED_TYPE_CHARS: usize = 100;

/// The requested part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// Number of items to skip.
    pub(crate) offset: i64,
    /// Maximum number of items; `None` = all.
    pub(crate) perpage: Option<i64>,
    /// Substring of the item's searchable text, in lower case.
    pub(crate) search: Option<String>,
    /// Created at or after this time.
    pub(crate) from: Option<Micros>,
    /// Created before this time.
    pub(crate) to: Option<Micros>,
    /// Of this type.
    pub(crate) kind: Option<String>,
}

impl Page {
    /// ` WHERE …` for a table with the columns workspace, search, created_at (and type if
    /// `with_type`). `statuses`: statuses that match the search too, in a table that has a status.
    pub(super) fn push_filter(
        &self,
        sql: &mut SqlBuilder,
        workspace: &str,
        with_type: bool,
        statuses: &[String],
    ) {
        sql.push(" WHERE workspace = ").bind(workspace.to_owned());
        if let Some(part) = &self.search {
            let pattern = like_pattern(part);
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
            // Compares the part that the index of conversations holds. A longer type is also
            // compared as a whole.
            let indexed_part: String = kind.chars().take(INDEXED_TYPE_CHARS).collect();
            let is_whole = indexed_part.len() == kind.len()
                && indexed_part.chars().count() < INDEXED_TYPE_CHARS;
            sql.push(" AND SUBSTR(type, 1, 100) = ").bind(indexed_part);
            if !is_whole {
                sql.push(" AND type = ").bind(kind.clone());
            }
        }
    }

    /// ` ORDER BY … LIMIT …`
    pub(super) fn push_window(&self, sql: &mut SqlBuilder) {
        sql.push(" ORDER BY created_at DESC, id DESC LIMIT ");
        sql.bind(self.perpage.unwrap_or(i64::MAX)).push(" OFFSET ").bind(self.offset);
    }
}

/// A LIKE pattern that matches `part` anywhere. `%` and `_` are escaped.
fn like_pattern(part: &str) -> String {
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

/// The text that `search` matches: in lower case, the parts on separate lines.
pub(crate) fn search_text(parts: &[&str]) -> String {
    parts.join("\n").to_lowercase()
}
