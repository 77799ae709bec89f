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

use std::ffi::{OsStr, OsString};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use engine_api::PoseSetFile;
use models::face::PoseSet;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::{Notify, watch};

use super::subject;
use crate::clock;
use crate::state::EngineCell;
use crate::state::live_pose_sets::LivePoseSets;
use crate::state::supervise::BackgroundTask;
use crate::store::custom_avatar::{self as table, Job, Output};
use crate::store::fairness::AVATAR_JOBS;
use crate::store::vault::Vault;
use crate::store::{self, Lock, Store, background_set};

/// Folder in the data folder in which avatars are drawn.
const BAKE_FOLDER: &str = "bakes";
/// How often the progress is stored and the job's ownership is checked.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Delay after a failure of the store or the disk.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// Default frame rate of agents, pictures per second.
const DEFAULT_FRAME_RATE: u32 = 25;
/// Completeness of a finished pose set, in percent.
const COMPLETE_PERCENT: u8 = 100;
/// Error text of a job that failed for reasons of the server.
const BAKE_FAILED: &str = "the avatar could not be drawn; see the server's log";

/// Errors other than a failed drawing; the job is tried again.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("{0}: {1}")]
    Io(String, #[source] std::io::Error),
}

/// The result of a drawing: the output for the record, and the pose set file.
struct BakedAvatar {
    output: String,
    poses: Arc<[u8]>,
}

/// Where a child process writes.
struct BakeFiles<'a> {
    /// The pose set.
    poses: &'a Path,
    /// Folder of the drawn parts.
    parts: &'a Path,
    /// The partial pose set, if there is to be one.
    first_poses: Option<&'a Path>,
}

impl BakeFiles<'_> {
    fn arguments(&self) -> Vec<&OsStr> {
        let mut arguments: Vec<&OsStr> = vec![
            "bake".as_ref(),
            "-".as_ref(),
            "--out".as_ref(),
            self.poses.as_ref(),
            "--keep".as_ref(),
            self.parts.as_ref(),
            "--json".as_ref(),
            "--background".as_ref(),
        ];
        if let Some(first) = self.first_poses {
            arguments.extend::<[&OsStr; 2]>(["--first".as_ref(), first.as_ref()]);
        }
        arguments
    }
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
                    match self.bake_next().await {
                        Ok(true) => {}
                        Ok(false) => return self.queued.notified().await,
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
        // Calls switch to better poses of an avatar, but keep the background that they show.
        let is_background = job.base_avatar.is_some();
        let baked = match subject::read_request(&self.store, &self.vault, &job).await? {
            Ok(request) => self.bake_avatar(id, &request, &folder.join(id), !is_background).await?,
            Err(why) => {
                tracing::error!(custom_avatar = %id, reason = %why, "cannot read a stored avatar");
                Some(Err(BAKE_FAILED))
            }
        };
        if let Some(baked) = baked {
            // Clients may rely on it: no file with the person is left once the job is over.
            remove_stale_folders(&folder, None).await;
            let poses =
                baked.as_ref().map(|baked| STANDARD.encode(&baked.poses)).unwrap_or_default();
            let result = baked
                .as_ref()
                .map(|baked| (baked.output.as_str(), poses.as_str()))
                .map_err(|why| *why);
            let mut tx = self.store.begin_write(Lock::Workspace(workspace)).await?;
            table::finish_job(&mut tx, &self.server_id, id, result, clock::now()).await?;
            if is_background {
                background_set::release_previous(&mut tx, workspace, id).await?;
            }
            tx.commit().await?;
            if let (Ok(BakedAvatar { poses, .. }), false) = (baked, is_background) {
                self.swap_pose_set(id, PoseSetFile { data: poses, completeness: COMPLETE_PERCENT });
            }
        }
        Ok(true)
    }

    /// Draws an avatar. Its partial pose sets are published if `is_progressive`. `None` if this
    /// server no longer owns the job.
    async fn bake_avatar(
        &self,
        id: &str,
        request: &str,
        folder: &Path,
        is_progressive: bool,
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
        let first_poses = is_progressive.then(|| folder.join("first.poses"));
        let files = BakeFiles {
            poses: &poses,
            parts: &folder.join("parts"),
            first_poses: first_poses.as_deref(),
        };
        let mut killed = false;
        loop {
            match self.run_child(id, request, &files).await? {
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
        let Some(BakedAvatar { output, poses }) = read_baked(id, poses).await? else {
            return Ok(true);
        };
        let text = STANDARD.encode(&poses);
        let partial = (i64::from(percent), output.as_str(), text.as_str());
        let mut tx = self.store.begin_write(Lock::Rows).await?;
        let still_ours =
            table::save_partial_poses(&mut tx, &self.server_id, id, partial, clock::now()).await?;
        tx.commit().await?;
        if still_ours {
            self.swap_pose_set(id, PoseSetFile { data: poses, completeness: percent });
        }
        Ok(still_ours)
    }

    /// A better pose set is available: the running calls of this server switch to it.
    fn swap_pose_set(&self, id: &str, pose_set: PoseSetFile) {
        self.live_pose_sets.insert(id.to_owned(), &pose_set);
        if let Some(engine) = self.engine.get() {
            engine.swap_pose_set(id, pose_set);
        }
    }

    /// Runs the child process to its end, with the request on its standard input, so that no photo
    /// is left on the disk. `None` if this server no longer owns the job.
    async fn run_child(
        &self,
        id: &str,
        request: &str,
        files: &BakeFiles<'_>,
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
                    let mut tx = self.store.begin_write(Lock::Rows).await?;
                    let (server, now) = (&self.server_id, clock::now());
                    let still_ours =
                        table::update_progress(&mut tx, server, id, progress, now).await?;
                    tx.commit().await?;
                    if !still_ours {
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

/// Removes the files of earlier drawings, except those of `except`. A folder that cannot be removed
/// stays until the next time, which does no harm.
async fn remove_stale_folders(folder: &Path, except: Option<&str>) {
    let Ok(mut entries) = tokio::fs::read_dir(folder).await else { return };
    while let Ok(Some(entry)) = entries.next_entry().await {
        if except.is_none_or(|except| entry.file_name() != except) {
            let _ = tokio::fs::remove_dir_all(entry.path()).await;
        }
    }
}

/// A child's progress message, `{"progress": 0.25}`, in percent.
fn parse_progress(line: &str) -> Option<i64> {
    let fraction = serde_json::from_str::<Value>(line).ok()?["progress"].as_f64()?;
    Some((fraction.clamp(0.0, 1.0) * 100.0) as i64)
}

/// A child's message that a partial pose set is available, `{"first": 0.25}`, in percent.
fn parse_first_poses(line: &str) -> Option<u8> {
    let fraction = serde_json::from_str::<Value>(line).ok()?["first"].as_f64()?;
    Some(((fraction.clamp(0.0, 1.0) * 100.0) as u8).min(COMPLETE_PERCENT - 1))
}

/// The pose set in the file `poses` and the picture beside it; `None` if it cannot be shown.
async fn read_baked(id: &str, poses: &Path) -> Result<Option<BakedAvatar>, Error> {
    let read = async |path: &Path| {
        tokio::fs::read(path).await.map_err(|error| Error::Io(path.display().to_string(), error))
    };
    let image = read(&poses.with_extension("webp")).await?;
    let poses: Arc<[u8]> = read(poses).await?.into();
    // An invalid pose set must be detected here, not in a call.
    let set = match PoseSet::parse(&Bytes::from_owner(Arc::clone(&poses))) {
        Ok(set) => set,
        Err(error) => {
            tracing::error!(
                custom_avatar = %id,
                %error,
                "the pose set of a drawn avatar is invalid"
            );
            return Ok(None);
        }
    };
    let output = Output {
        preview_url: format!("data:image/webp;base64,{}", STANDARD.encode(image)),
        width: set.manifest().width,
        height: set.manifest().height,
        fps: DEFAULT_FRAME_RATE,
    };
    Ok(Some(BakedAvatar { output: json!(output).to_string(), poses }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_of_a_bake_is_read_from_its_output() {
        assert_eq!(parse_progress(r#"{"progress":0.25}"#), Some(25));
        assert_eq!(parse_progress(r#"{"progress": 7}"#), Some(100));
        assert_eq!(parse_progress("amina: 20 %, 3 s"), None);
        assert_eq!(
            (parse_first_poses(r#"{"first":0.25}"#), parse_progress(r#"{"first":0.25}"#)),
            (Some(25), None)
        );
        assert_eq!(
            (parse_first_poses(r#"{"first":7}"#), parse_first_poses(r#"{"progress":1}"#)),
            (Some(99), None),
            "all comes last"
        );
    }
}
