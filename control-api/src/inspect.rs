//! What `visavis check` tells of the store.

use std::path::Path;

use crate::app::{self, OpenError};

/// How many events the store refused alone, which are kept as text; `None` if there is no store yet, and none is made.
///
/// # Errors
/// The database cannot be used.
pub async fn failed_events(data: &Path, database_url: Option<&str>) -> Result<Option<u64>, OpenError> {
    if database_url.is_none() && !app::database(data).exists() {
        return Ok(None);
    }
    let store = app::open_store(data, database_url).await?;
    let count = store.failed_events().await?;
    store.close().await;
    Ok(Some(u64::try_from(count).unwrap_or(0)))
}
