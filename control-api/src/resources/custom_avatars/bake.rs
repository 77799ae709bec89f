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

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use engine_api::PoseSetFile;
use models::face::PoseSet;
use models::face::avatar_spec::{self, AvatarSpec};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::watch;

use crate::clock;
use crate::resources::avatars;
use crate::state::AppState;
use crate::store;
use crate::store::custom_avatar::{self as table, Job};

/// Folder in the data folder in which avatars are drawn.
const FOLDER: &str = "bakes";
/// How often the progress is stored and the job's ownership is checked.
const LOOK: Duration = Duration::from_secs(1);
/// Delay after a failure of the store or the disk.
const AGAIN: Duration = Duration::from_secs(10);
/// Default frame rate of agents, pictures per second.
const RATE: u32 = 25;
/// Completeness of a finished pose set, in percent.
const ALL: u8 = 100;
/// Error text of a job that failed for reasons of the server.
const FAILED: &str = "the face could not be drawn; the server's log says why";

/// Errors other than a failed drawing; the job is tried again.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("{0}: {1}")]
    Folder(String, #[source] std::io::Error),
}

/// The result of a drawing: the output for the record, and the pose set file.
struct Made {
    output: String,
    poses: Arc<[u8]>,
}

/// Processes the queued drawing jobs, until `stop`.
pub(crate) async fn run(shared: Arc<AppState>, mut stop: watch::Receiver<bool>) {
    loop {
        let work = async {
            loop {
                match next(&shared).await {
                    Ok(true) => {}
                    Ok(false) => return shared.drawings.notified().await,
                    Err(error) => {
                        tracing::error!(%error, "cannot process the queue of avatar drawing jobs");
                        return tokio::time::sleep(AGAIN).await;
                    }
                }
            }
        };
        tokio::select! {
            // A job that the stop interrupts is claimed again after the next start; the child is
            // killed when its handle is dropped.
            () = work => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Processes the next drawing job; false if none is queued.
async fn next(shared: &AppState) -> Result<bool, Error> {
    let mut job = None;
    // Most checks find no job and should not block writers.
    if shared.store.drawing_waits(&shared.server, clock::now()).await? {
        let mut tx = shared.store.write().await?;
        job = table::take(&mut tx, &shared.server, clock::now()).await?;
        tx.commit().await?;
    }
    let folder = shared.config.data.join(FOLDER);
    sweep(&folder, job.as_ref().map(|job| job.id.as_str())).await;
    let Some(job) = job else { return Ok(false) };
    let id = job.id.clone();
    let made = match person(job) {
        Ok(person) => draw(shared, &person, &folder.join(&id)).await?,
        Err(why) => {
            tracing::error!(custom_avatar = %id, reason = %why, "cannot read a stored avatar");
            Some(Err(FAILED))
        }
    };
    if let Some(made) = made {
        let poses = made.as_ref().map(|made| STANDARD.encode(&made.poses)).unwrap_or_default();
        let told = made.as_ref().map(|made| (made.output.as_str(), poses.as_str())).map_err(|why| *why);
        let mut tx = shared.store.write().await?;
        table::finish(&mut tx, &shared.server, &id, told, clock::now()).await?;
        tx.commit().await?;
        if let Ok(Made { poses, .. }) = made {
            avatars::renew(shared, &id, PoseSetFile { data: poses, completeness: ALL });
        }
    }
    Ok(true)
}

/// Removes the files of earlier drawings, except those of `kept`. A folder that cannot be removed
/// stays until the next time, which does no harm.
async fn sweep(folder: &Path, kept: Option<&str>) {
    let Ok(mut entries) = tokio::fs::read_dir(folder).await else { return };
    while let Ok(Some(entry)) = entries.next_entry().await {
        if kept.is_none_or(|kept| entry.file_name() != kept) {
            let _ = tokio::fs::remove_dir_all(entry.path()).await;
        }
    }
}

fn person(job: Job) -> Result<AvatarSpec, serde_json::Error> {
    let mut person: Value = serde_json::from_str(&job.person)?;
    person["name"] = job.name.into();
    person["gender"] = job.gender.into();
    Ok(AvatarSpec { id: job.id, ..serde_json::from_value(person)? })
}

/// A child's progress message, `{"progress": 0.25}`, in percent.
fn percent(line: &str) -> Option<i64> {
    let share = serde_json::from_str::<Value>(line).ok()?["progress"].as_f64()?;
    Some((share.clamp(0.0, 1.0) * 100.0) as i64)
}

/// A child's message that a partial pose set is available, `{"first": 0.25}`, in percent.
fn first(line: &str) -> Option<u8> {
    let share = serde_json::from_str::<Value>(line).ok()?["first"].as_f64()?;
    Some(((share.clamp(0.0, 1.0) * 100.0) as u8).min(ALL - 1))
}

/// Draws an avatar; `None` if this server no longer owns the job.
async fn draw(
    shared: &AppState,
    person: &AvatarSpec,
    folder: &Path,
) -> Result<Option<Result<Made, &'static str>>, Error> {
    let at = |path: &Path| {
        let path = path.display().to_string();
        move |error| Error::Folder(path, error)
    };
    let file = folder.join(format!("{}.toml", person.id));
    let poses = folder.join("face.poses");
    // A character description belongs to its workspace only: other users of this machine have no
    // access to the folder.
    let mut private = tokio::fs::DirBuilder::new();
    private.recursive(true);
    #[cfg(unix)]
    private.mode(0o700);
    private.create(folder).await.map_err(at(folder))?;
    tokio::fs::write(&file, avatar_spec::to_toml(person)).await.map_err(at(&file))?;
    let mut killed = false;
    loop {
        match child(shared, &person.id, &file, &poses, folder).await? {
            Some(Ended::Well) => return Ok(Some(made(&person.id, &poses).await?.ok_or(FAILED))),
            // Usually caused by lack of memory. More may be available now, and the drawn parts are
            // kept.
            Some(Ended::Killed) if !killed => killed = true,
            Some(Ended::Killed | Ended::Failed) => return Ok(Some(Err(FAILED))),
            None => return Ok(None),
        }
    }
}

/// The pose set in the file `poses` and the picture beside it; `None` if it cannot be shown.
async fn made(id: &str, poses: &Path) -> Result<Option<Made>, Error> {
    let read = async |path: &Path| {
        tokio::fs::read(path).await.map_err(|error| Error::Folder(path.display().to_string(), error))
    };
    let picture = read(&poses.with_extension("webp")).await?;
    let poses: Arc<[u8]> = read(poses).await?.into();
    // An invalid pose set must be detected here, not in a call.
    let set = match PoseSet::parse(&Bytes::from_owner(Arc::clone(&poses))) {
        Ok(set) => set,
        Err(error) => {
            tracing::error!(custom_avatar = %id, %error, "the pose set of a drawn avatar is invalid");
            return Ok(None);
        }
    };
    let output = json!({
        "preview_url": format!("data:image/webp;base64,{}", STANDARD.encode(picture)),
        "width": set.manifest().width,
        "height": set.manifest().height,
        "fps": RATE,
    });
    Ok(Some(Made { output: output.to_string(), poses }))
}

/// Lets calls show the partial pose set, which is complete to `share` percent. False if this server
/// no longer owns the job.
async fn show(shared: &AppState, id: &str, share: u8, poses: &Path) -> Result<bool, Error> {
    // If it is unusable, the avatar becomes available later.
    let Some(Made { output, poses }) = made(id, poses).await? else { return Ok(true) };
    let text = STANDARD.encode(&poses);
    let better = (i64::from(share), output.as_str(), text.as_str());
    let mut tx = shared.store.write().await?;
    let ours = table::improve(&mut tx, &shared.server, id, better, clock::now()).await?;
    tx.commit().await?;
    if ours {
        avatars::renew(shared, id, PoseSetFile { data: poses, completeness: share });
    }
    Ok(ours)
}

/// How a child process ended.
enum Ended {
    Well,
    Failed,
    /// By a signal.
    Killed,
}

/// Runs the child process to its end. `None` if this server no longer owns the job.
async fn child(
    shared: &AppState,
    id: &str,
    file: &Path,
    poses: &Path,
    folder: &Path,
) -> Result<Option<Ended>, Error> {
    let part = folder.join("first.poses");
    let arguments: [OsString; 10] = [
        "bake".into(),
        file.into(),
        "--out".into(),
        poses.into(),
        "--keep".into(),
        folder.join("parts").into(),
        "--first".into(),
        part.clone().into(),
        "--json".into(),
        "--background".into(),
    ];
    let started = shared
        .baker
        .split_first()
        .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound))
        .and_then(|(program, first)| {
            Command::new(program)
                .args(first)
                .args(arguments)
                .env_clear()
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
            return Ok(Some(Ended::Failed));
        }
    };
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        return Ok(Some(Ended::Failed));
    };
    let (mut told, mut complaints) = (BufReader::new(out).lines(), BufReader::new(err).lines());
    let (mut done, mut complaint) = (0, String::new());
    let (mut talking, mut complaining) = (true, true);
    let mut looks = tokio::time::interval(LOOK);
    while talking || complaining {
        tokio::select! {
            line = told.next_line(), if talking => match line {
                Ok(Some(line)) => {
                    done = percent(&line).unwrap_or(done);
                    if let Some(share) = first(&line)
                        && !show(shared, id, share, &part).await?
                    {
                        return Ok(None);
                    }
                }
                _ => talking = false,
            },
            line = complaints.next_line(), if complaining => match line {
                Ok(Some(line)) => complaint = line,
                _ => complaining = false,
            },
            _ = looks.tick() => {
                let mut tx = shared.store.write().await?;
                let ours = table::advance(&mut tx, &shared.server, id, done, clock::now()).await?;
                tx.commit().await?;
                if !ours {
                    return Ok(None);
                }
            }
        }
    }
    let ended = child.wait().await.map_err(|error| Error::Folder(poses.display().to_string(), error))?;
    if ended.success() {
        return Ok(Some(Ended::Well));
    }
    tracing::error!(custom_avatar = %id, status = %ended, stderr = %complaint, "the avatar renderer failed");
    Ok(Some(if ended.code().is_none() { Ended::Killed } else { Ended::Failed }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_child_is_is_read_from_its_lines() {
        assert_eq!(percent(r#"{"progress":0.25}"#), Some(25));
        assert_eq!(percent(r#"{"progress": 7}"#), Some(100));
        assert_eq!(percent("amina: 20 %, 3 s"), None);
        assert_eq!((first(r#"{"first":0.25}"#), percent(r#"{"first":0.25}"#)), (Some(25), None));
        assert_eq!((first(r#"{"first":7}"#), first(r#"{"progress":1}"#)), (Some(99), None), "all comes last");
    }
}
