//! Structs read from a row, each field from the column of the same name. The derive macro of `sqlx`
//! does the same, but compiles SQLite, PostgreSQL's driver and TLS a second time, for the
//! compiler's process.

/// Implements [`sqlx::FromRow`] for a struct. `field = "column"` is for a column with another name.
/// A missing field does not compile.
macro_rules! from_row {
    ($name:ident { $($field:ident $(= $column:literal)?),+ $(,)? }) => {
        impl<'r> sqlx::FromRow<'r, sqlx::any::AnyRow> for $name {
            fn from_row(row: &'r sqlx::any::AnyRow) -> sqlx::Result<Self> {
                use sqlx::Row as _;
                Ok(Self { $($field: row.try_get(from_row!(@column $field $($column)?))?),+ })
            }
        }
    };
    (@column $field:ident) => { stringify!($field) };
    (@column $field:ident $column:literal) => { $column };
}
