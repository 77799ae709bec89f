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
        let checked = async {
            let row = sqlx::query("PRAGMA quick_check(1)").fetch_one(&mut connection).await?;
            let result: String = row.try_get(0)?;
            let newest = "SELECT MAX(version) FROM _sqlx_migrations";
            let schema: Option<i64> = sqlx::query_scalar(newest).fetch_one(&mut connection).await?;
            Ok::<_, Error>((result, schema.unwrap_or(0)))
        };
        let checked = checked.await;
        connection.close().await?;
        match checked? {
            (result, _) if result != "ok" => Err(invalid(&result)),
            (_, schema) => migrations::check(schema),
        }
    }
}

fn invalid(why: &str) -> Error {
    Error::Sql(sqlx::Error::Configuration(why.to_owned().into()))
}
