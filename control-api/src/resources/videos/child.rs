//! The child processes that render and convert videos, with the lowest priority.

use std::ffi::OsString;
use std::path::Path;

use models::film::{Line, Summary, Task};

use super::document::VideoFormat;
use crate::resources::recordings::child::{Failure, run};

/// The reason if a child reports no result, which is in the log.
const NO_RESULT: &str = "the process that writes it failed";
const FFMPEG_FAILED: &str = "ffmpeg failed on the server";

/// Renders a video, and reports its progress, from 0 to 1.
pub(super) async fn render(
    command: &[OsString],
    task: &Task,
    mut on_progress: impl FnMut(f32),
) -> Result<Summary, Failure> {
    let mut input = serde_json::to_vec(task)
        .map_err(|error| Failure::Permanent(format!("The video cannot be described: {error}.")))?;
    input.push(b'\n');
    let mut summary = None;
    let on_line = |line: &str| match serde_json::from_str(line) {
        Ok(Line::Progress { progress }) => on_progress(progress.clamp(0.0, 1.0)),
        Ok(Line::Done(result)) => summary = Some(result),
        Err(error) => tracing::warn!(%error, "a process that renders a video writes no JSON"),
    };
    run(command, &["render-video".into()], &input, on_line).await.map_err(
        |failure| match failure {
            Failure::Permanent(reason) => Failure::Permanent(sentence_of(&reason)),
            other => other,
        },
    )?;
    summary.ok_or_else(|| {
        tracing::warn!("a process that renders a video reports no result");
        Failure::Temporary(NO_RESULT.into())
    })
}

/// A reason as a sentence: the child writes it as command lines do, `the audio is damaged`.
fn sentence_of(reason: &str) -> String {
    let reason = reason.trim().trim_end_matches('.');
    let mut letters = reason.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).chain(['.']).collect()
}

/// How a rendered video is converted.
pub(super) struct Conversion<'a> {
    pub(super) ffmpeg: &'a Path,
    /// The captions that are drawn into the picture.
    pub(super) captions: Option<&'a Path>,
    pub(super) format: VideoFormat,
}

/// Writes the file `out` from a rendered video.
pub(super) async fn convert(
    command: &[OsString],
    conversion: &Conversion<'_>,
    film: &Path,
    out: &Path,
) -> Result<(), Failure> {
    let mut arguments: Vec<OsString> = vec![
        "convert-recording".into(),
        film.into(),
        out.into(),
        "--ffmpeg".into(),
        conversion.ffmpeg.into(),
        "--format".into(),
        conversion.format.name().into(),
    ];
    if let Some(captions) = conversion.captions {
        arguments.extend(["--captions".into(), captions.into()]);
    }
    run(command, &arguments, &[], |_| {}).await.map_err(|failure| match failure {
        Failure::Permanent(_) | Failure::Temporary(_) => Failure::Temporary(FFMPEG_FAILED.into()),
        waiting @ Failure::Waiting(_) => waiting,
    })
}
