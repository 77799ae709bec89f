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
    let is_there = data_folder::database_file(data).is_file();
    unreadable_folder(data).or_else(|| (!is_there).then(|| no_data(data)))
}

/// Why this user cannot look into a data folder; `None` if it can, or if there is no folder.
fn unreadable_folder(data: &Path) -> Option<OpenError> {
    let error = std::fs::metadata(data_folder::database_file(data)).err()?;
    let is_denied = error.kind() == std::io::ErrorKind::PermissionDenied;
    is_denied.then(|| DataFolderError::new(data, "read", &error).into())
}

/// What says that no server has used the data folder or the database; `None` if one has, or if the
/// database cannot be used. Creates nothing.
///
/// # Errors
/// This user cannot read the data folder, so its server cannot start.
pub async fn unused_store(
    data: &Path,
    database_url: Option<&str>,
) -> Result<Option<String>, OpenError> {
    // A server with PostgreSQL has files there, too.
    if let Some(error) = unreadable_folder(data) {
        return Err(error);
    }
    let Some(url) = database_url else {
        return Ok(missing_data(data, None).map(|error| error.to_string()));
    };
    let is_used = Store::has_tables(DatabaseLocation::Url(url)).await.unwrap_or(true);
    let address = store::database_address(url);
    Ok((!is_used).then(|| {
        format!("the database at {address} has no tables of Visavis: the first start creates them")
    }))
}

/// The data folder has no database.
pub(crate) fn no_data(data: &Path) -> OpenError {
    OpenError::NoData(std::path::absolute(data).unwrap_or_else(|_| data.to_owned()))
}

/// Number of quarantined events, which are stored as text; `None` if there is no store yet. Creates
/// none.
///
/// # Errors
/// The database cannot be used, or a newer release has changed it.
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
    if database_url.is_none() {
        check_schema(&file).await.map_err(unusable)?;
    }
    let location = database_url.map_or(DatabaseLocation::File(&file), DatabaseLocation::Url);
    let count = Store::count_failed_events(location).await.map_err(unusable)?;
    Ok(Some(u64::try_from(count).unwrap_or(0)))
}

/// Refuses a database file that the start of a server would refuse. In PostgreSQL, a newer release
/// may run beside this one.
async fn check_schema(file: &Path) -> store::Result<()> {
    // Before the first start, there is nothing to compare.
    if Store::has_tables(DatabaseLocation::File(file)).await? {
        Store::check_schema(file).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::open_store;
    use crate::data_folder::{database_file, prepare_data_folder};
    use crate::store::Lock;

    #[tokio::test]
    async fn a_database_of_a_newer_release_is_refused_with_the_sentence_of_the_server() {
        let data = std::env::temp_dir().join(format!("visavis-check-store-{}", std::process::id()));
        assert_eq!(failed_events(&data, None).await.unwrap(), None);
        assert!(unused_store(&data, None).await.unwrap().is_some(), "it does not exist yet");
        prepare_data_folder(&data).unwrap();
        assert_eq!(failed_events(&data, None).await.unwrap(), Some(0), "an empty file");
        let store = open_store(&data, None).await.unwrap();
        store.close().await;
        assert_eq!(failed_events(&data, None).await.unwrap(), Some(0));
        assert_eq!(unused_store(&data, None).await.unwrap(), None);

        let store = open_store(&data, None).await.unwrap();
        let mut tx = store.begin_write(Lock::Rows).await.unwrap();
        sqlx::query(
            "INSERT INTO _sqlx_migrations \
             (version, description, success, checksum, execution_time) \
             VALUES (9001, 'later', TRUE, X'00', 0)",
        )
        .execute(&mut *tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
        store.close().await;
        let before = std::fs::read(database_file(&data)).unwrap();
        let refused = failed_events(&data, None).await.unwrap_err().to_string();
        assert!(refused.contains("a newer release of Visavis"), "{refused}");
        assert!(std::fs::read(database_file(&data)).unwrap() == before, "nothing is written");
        let of_server = open_store(&data, None).await.err().map(OpenError::from).unwrap();
        assert_eq!(refused, of_server.to_string());
        std::fs::remove_dir_all(data).unwrap();
    }
}
