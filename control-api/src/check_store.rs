//! What `visavis check` reports about the store.

use std::path::Path;

use crate::app::OpenError;
use crate::data_folder::{self, DataFolderError};
use crate::store::{self, DatabaseLocation, Store};

/// Why there is no database of a server in a data folder; `None` if there is one, or if the database
/// is elsewhere. Creates nothing.
pub(crate) fn missing_data(data: &Path, database_url: Option<&str>) -> Option<OpenError> {
    if database_url.is_some() {
        return None;
    }
    match std::fs::metadata(data_folder::database_file(data)) {
        Ok(found) => (!found.is_file()).then(|| no_data(data)),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Some(DataFolderError::new(data, "read", &error).into())
        }
        Err(_) => Some(no_data(data)),
    }
}

/// What says that no server has used the data folder or the database; `None` if one has, or if the
/// database cannot be used. Creates nothing.
pub async fn unused_store(data: &Path, database_url: Option<&str>) -> Option<String> {
    let Some(url) = database_url else {
        return missing_data(data, None).map(|error| error.to_string());
    };
    let is_used = Store::has_tables(DatabaseLocation::Url(url)).await.unwrap_or(true);
    let address = store::database_address(url);
    (!is_used).then(|| {
        format!("the database at {address} has no tables of Visavis: the first start creates them")
    })
}

/// The data folder has no database.
pub(crate) fn no_data(data: &Path) -> OpenError {
    OpenError::NoData(std::path::absolute(data).unwrap_or_else(|_| data.to_owned()))
}

/// Number of quarantined events, which are stored as text; `None` if there is no store yet. Creates
/// none.
///
/// # Errors
/// The database cannot be used.
pub async fn failed_events(
    data: &Path,
    database_url: Option<&str>,
) -> Result<Option<u64>, OpenError> {
    let file = data_folder::database_file(data);
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
