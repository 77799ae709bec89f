//! A statement that is put together of parts, with its values: numbered placeholders suit both databases.

use sqlx::any::AnyArguments;
use sqlx::{Arguments as _, AssertSqlSafe, Encode, FromRow, Type};

use super::{Db, Result};

/// A statement in the making.
#[derive(Default)]
pub(crate) struct Sql {
    text: String,
    values: AnyArguments,
    /// A value that could not be taken, told when the statement runs.
    failed: Option<sqlx::Error>,
}

impl Sql {
    /// A statement that begins so.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// More of the statement.
    pub(crate) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// A value in this place.
    pub(crate) fn bind<T: for<'q> Encode<'q, Db> + Type<Db>>(&mut self, value: T) -> &mut Self {
        if let Err(error) = self.values.add(value) {
            self.failed.get_or_insert(sqlx::Error::Encode(error));
        }
        self.text.push('$');
        self.text.push_str(&self.values.len().to_string());
        self
    }

    /// Values in this place, parted by commas.
    pub(crate) fn bind_all(&mut self, values: &[String]) -> &mut Self {
        for (i, value) in values.iter().enumerate() {
            if i > 0 {
                self.push(", ");
            }
            self.bind(value.clone());
        }
        self
    }

    /// All rows.
    pub(crate) async fn all<T>(self, pool: &sqlx::Pool<Db>) -> Result<Vec<T>>
    where
        T: for<'r> FromRow<'r, sqlx::any::AnyRow> + Send + Unpin,
    {
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        Ok(sqlx::query_as_with(AssertSqlSafe(self.text), self.values).fetch_all(pool).await?)
    }

    /// The number that a counting statement yields.
    pub(crate) async fn count(self, pool: &sqlx::Pool<Db>) -> Result<i64> {
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        Ok(sqlx::query_scalar_with(AssertSqlSafe(self.text), self.values).fetch_one(pool).await?)
    }
}
