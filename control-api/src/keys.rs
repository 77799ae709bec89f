//! What `visavis keys` does, also beside a running server: it writes into the same database, and the server looks there for every request.

use std::path::Path;

use crate::app::{OpenError, open_store, prepare};
use crate::scope::Scope;
use crate::store::{self, Store};
use crate::{auth, clock};

/// A key, without the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// By which it is revoked.
    pub id: String,
    /// Name of its workspace.
    pub workspace: String,
    /// Its own name.
    pub name: String,
    /// Its first characters.
    pub prefix: String,
    /// ISO 8601.
    pub created_at: String,
    /// ISO 8601, if it ends by itself.
    pub expires_at: Option<String>,
    /// What it may do.
    pub scope: Scope,
    /// ISO 8601, to the minute; `None` = never.
    pub last_used_at: Option<String>,
}

async fn open(data: &Path, database_url: Option<&str>) -> Result<Store, OpenError> {
    prepare(data)?;
    Ok(open_store(data, database_url).await?)
}

/// As [`create_scoped`], for a key that may do everything.
///
/// # Errors
/// The data folder or its database cannot be used.
pub async fn create(data: &Path, database_url: Option<&str>, workspace: &str) -> Result<String, OpenError> {
    create_scoped(data, database_url, workspace, Scope::Administer).await
}

/// Makes a key in the workspace of this name (made if there is none) and tells it: the only time that it is known.
///
/// # Errors
/// The data folder or its database cannot be used.
pub async fn create_scoped(
    data: &Path,
    database_url: Option<&str>,
    workspace: &str,
    scope: Scope,
) -> Result<String, OpenError> {
    let store = open(data, database_url).await?;
    let key = auth::fresh_key();
    let mut tx = store.write().await?;
    let (workspace, _) = store::key::workspace(&mut tx, workspace).await?;
    let (prefix, hash) = (auth::prefix(&key), auth::stored(&key));
    let draft = store::key::Draft {
        workspace: &workspace,
        name: "command line",
        prefix,
        hash: &hash,
        expires_at: None,
        scope,
    };
    store::key::insert(&mut tx, &draft).await?;
    tx.commit().await?;
    store.close().await;
    Ok(key)
}

/// All keys, newest first.
///
/// # Errors
/// The data folder or its database cannot be used.
pub async fn list(data: &Path, database_url: Option<&str>) -> Result<Vec<KeyInfo>, OpenError> {
    let store = open(data, database_url).await?;
    let mut keys = Vec::new();
    for row in store.keys(None).await? {
        keys.push(KeyInfo {
            scope: row.scope()?,
            last_used_at: row.last_used_at.map(clock::iso),
            workspace: store.workspace_name(&row.workspace).await?.unwrap_or(row.workspace),
            id: row.id,
            name: row.name,
            prefix: row.prefix,
            created_at: clock::iso(row.created_at),
            expires_at: row.expires_at.map(clock::iso),
        });
    }
    store.close().await;
    Ok(keys)
}

/// Revokes a key; false if there is none with this id.
///
/// # Errors
/// The data folder or its database cannot be used.
pub async fn revoke(data: &Path, database_url: Option<&str>, id: &str) -> Result<bool, OpenError> {
    let store = open(data, database_url).await?;
    let mut tx = store.write().await?;
    let found = store::key::delete(&mut tx, None, id).await?;
    tx.commit().await?;
    store.close().await;
    Ok(found)
}
