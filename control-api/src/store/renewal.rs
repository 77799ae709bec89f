//! Renewals: finished custom avatars and variants that an older plan or renderer drew are drawn
//! again. Their poses stay in use until the new ones are complete. A row is skipped if nothing is
//! left to draw it from, or if this version has failed with it before.
//!
//! ```text
//! outdated ---- claim ----> renewing -- finish: drawn --> up to date
//! renewing ---- server restarted or no longer alive, claim --> renewing
//! renewing ---- release --> outdated
//! renewing ---- finish: error --> outdated, skipped by this version
//! ```

use super::custom_avatar::{Job, Poses, job_columns};
use super::server::live_servers;
use super::{Result, Store, Transaction, fairness};
use crate::clock::Micros;

/// SQL condition: a row that server `$1` may renew to version `$2`.
macro_rules! renewable {
    () => {
        concat!(
            "status = 'COMPLETED' AND plan_version < $2 AND failed_version < $2 \
             AND (base_avatar IS NOT NULL OR person IS NOT NULL \
             OR (source IS NOT NULL AND keep_source = 1)) \
             AND (renewing = 0 OR server = $1 OR server NOT IN ",
            live_servers!(),
            ")"
        )
    };
}

/// Claims a row to renew: the oldest of the workspace whose turn it is.
pub(crate) async fn claim(
    tx: &mut Transaction,
    server: &str,
    plan_version: i64,
) -> Result<Option<Job>> {
    let claimed: Option<Job> = sqlx::query_as(concat!(
        "UPDATE custom_avatar SET renewing = 1, server = $1 \
         WHERE id = (SELECT id FROM custom_avatar AS waits WHERE ",
        renewable!(),
        " ORDER BY ",
        fairness::last_turn!("renewal", "waits.workspace"),
        ", created_at, id LIMIT 1) RETURNING ",
        job_columns!(),
    ))
    .bind(server)
    .bind(plan_version)
    .fetch_optional(&mut **tx)
    .await?;
    if let Some(job) = &claimed {
        fairness::record_turn(tx, fairness::RENEWALS, &job.workspace).await?;
    }
    Ok(claimed)
}

/// Finishes a renewal: with the new poses, or as failed. Does nothing if this server no longer owns
/// it, or the row is gone; then false.
pub(crate) async fn finish(
    tx: &mut Transaction,
    server: &str,
    id: &str,
    plan_version: i64,
    result: Option<Poses<'_>>,
    at: Micros,
) -> Result<bool> {
    let statement = match result {
        Some(Poses { output, poses, .. }) => {
            // The old poses.
            tx.mark_pictures_deleted();
            sqlx::query(
                "UPDATE custom_avatar SET renewing = 0, plan_version = $1, output = $2, \
                 poses = $3, updated_at = $4 WHERE id = $5 AND server = $6 AND renewing = 1 \
                 AND status = 'COMPLETED'",
            )
            .bind(plan_version)
            .bind(output)
            .bind(poses)
            .bind(at)
        }
        None => sqlx::query(
            "UPDATE custom_avatar SET renewing = 0, failed_version = $1 \
             WHERE id = $2 AND server = $3 AND renewing = 1",
        )
        .bind(plan_version),
    };
    let done = statement.bind(id).bind(server).execute(&mut **tx).await?;
    Ok(done.rows_affected() > 0)
}

/// Gives up a renewal for now.
pub(crate) async fn release(tx: &mut Transaction, server: &str, id: &str) -> Result<()> {
    sqlx::query("UPDATE custom_avatar SET renewing = 0 WHERE id = $1 AND server = $2")
        .bind(id)
        .bind(server)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

impl Store {
    /// Whether there is a row that this server may renew.
    pub(crate) async fn has_renewable(&self, server: &str, plan_version: i64) -> Result<bool> {
        let sql = concat!("SELECT id FROM custom_avatar WHERE ", renewable!(), " LIMIT 1");
        let found: Option<String> = sqlx::query_scalar(sql)
            .bind(server)
            .bind(plan_version)
            .fetch_optional(self.reader_pool())
            .await?;
        Ok(found.is_some())
    }

    /// Whether this server still renews a row.
    pub(crate) async fn is_renewing(&self, server: &str, id: &str) -> Result<bool> {
        let sql = "SELECT id FROM custom_avatar WHERE id = $1 AND server = $2 AND renewing = 1 \
                   AND status = 'COMPLETED'";
        let found: Option<String> = sqlx::query_scalar(sql)
            .bind(id)
            .bind(server)
            .fetch_optional(self.reader_pool())
            .await?;
        Ok(found.is_some())
    }
}
