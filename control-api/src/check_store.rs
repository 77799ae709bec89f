//! What `visavis check` reports about the store.

use std::path::Path;

use crate::app::{self, OpenError};
use crate::store::{self, DatabaseLocation, Store};

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
    let url = database_url.map(str::to_owned);
    let unusable = |error| OpenError::database(&url, error);
    if let Some(url) = database_url
        && !Store::may_create_tables(url).await.map_err(unusable)?
    {
        let reason = "its role may not create tables in the schema".to_owned();
        return Err(OpenError::Database(store::database_address(url), reason));
    }
    let location = database_url.map_or(DatabaseLocation::File(&file), DatabaseLocation::Url);
    let count = Store::count_failed_events(location).await.map_err(unusable)?;
    Ok(Some(u64::try_from(count).unwrap_or(0)))
}
