//! The workspaces of a database, for the parts of the configuration that name them.

use std::path::Path;

use crate::app::{self, DEFAULT_WORKSPACE_NAME, OpenError};
use crate::data_folder;
use crate::store::{self, DatabaseLocation, Lock, Store};

/// Id and name of each workspace, for a server that starts: the data folder, its database and the
/// default workspace are created if they are absent.
///
/// # Errors
/// The data folder or its database cannot be used.
pub async fn prepare(
    data: &Path,
    database_url: Option<&str>,
) -> Result<Vec<(String, String)>, OpenError> {
    data_folder::prepare_data_folder(data)?;
    let store = app::open_store(data, database_url).await?;
    let mut tx = store.begin_write(Lock::Workspaces).await?;
    store::api_key::get_or_create_workspace(&mut tx, DEFAULT_WORKSPACE_NAME).await?;
    tx.commit().await?;
    store.close().await;
    list(data, database_url).await
}

/// Id and name of each workspace. Creates none; the default one, which the first start creates, has
/// an empty id until then.
///
/// # Errors
/// The database cannot be used.
pub async fn list(
    data: &Path,
    database_url: Option<&str>,
) -> Result<Vec<(String, String)>, OpenError> {
    let file = data_folder::database_file(data);
    let mut workspaces = if database_url.is_some() || file.exists() {
        let location = database_url.map_or(DatabaseLocation::File(&file), DatabaseLocation::Url);
        Store::read_workspaces(location).await?
    } else {
        Vec::new()
    };
    if !workspaces.iter().any(|(_, name)| name == DEFAULT_WORKSPACE_NAME) {
        workspaces.push((String::new(), DEFAULT_WORKSPACE_NAME.to_owned()));
    }
    Ok(workspaces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_default_workspace_is_known_before_the_first_start() {
        let data = std::env::temp_dir().join(format!("visavis-workspaces-{}", std::process::id()));
        let unused = list(&data, None).await.unwrap();
        assert_eq!(unused, [(String::new(), "default".to_owned())]);
        assert!(!data.exists(), "nothing is created");
        let prepared = prepare(&data, None).await.unwrap();
        assert!(prepared.len() == 1 && !prepared[0].0.is_empty(), "{prepared:?}");
        crate::keys::create(&data, None, "sales").await.unwrap();
        let mut names: Vec<_> = list(&data, None).await.unwrap().into_iter().collect();
        names.sort_by(|a, b| a.1.cmp(&b.1));
        assert_eq!(names[0], prepared[0]);
        assert_eq!((names[1].1.as_str(), names.len()), ("sales", 2));
        std::fs::remove_dir_all(data).unwrap();
    }
}
