//! Copies of an SQLite database, beside the server that uses it.

use std::path::Path;

use sqlx::{Connection as _, Row as _};

use super::{DatabaseLocation, Error, Result, Store, connect_reader, migrations};

impl Store {
    /// Writes a consistent copy of the database file `from` to the empty file `to`. Writers are not
    /// delayed.
    pub(crate) async fn copy_file(from: &Path, to: &Path) -> Result<()> {
        let target = to.to_str().ok_or_else(|| invalid("the path of the copy is not Unicode"))?;
        let mut connection = connect_reader(DatabaseLocation::File(from)).await?;
        let copied = sqlx::query("VACUUM INTO $1").bind(target).execute(&mut connection).await;
        connection.close().await?;
        copied?;
        Ok(())
    }

    /// Checks that a copy is whole and that this release reads it.
    pub(crate) async fn check_copy(file: &Path) -> Result<()> {
        let mut connection = connect_reader(DatabaseLocation::File(file)).await?;
        let checked = sqlx::query("PRAGMA quick_check(1)").fetch_one(&mut connection).await;
        connection.close().await?;
        let result: String = checked?.try_get(0)?;
        if result != "ok" {
            return Err(invalid(&result));
        }
        Self::check_schema(file).await
    }

    /// Checks that this release reads the schema of a database file. Read-only.
    pub(crate) async fn check_schema(file: &Path) -> Result<()> {
        let mut connection = connect_reader(DatabaseLocation::File(file)).await?;
        let newest = "SELECT MAX(version) FROM _sqlx_migrations";
        let schema = sqlx::query_scalar(newest).fetch_one(&mut connection).await;
        connection.close().await?;
        let schema: Option<i64> = schema?;
        migrations::check(schema.unwrap_or(0))
    }
}

fn invalid(why: &str) -> Error {
    Error::Sql(sqlx::Error::Configuration(why.to_owned().into()))
}
