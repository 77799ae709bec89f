//! Keys of a workspace at vendors and services.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::secrets;
use super::vault::Vault;
use super::{Result, Store, Transaction};
use crate::clock::{self, Micros};

/// A key, and the address that it is sent to.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credential {
    /// Secret.
    pub(crate) token: String,
    /// Base URL; `None` = the vendor's.
    pub(crate) url: Option<String>,
    /// Verifies the webhooks of a meeting service. Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) webhook_secret: Option<String>,
}

/// The keys of a workspace, by name.
pub(crate) type Credentials = BTreeMap<String, Credential>;

/// A stored key.
pub(crate) struct Row {
    pub(crate) name: String,
    secrets: String,
    pub(crate) created_at: Micros,
    pub(crate) updated_at: Micros,
}

from_row!(Row { name, secrets, created_at, updated_at });

impl Row {
    /// Decrypts the row of `workspace`.
    pub(crate) fn open(&self, vault: &Vault, workspace: &str) -> Result<Credential> {
        secrets::open(vault, &owner(workspace, &self.name), &self.secrets)
    }
}

/// The row's id for the encryption: a secret cannot be moved to another workspace or name.
fn owner(workspace: &str, name: &str) -> String {
    format!("credential/{workspace}/{name}")
}

/// The key with this name.
pub(crate) async fn find(tx: &mut Transaction, workspace: &str, name: &str) -> Result<Option<Row>> {
    Ok(sqlx::query_as(
        "SELECT name, secrets, created_at, updated_at FROM credential \
         WHERE workspace = $1 AND name = $2",
    )
    .bind(workspace)
    .bind(name)
    .fetch_optional(&mut **tx)
    .await?)
}

/// Adds or replaces a key.
pub(crate) async fn put(
    tx: &mut Transaction,
    vault: &Vault,
    workspace: &str,
    name: &str,
    credential: &Credential,
) -> Result<()> {
    sqlx::query(
        "INSERT INTO credential (workspace, name, secrets, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $4) ON CONFLICT (workspace, name) \
         DO UPDATE SET secrets = excluded.secrets, updated_at = excluded.updated_at",
    )
    .bind(workspace)
    .bind(name)
    .bind(secrets::seal(vault, &owner(workspace, name), credential))
    .bind(clock::now())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Deletes a key; false if there is none.
pub(crate) async fn delete(tx: &mut Transaction, workspace: &str, name: &str) -> Result<bool> {
    let done = sqlx::query("DELETE FROM credential WHERE workspace = $1 AND name = $2")
        .bind(workspace)
        .bind(name)
        .execute(&mut **tx)
        .await?;
    Ok(done.rows_affected() > 0)
}

impl Store {
    /// The keys of a workspace, by name.
    pub(crate) async fn credential_rows(&self, workspace: &str) -> Result<Vec<Row>> {
        Ok(sqlx::query_as(
            "SELECT name, secrets, created_at, updated_at FROM credential \
             WHERE workspace = $1 ORDER BY name",
        )
        .bind(workspace)
        .fetch_all(self.reader_pool())
        .await?)
    }

    /// The keys of a workspace, decrypted.
    pub(crate) async fn credentials(&self, vault: &Vault, workspace: &str) -> Result<Credentials> {
        let rows = self.credential_rows(workspace).await?;
        let open = |row: Row| Ok((row.name.clone(), row.open(vault, workspace)?));
        rows.into_iter().map(open).collect()
    }
}
