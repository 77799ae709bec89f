//! Structs that are read from a row, each field from the column of its name. `sqlx`'s derive does the same, but compiles the whole of
//! SQLite, PostgreSQL's driver and TLS a second time, for the compiler's own process.

/// Implements [`sqlx::FromRow`] for a struct. `field = "column"` names a column that is called otherwise. A field that is left out does not compile.
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
