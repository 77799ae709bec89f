//! The `visavis keys` command. It also works beside a running server: it writes to the same
//! database, and the server reads the key for every request. It creates no database: a key in a new
//! one would open nothing.

use std::path::Path;

use crate::app::{OpenError, open_store};
use crate::check_store::{missing_data, no_data};
use crate::clock;
use crate::data_folder::database_file;
use crate::scope::Scope;
use crate::state::api_key;
use crate::store::{self, DatabaseLocation, Lock, Store};

/// A key, without its secret value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// Id for revocation.
    pub id: String,
    /// Name of its workspace.
    pub workspace: String,
    /// Name of the key.
    pub name: String,
    /// First characters of the key.
    pub prefix: String,
    /// ISO 8601.
    pub created_at: String,
    /// ISO 8601, if the key expires.
    pub expires_at: Option<String>,
    /// Scope of the key.
    pub scope: Scope,
    /// ISO 8601, with a resolution of one minute; `None` = never.
    pub last_used_at: Option<String>,
}

/// Opens the database that a server uses. Creates nothing.
async fn open(data: &Path, database_url: Option<&str>) -> Result<Store, OpenError> {
    if let Some(error) = missing_data(data, database_url) {
        return Err(error);
    }
    let file = database_file(data);
    let location = database_url.map_or(DatabaseLocation::File(&file), DatabaseLocation::Url);
    let unusable = |error| OpenError::database(&database_url.map(str::to_owned), error);
    if Store::has_tables(location).await.map_err(unusable)? {
        return open_store(data, database_url).await.map_err(unusable);
    }
    Err(match database_url {
        Some(url) => {
            let reason = "it has no tables of Visavis; start the server once, or name its database";
            OpenError::Database(store::database_address(url), reason.to_owned())
        }
        None => no_data(data),
    })
}

/// Like [`create_scoped`], with scope [`Scope::Administer`].
///
/// # Errors
/// No server has used the data folder or the database yet, or it cannot be used.
pub async fn create(
    data: &Path,
    database_url: Option<&str>,
    workspace: &str,
) -> Result<String, OpenError> {
    create_scoped(data, database_url, workspace, Scope::Administer).await
}

/// Creates a key in the workspace with this name (created if there is none) and returns it. The key
/// cannot be read again later.
///
/// # Errors
/// No server has used the data folder or the database yet, or it cannot be used.
pub async fn create_scoped(
    data: &Path,
    database_url: Option<&str>,
    workspace: &str,
    scope: Scope,
) -> Result<String, OpenError> {
    let store = open(data, database_url).await?;
    let key = api_key::generate_key();
    let mut tx = store.begin_write(Lock::Workspaces).await?;
    let (workspace, _) = store::api_key::get_or_create_workspace(&mut tx, workspace).await?;
    let (prefix, hash) = (api_key::key_prefix(&key), api_key::stored_hash(&key));
    let draft = store::api_key::Draft {
        workspace: &workspace,
        name: "command line",
        prefix,
        hash: &hash,
        expires_at: None,
        scope,
    };
    store::api_key::insert(&mut tx, &draft).await?;
    tx.commit().await?;
    store.close().await;
    Ok(key)
}

/// All keys, newest first.
///
/// # Errors
/// No server has used the data folder or the database yet, or it cannot be used.
pub async fn list(data: &Path, database_url: Option<&str>) -> Result<Vec<KeyInfo>, OpenError> {
    let store = open(data, database_url).await?;
    let mut keys = Vec::new();
    for row in store.api_keys(None).await? {
        keys.push(KeyInfo {
            scope: row.scope()?,
            last_used_at: row.last_used_at.map(clock::to_iso8601),
            workspace: store.workspace_name(&row.workspace).await?.unwrap_or(row.workspace),
            id: row.id,
            name: row.name,
            prefix: row.prefix,
            created_at: clock::to_iso8601(row.created_at),
            expires_at: row.expires_at.map(clock::to_iso8601),
        });
    }
    store.close().await;
    Ok(keys)
}

/// Revokes a key; false if there is none with this id.
///
/// # Errors
/// No server has used the data folder or the database yet, or it cannot be used.
pub async fn revoke(data: &Path, database_url: Option<&str>, id: &str) -> Result<bool, OpenError> {
    let store = open(data, database_url).await?;
    let mut tx = store.begin_write(Lock::Workspaces).await?;
    let found = store::api_key::delete(&mut tx, None, id).await?;
    tx.commit().await?;
    store.close().await;
    Ok(found)
}
