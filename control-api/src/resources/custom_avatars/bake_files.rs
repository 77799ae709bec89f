//! The files and messages of the child process that draws an avatar.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use engine_api::PoseSetFile;
use models::face::{PLAN_VERSION, PoseSet};
use serde_json::{Value, json};

use super::bake::Error;
use crate::store::custom_avatar::{Output, Poses};

/// Default frame rate of agents, pictures per second.
const DEFAULT_FRAME_RATE: u32 = 25;
/// Completeness of a finished pose set, in percent.
pub(super) const COMPLETE_PERCENT: u8 = 100;

/// The result of a drawing: the output for the record, and the pose set file.
pub(super) struct BakedAvatar {
    output: String,
    poses: Arc<[u8]>,
    /// `poses` in base64.
    text: String,
}

impl BakedAvatar {
    /// As it is stored, if it is complete to `percent`.
    pub(super) fn to_stored(&self, percent: u8) -> Poses<'_> {
        Poses {
            share: percent.into(),
            output: &self.output,
            poses: &self.text,
            plan_version: PLAN_VERSION.into(),
        }
    }

    /// As calls show it, if it is complete to `percent`.
    pub(super) fn into_pose_set(self, percent: u8) -> PoseSetFile {
        PoseSetFile { data: self.poses, completeness: percent, version: PLAN_VERSION }
    }
}

/// Where a child process writes.
pub(super) struct BakeFiles<'a> {
    /// The pose set.
    pub(super) poses: &'a Path,
    /// Folder of the drawn parts.
    pub(super) parts: &'a Path,
    /// The partial pose set, if there is to be one.
    pub(super) first_poses: Option<&'a Path>,
}

impl BakeFiles<'_> {
    pub(super) fn arguments(&self) -> Vec<&OsStr> {
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

/// Removes the files of earlier drawings, except those of `except`. A folder that cannot be removed
/// stays until the next time, which does no harm.
pub(super) async fn remove_stale_folders(folder: &Path, except: Option<&str>) {
    let Ok(mut entries) = tokio::fs::read_dir(folder).await else { return };
    while let Ok(Some(entry)) = entries.next_entry().await {
        if except.is_none_or(|except| entry.file_name() != except) {
            let _ = tokio::fs::remove_dir_all(entry.path()).await;
        }
    }
}

/// A child's progress message, `{"progress": 0.25}`, in percent.
pub(super) fn parse_progress(line: &str) -> Option<i64> {
    let fraction = serde_json::from_str::<Value>(line).ok()?["progress"].as_f64()?;
    Some((fraction.clamp(0.0, 1.0) * 100.0) as i64)
}

/// A child's message that a partial pose set is available, `{"first": 0.25}`, in percent.
pub(super) fn parse_first_poses(line: &str) -> Option<u8> {
    let fraction = serde_json::from_str::<Value>(line).ok()?["first"].as_f64()?;
    Some(((fraction.clamp(0.0, 1.0) * 100.0) as u8).min(COMPLETE_PERCENT - 1))
}

/// The pose set in the file `poses` and the picture beside it; `None` if it cannot be shown.
pub(super) async fn read_baked(id: &str, poses: &Path) -> Result<Option<BakedAvatar>, Error> {
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
    let text = STANDARD.encode(&poses);
    let output = Output {
        preview_url: format!("data:image/webp;base64,{}", STANDARD.encode(image)),
        width: set.manifest().width,
        height: set.manifest().height,
        fps: DEFAULT_FRAME_RATE,
    };
    Ok(Some(BakedAvatar { output: json!(output).to_string(), poses, text }))
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
