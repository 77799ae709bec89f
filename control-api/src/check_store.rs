//! What `visavis check` reports about the store.

use std::path::Path;

use crate::app::{self, OpenError};
use crate::store::{DatabaseLocation, Store};

/// Number of quarantined events, which are stored as text; `None` if there is no store yet. Creates
/// none.
///
/// # Errors
/// The database cannot be used.
pub async fn failed_events(
    data: &Path,
    database_url: Option<&str>,
) -> Result<Option<u64>, OpenError> {
    let file = app::database_file(data);
    if database_url.is_none() && !file.exists() {
        return Ok(None);
    }
    let count = Store::count_failed_events(
        database_url.map_or(DatabaseLocation::File(&file), DatabaseLocation::Url),
    )
    .await?;
    Ok(Some(u64::try_from(count).unwrap_or(0)))
}
