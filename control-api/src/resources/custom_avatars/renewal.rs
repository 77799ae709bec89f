//! Draws avatars again that an older version drew, when no job waits. Until the new poses are
//! complete, the old ones stay in use; then running calls switch to them. A renewal stops when a
//! job is queued. It asks for no quota: the workspace did not ask for it.

use models::face::PLAN_VERSION;

use super::bake::{BAKE_FOLDER, BakeTask, Error, Purpose};
use super::bake_files::{COMPLETE_PERCENT, remove_stale_folders};
use super::subject;
use crate::clock;
use crate::state::server_report::ServerReport;
use crate::store::fairness::AVATAR_JOBS;
use crate::store::{Lock, renewal as table};

impl BakeTask {
    /// Renews the next avatar; false if there is none, or if it must not be renewed yet.
    pub(super) async fn renew_next(&self) -> Result<bool, Error> {
        let version = i64::from(PLAN_VERSION);
        if !self.store.has_renewable(&self.server_id, version).await?
            || !self.can_all_servers_read_renewals().await?
        {
            return Ok(false);
        }
        let mut tx = self.store.begin_write(Lock::Jobs(AVATAR_JOBS)).await?;
        let job = table::claim(&mut tx, &self.server_id, version).await?;
        tx.commit().await?;
        let Some(job) = job else { return Ok(false) };
        tracing::info!(custom_avatar = %job.id, "an avatar is drawn again for this version");
        let folder = self.data.join(BAKE_FOLDER);
        let request = subject::read_request(&self.store, &self.vault, &job).await?;
        let drawn = match &request {
            Ok(request) => {
                let own_folder = folder.join(&job.id);
                tokio::select! {
                    drawn = self.bake_avatar(&job.id, request, &own_folder, Purpose::Renewal) => {
                        drawn?
                    }
                    () = self.job_queued() => {
                        let mut tx = self.store.begin_write(Lock::Rows).await?;
                        table::release(&mut tx, &self.server_id, &job.id).await?;
                        tx.commit().await?;
                        None
                    }
                }
            }
            Err(why) => {
                tracing::error!(custom_avatar = %job.id, reason = %why, "cannot read an avatar");
                Some(Err(""))
            }
        };
        remove_stale_folders(&folder, None).await;
        let Some(drawn) = drawn else { return Ok(true) };
        let poses = drawn.as_ref().ok().map(|baked| baked.to_stored(COMPLETE_PERCENT));
        let mut tx = self.store.begin_write(Lock::Workspace(&job.workspace)).await?;
        let (server, now) = (&self.server_id, clock::now());
        let done = table::finish(&mut tx, server, &job.id, version, poses, now).await?;
        tx.commit().await?;
        match drawn {
            Ok(baked) if done => {
                tracing::info!(custom_avatar = %job.id, "an avatar was drawn again");
                self.swap_pose_set(&job.id, baked.into_pose_set(COMPLETE_PERCENT));
            }
            Ok(_) => {}
            Err(_) => tracing::warn!(
                custom_avatar = %job.id,
                "an avatar could not be drawn again; its old pictures stay in use"
            ),
        }
        Ok(true)
    }

    /// Whether no live server would refuse the pose sets that this version draws.
    async fn can_all_servers_read_renewals(&self) -> Result<bool, Error> {
        if !self.store.is_shared() {
            return Ok(true);
        }
        let servers = self.store.servers().await?;
        Ok(servers.iter().filter(|server| server.lease_until > 0).all(|server| {
            let report: ServerReport = serde_json::from_str(&server.report).unwrap_or_default();
            report.plan_version >= PLAN_VERSION
        }))
    }

    /// Waits for a job.
    async fn job_queued(&self) {
        loop {
            self.queued.notified().await;
            match self.store.has_claimable_job(&self.server_id).await {
                Ok(false) => {}
                Ok(true) => return,
                // The renewal will fail for the same reason, or go on.
                Err(error) => tracing::warn!(%error, "cannot read the queue of drawing jobs"),
            }
        }
    }
}
