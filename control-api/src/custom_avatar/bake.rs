//! Drawing people: one after the other, each by a child process with the lowest priority (`visavis bake`), so that no call pays for it and a
//! crash is only a job that failed.
//!
//! A job belongs to the server that took it, by that server's lease. What a stop or a death cut short is taken up again, here or elsewhere;
//! what was drawn here is kept in the data folder until the job is over. The finished set lies in the store with the job's record, where
//! every server finds it and where it goes when the record does. Until then a set of what is drawn so far lies there: calls may show it, and
//! those of this server change over to each better one.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use conversation::call_config::PoseSetFile;
use models::face::PoseSet;
use models::face::people::{self, Person};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::watch;

use crate::app::Shared;
use crate::store;
use crate::store::custom_avatar::{self as table, Job};
use crate::{avatar, clock};

/// Folder of the data folder in which people are drawn.
const FOLDER: &str = "bakes";
/// How often it is written how far a drawing is, and looked whether it is still wanted.
const LOOK: Duration = Duration::from_secs(1);
/// Wait after a failure of the store or the disk.
const AGAIN: Duration = Duration::from_secs(10);
/// Pictures a second at which agents show a face unless they say otherwise.
const RATE: u32 = 25;
/// Percent of a person.
const ALL: u8 = 100;
/// What a record says of a drawing that failed for reasons of the server.
const FAILED: &str = "the face could not be drawn; the server's log says why";

/// What went wrong, other than with the drawing itself: it is tried again.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("{0}: {1}")]
    Folder(String, #[source] std::io::Error),
}

/// What a drawing made: what the record tells of it, and the file of the poses.
struct Made {
    output: String,
    poses: Arc<[u8]>,
}

/// Draws what waits, until `stop`.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    loop {
        let work = async {
            loop {
                match next(&shared).await {
                    Ok(true) => {}
                    Ok(false) => return shared.drawings.notified().await,
                    Err(error) => {
                        tracing::error!(%error, "people cannot be drawn");
                        return tokio::time::sleep(AGAIN).await;
                    }
                }
            }
        };
        tokio::select! {
            // What the stop cuts short is taken up after the next start: the child ends when nobody holds it.
            () = work => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Draws the next person; false if nobody waits.
async fn next(shared: &Shared) -> Result<bool, Error> {
    let mut job = None;
    // Most looks find nothing, and need not hold up whoever writes.
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
            tracing::error!(custom_avatar = %id, %why, "a stored person cannot be read");
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
            avatar::renew(shared, &id, PoseSetFile { data: poses, completeness: ALL });
        }
    }
    Ok(true)
}

/// Removes what earlier drawings left, all but that of `kept`. What cannot be removed stays until the next time, and does no harm.
async fn sweep(folder: &Path, kept: Option<&str>) {
    let Ok(mut entries) = tokio::fs::read_dir(folder).await else { return };
    while let Ok(Some(entry)) = entries.next_entry().await {
        if kept.is_none_or(|kept| entry.file_name() != kept) {
            let _ = tokio::fs::remove_dir_all(entry.path()).await;
        }
    }
}

fn person(job: Job) -> Result<Person, serde_json::Error> {
    let mut person: Value = serde_json::from_str(&job.person)?;
    person["name"] = job.name.into();
    person["gender"] = job.gender.into();
    Ok(Person { id: job.id, ..serde_json::from_value(person)? })
}

/// What a child process says of how far it is: `{"progress": 0.25}`, in percent.
fn percent(line: &str) -> Option<i64> {
    let share = serde_json::from_str::<Value>(line).ok()?["progress"].as_f64()?;
    Some((share.clamp(0.0, 1.0) * 100.0) as i64)
}

/// What a child process says when there are poses of a part: `{"first": 0.25}`, in percent.
fn first(line: &str) -> Option<u8> {
    let share = serde_json::from_str::<Value>(line).ok()?["first"].as_f64()?;
    Some(((share.clamp(0.0, 1.0) * 100.0) as u8).min(ALL - 1))
}

/// Draws a person; nothing if the job is not this server's any more.
async fn draw(
    shared: &Shared,
    person: &Person,
    folder: &Path,
) -> Result<Option<Result<Made, &'static str>>, Error> {
    let at = |path: &Path| {
        let path = path.display().to_string();
        move |error| Error::Folder(path, error)
    };
    let file = folder.join(format!("{}.toml", person.id));
    let poses = folder.join("face.poses");
    // A person's description is its workspace's own: the folder is closed to other users of this machine.
    let mut private = tokio::fs::DirBuilder::new();
    private.recursive(true);
    #[cfg(unix)]
    private.mode(0o700);
    private.create(folder).await.map_err(at(folder))?;
    tokio::fs::write(&file, people::to_file(person)).await.map_err(at(&file))?;
    let mut killed = false;
    loop {
        match child(shared, &person.id, &file, &poses, folder).await? {
            Some(Ended::Well) => return Ok(Some(made(&person.id, &poses).await?.ok_or(FAILED))),
            // For want of memory, mostly; there may be more of it now, and what was drawn is kept.
            Some(Ended::Killed) if !killed => killed = true,
            Some(Ended::Killed | Ended::Failed) => return Ok(Some(Err(FAILED))),
            None => return Ok(None),
        }
    }
}

/// What lies in the file `poses` and the picture beside it; nothing if that cannot be shown.
async fn made(id: &str, poses: &Path) -> Result<Option<Made>, Error> {
    let read = async |path: &Path| {
        tokio::fs::read(path).await.map_err(|error| Error::Folder(path.display().to_string(), error))
    };
    let picture = read(&poses.with_extension("webp")).await?;
    let poses: Arc<[u8]> = read(poses).await?.into();
    // Calls must not be the first to find out.
    let set = match PoseSet::parse(&Bytes::from_owner(Arc::clone(&poses))) {
        Ok(set) => set,
        Err(error) => {
            tracing::error!(custom_avatar = %id, %error, "a drawn person has no poses");
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

/// Lets calls show what is drawn so far: `share` percent of the person. False if the job is not this server's any more.
async fn show(shared: &Shared, id: &str, share: u8, poses: &Path) -> Result<bool, Error> {
    // Without it the person can be shown a little later.
    let Some(Made { output, poses }) = made(id, poses).await? else { return Ok(true) };
    let text = STANDARD.encode(&poses);
    let better = (i64::from(share), output.as_str(), text.as_str());
    let mut tx = shared.store.write().await?;
    let ours = table::improve(&mut tx, &shared.server, id, better, clock::now()).await?;
    tx.commit().await?;
    if ours {
        avatar::renew(shared, id, PoseSetFile { data: poses, completeness: share });
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

/// Runs the child process to its end. Nothing if the job is not this server's any more.
async fn child(
    shared: &Shared,
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
                // The child ends when this end is closed, by whatever.
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
        });
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            tracing::error!(custom_avatar = %id, %error, "the program that draws people cannot be started");
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
    tracing::error!(custom_avatar = %id, status = %ended, %complaint, "a person could not be drawn");
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
