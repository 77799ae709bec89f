//! An SQL statement built from parts, with its values. Numbered placeholders work with both
//! databases.

use sqlx::any::AnyArguments;
use sqlx::{Arguments as _, AssertSqlSafe, Encode, Executor, FromRow, Type};

use super::{Db, Result};

/// A statement under construction.
#[derive(Default)]
pub(crate) struct SqlBuilder {
    text: String,
    values: AnyArguments,
    /// A value that could not be encoded; reported when the statement runs.
    bind_error: Option<sqlx::Error>,
}

impl SqlBuilder {
    /// A statement that starts with `text`.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Appends `text` to the statement.
    pub(crate) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Appends a placeholder for `value`.
    pub(crate) fn bind<T: for<'q> Encode<'q, Db> + Type<Db>>(&mut self, value: T) -> &mut Self {
        if let Err(error) = self.values.add(value) {
            self.bind_error.get_or_insert(sqlx::Error::Encode(error));
        }
        self.text.push('$');
        self.text.push_str(&self.values.len().to_string());
        self
    }

    /// Appends placeholders for `values`, separated by commas.
    pub(crate) fn bind_all(&mut self, values: &[String]) -> &mut Self {
        for (i, value) in values.iter().enumerate() {
            if i > 0 {
                self.push(", ");
            }
            self.bind(value.clone());
        }
        self
    }

    /// Runs the statement and returns all rows.
    pub(crate) async fn fetch_all<'e, T>(
        self,
        executor: impl Executor<'e, Database = Db>,
    ) -> Result<Vec<T>>
    where
        T: for<'r> FromRow<'r, sqlx::any::AnyRow> + Send + Unpin,
    {
        if let Some(error) = self.bind_error {
            return Err(error.into());
        }
        Ok(sqlx::query_as_with(AssertSqlSafe(self.text), self.values).fetch_all(executor).await?)
    }

    /// Runs a counting statement and returns the number.
    pub(crate) async fn fetch_count<'e>(
        self,
        executor: impl Executor<'e, Database = Db>,
    ) -> Result<i64> {
        if let Some(error) = self.bind_error {
            return Err(error.into());
        }
        Ok(sqlx::query_scalar_with(AssertSqlSafe(self.text), self.values)
            .fetch_one(executor)
            .await?)
    }
}
