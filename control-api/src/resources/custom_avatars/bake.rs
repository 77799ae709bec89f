//! Draws avatars one after the other. Each one is drawn by a child process with the lowest priority
//! (`visavis bake`), so that calls are not affected and a crash is only a failed job.
//!
//! A job belongs to the server that claimed it, by that server's lease. A job that a stop or a
//! crash interrupts is claimed again, here or on another server; the parts drawn here stay in the
//! data folder until the job is over. The finished pose set is in the store with the job's record,
//! where every server finds it, and is deleted with the record. Until then the store holds a
//! partial pose set: calls may show it, and those of this server switch to each better one.
//!
//! ```text
//!                           exit code 0
//!   claim_job --> child runs -------------------------------------> COMPLETED
//!                  ^    |  |  other exit code, or killed again
//!                  |    |  +--------------------------------------> FAILED
//!                  +----+ killed by a signal: restarted once
//! ```
//!
//! When no job waits, avatars that an older version drew are drawn again (`renewal`).

use std::ffi::OsString;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use engine_api::PoseSetFile;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::{Notify, watch};

use super::bake_files::{
    BakeFiles, BakedAvatar, COMPLETE_PERCENT, parse_first_poses, parse_progress, read_baked,
    remove_stale_folders,
};
use super::subject;
use crate::clock;
use crate::state::EngineCell;
use crate::state::live_pose_sets::LivePoseSets;
use crate::state::supervise::BackgroundTask;
use crate::store::custom_avatar::{self as table, Job};
use crate::store::fairness::AVATAR_JOBS;
use crate::store::vault::Vault;
use crate::store::{self, Lock, Store, variant};

/// Folder in the data folder in which avatars are drawn.
pub(super) const BAKE_FOLDER: &str = "bakes";
/// How often the progress is stored and the job's ownership is checked.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Delay after a failure of the store or the disk.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// How often renewals are looked for while other servers use the store: what prevents one may end.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(60);
/// Error text of a job that failed for reasons of the server.
const BAKE_FAILED: &str = "the avatar could not be drawn; see the server's log";

/// Errors other than a failed drawing; the job is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("{0}: {1}")]
    Io(String, #[source] std::io::Error),
}

/// Why an avatar is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A job of the queue. Its partial pose sets are published if it is an avatar itself.
    Job { is_progressive: bool },
    /// A renewal.
    Renewal,
}

/// How a child process ended.
enum BakeExit {
    Succeeded,
    Failed,
    /// By a signal.
    Killed,
}

/// The task that processes the queued drawing jobs.
pub(crate) struct BakeTask {
    pub(crate) store: Store,
    /// The server that claims the jobs.
    pub(crate) server_id: Arc<str>,
    /// The data folder, in which avatars are drawn.
    pub(crate) data: PathBuf,
    /// Program and arguments that bake avatars.
    pub(crate) command: Vec<OsString>,
    /// Decrypts the crops of photos.
    pub(crate) vault: Arc<Vault>,
    /// Notified when a job is queued.
    pub(crate) queued: Arc<Notify>,
    /// Pose sets for further calls.
    pub(crate) live_pose_sets: Arc<LivePoseSets>,
    /// Shows better pose sets in running calls.
    pub(crate) engine: Arc<EngineCell>,
}

impl BackgroundTask for BakeTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let bake_queued = async {
                loop {
                    let worked = match self.bake_next().await {
                        Ok(false) => self.renew_next().await,
                        worked => worked,
                    };
                    match worked {
                        Ok(true) => {}
                        Ok(false) => return self.wait().await,
                        Err(error) => {
                            tracing::error!(
                                %error,
                                "cannot process the queue of avatar drawing jobs"
                            );
                            return tokio::time::sleep(RETRY_DELAY).await;
                        }
                    }
                }
            };
            tokio::select! {
                // A job that the stop interrupts is claimed again after the next start; the child
                // is killed when its handle is dropped.
                () = bake_queued => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

impl BakeTask {
    /// Waits until there may be something to draw.
    async fn wait(&self) {
        if self.store.is_shared() {
            // A time-out is no error.
            let _ = tokio::time::timeout(RENEWAL_INTERVAL, self.queued.notified()).await;
        } else {
            self.queued.notified().await;
        }
    }

    /// The variable that limits the threads of the child: while there are calls, it leaves a core to
    /// them. The caches and execution units of a core serve both even if the child has the lowest
    /// priority.
    fn thread_limit(&self) -> Option<(&'static str, String)> {
        let calls = self.engine.get().map_or(0, |engine| engine.active_calls());
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        (calls > 0 && cores > 1).then(|| ("RAYON_NUM_THREADS", (cores - 1).to_string()))
    }

    /// Processes the next drawing job; false if none is queued.
    async fn bake_next(&self) -> Result<bool, Error> {
        let mut job = None;
        // Most checks find no job and should not block writers.
        if self.store.has_claimable_job(&self.server_id).await? {
            let mut tx = self.store.begin_write(Lock::Jobs(AVATAR_JOBS)).await?;
            job = table::claim_job(&mut tx, &self.server_id, clock::now()).await?;
            tx.commit().await?;
        }
        let folder = self.data.join(BAKE_FOLDER);
        remove_stale_folders(&folder, job.as_ref().map(|job| job.id.as_str())).await;
        let Some(job) = job else { return Ok(false) };
        let Job { id, workspace, .. } = &job;
        // Calls switch to better poses of an avatar, but keep the variant that they show.
        let is_variant = job.base_avatar.is_some();
        let purpose = Purpose::Job { is_progressive: !is_variant };
        let baked = match subject::read_request(&self.store, &self.vault, &job).await? {
            Ok(request) => self.bake_avatar(id, &request, &folder.join(id), purpose).await?,
            Err(why) => {
                tracing::error!(custom_avatar = %id, reason = %why, "cannot read a stored avatar");
                Some(Err(BAKE_FAILED))
            }
        };
        if let Some(baked) = baked {
            // Clients may rely on it: no file with the person is left once the job is over.
            remove_stale_folders(&folder, None).await;
            let result =
                baked.as_ref().map(|baked| baked.to_stored(COMPLETE_PERCENT)).map_err(|why| *why);
            let mut tx = self.store.begin_write(Lock::Workspace(workspace)).await?;
            table::finish_job(&mut tx, &self.server_id, id, result, clock::now()).await?;
            if is_variant {
                variant::release_previous(&mut tx, workspace, id).await?;
            }
            tx.commit().await?;
            if let (Ok(baked), false) = (baked, is_variant) {
                self.swap_pose_set(id, baked.into_pose_set(COMPLETE_PERCENT));
            }
        }
        Ok(true)
    }

    /// Draws an avatar. `None` if this server no longer owns the job or the renewal.
    pub(super) async fn bake_avatar(
        &self,
        id: &str,
        request: &str,
        folder: &Path,
        purpose: Purpose,
    ) -> Result<Option<Result<BakedAvatar, &'static str>>, Error> {
        let at = |path: &Path| {
            let path = path.display().to_string();
            move |error| Error::Io(path, error)
        };
        let poses = folder.join("face.poses");
        // A person belongs to its workspace only: other users of this machine have no access to the
        // folder.
        let mut private_dir = tokio::fs::DirBuilder::new();
        private_dir.recursive(true);
        #[cfg(unix)]
        private_dir.mode(0o700);
        private_dir.create(folder).await.map_err(at(folder))?;
        let is_progressive = purpose == Purpose::Job { is_progressive: true };
        let first_poses = is_progressive.then(|| folder.join("first.poses"));
        let files = BakeFiles {
            poses: &poses,
            parts: &folder.join("parts"),
            first_poses: first_poses.as_deref(),
        };
        let mut killed = false;
        loop {
            match self.run_child(id, request, &files, purpose).await? {
                Some(BakeExit::Succeeded) => {
                    return Ok(Some(read_baked(id, &poses).await?.ok_or(BAKE_FAILED)));
                }
                // Usually caused by lack of memory. More may be available now, and the drawn parts
                // are kept.
                Some(BakeExit::Killed) if !killed => killed = true,
                Some(BakeExit::Killed | BakeExit::Failed) => return Ok(Some(Err(BAKE_FAILED))),
                None => return Ok(None),
            }
        }
    }

    /// Lets calls show the partial pose set, which is complete to `percent`. False if this server
    /// no longer owns the job.
    async fn publish_partial(&self, id: &str, percent: u8, poses: &Path) -> Result<bool, Error> {
        // If it is unusable, the avatar becomes available later.
        let Some(baked) = read_baked(id, poses).await? else {
            return Ok(true);
        };
        let mut tx = self.store.begin_write(Lock::Rows).await?;
        let (server, partial) = (&self.server_id, baked.to_stored(percent));
        let still_ours =
            table::save_partial_poses(&mut tx, server, id, partial, clock::now()).await?;
        tx.commit().await?;
        if still_ours {
            self.swap_pose_set(id, baked.into_pose_set(percent));
        }
        Ok(still_ours)
    }

    /// Stores the progress of a job. False if this server no longer owns the job or the renewal.
    async fn report_progress(
        &self,
        id: &str,
        purpose: Purpose,
        percent: i64,
    ) -> Result<bool, Error> {
        if purpose == Purpose::Renewal {
            return Ok(self.store.is_renewing(&self.server_id, id).await?);
        }
        let mut tx = self.store.begin_write(Lock::Rows).await?;
        let (server, now) = (&self.server_id, clock::now());
        let still_ours = table::update_progress(&mut tx, server, id, percent, now).await?;
        tx.commit().await?;
        Ok(still_ours)
    }

    /// A better pose set is available: the running calls of this server switch to it.
    pub(super) fn swap_pose_set(&self, id: &str, pose_set: PoseSetFile) {
        self.live_pose_sets.insert(id.to_owned(), &pose_set);
        if let Some(engine) = self.engine.get() {
            engine.swap_pose_set(id, pose_set);
        }
    }

    /// Runs the child process to its end, with the request on its standard input, so that no photo
    /// is left on the disk. `None` if this server no longer owns the job or the renewal.
    async fn run_child(
        &self,
        id: &str,
        request: &str,
        files: &BakeFiles<'_>,
        purpose: Purpose,
    ) -> Result<Option<BakeExit>, Error> {
        let started = self
            .command
            .split_first()
            .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound))
            .and_then(|(program, first)| {
                Command::new(program)
                    .args(first)
                    .args(files.arguments())
                    .env_clear()
                    .envs(self.thread_limit())
                    // The child exits when this pipe is closed, for any reason.
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .kill_on_drop(true)
                    .spawn()
            });
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                tracing::error!(custom_avatar = %id, %error, "cannot start the avatar renderer");
                return Ok(Some(BakeExit::Failed));
            }
        };
        let (Some(mut stdin), Some(out), Some(err)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Ok(Some(BakeExit::Failed));
        };
        // A child that ends early is reported by its status. The pipe stays open.
        let _ = stdin.write_all(request.as_bytes()).await;
        let (mut stdout_lines, mut stderr_lines) =
            (BufReader::new(out).lines(), BufReader::new(err).lines());
        let (mut progress, mut last_stderr_line) = (0, String::new());
        let (mut stdout_open, mut stderr_open) = (true, true);
        let mut progress_timer = tokio::time::interval(PROGRESS_INTERVAL);
        while stdout_open || stderr_open {
            tokio::select! {
                line = stdout_lines.next_line(), if stdout_open => match line {
                    Ok(Some(line)) => {
                        progress = parse_progress(&line).unwrap_or(progress);
                        if let Some(first_poses) = files.first_poses
                            && let Some(percent) = parse_first_poses(&line)
                            && !self.publish_partial(id, percent, first_poses).await?
                        {
                            return Ok(None);
                        }
                    }
                    _ => stdout_open = false,
                },
                line = stderr_lines.next_line(), if stderr_open => match line {
                    Ok(Some(line)) => last_stderr_line = line,
                    _ => stderr_open = false,
                },
                _ = progress_timer.tick() => {
                    if !self.report_progress(id, purpose, progress).await? {
                        return Ok(None);
                    }
                }
            }
        }
        let exit_status = child
            .wait()
            .await
            .map_err(|error| Error::Io(files.poses.display().to_string(), error))?;
        if exit_status.success() {
            return Ok(Some(BakeExit::Succeeded));
        }
        tracing::error!(
            custom_avatar = %id,
            status = %exit_status,
            stderr = %last_stderr_line,
            "the avatar renderer failed"
        );
        Ok(Some(if exit_status.code().is_none() { BakeExit::Killed } else { BakeExit::Failed }))
    }
}
