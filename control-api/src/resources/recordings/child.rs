//! The child processes that write the files of recordings and videos, with the lowest priority.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::store::agent::RecordingChannels;

/// Maximum time of a child.
const TIMEOUT: Duration = Duration::from_secs(6 * 3600);
/// Maximum number of bytes that are read from a child.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;
/// Exit status of a child that cannot read its input: another attempt would fail, too.
const EXIT_UNREADABLE: i32 = 2;
/// Exit status of a child whose output does not fit onto the disk.
const EXIT_NO_SPACE: i32 = 3;

/// The reason of a child that fails for a reason of its own, which is in the log.
const FAILED: &str = "the process that writes it failed";

/// Why a file was not written, as the end of a sentence for users.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Another attempt would fail, too.
    Permanent(String),
    /// Another attempt may succeed.
    Temporary(String),
    /// Another attempt succeeds as soon as the state of the server changes: there is no space, for
    /// example. It does not count as a failed one.
    Waiting(String),
}

/// The failure of an operation on a file.
pub(crate) fn io_failure(error: &io::Error) -> Failure {
    tracing::warn!(%error, "cannot process the files of a recording or a video");
    let reason = engine_api::describe_disk_error(error);
    if engine_api::is_out_of_space(error) {
        Failure::Waiting(reason)
    } else {
        Failure::Temporary(reason)
    }
}

/// What a child reports of the file that it has written.
#[derive(Debug, Deserialize)]
pub(super) struct Summary {
    pub(super) duration_ms: i64,
    pub(super) bytes: i64,
    /// CPU time of the child process, in µs.
    #[serde(default)]
    pub(super) cpu_us: u64,
    /// Whether the file of the call is damaged, so that a part of the recording is missing.
    #[serde(default)]
    pub(super) is_damaged: bool,
}

/// Writes the WebM file `out` from the file of a call.
pub(super) async fn deliver(
    command: &[OsString],
    capture: &Path,
    out: &Path,
    channels: RecordingChannels,
) -> Result<Summary, Failure> {
    let channels = match channels {
        RecordingChannels::Mixed => "mixed",
        RecordingChannels::Split => "split",
    };
    let arguments: [OsString; 5] = [
        "deliver-recording".into(),
        capture.into(),
        out.into(),
        "--channels".into(),
        channels.into(),
    ];
    let mut last = String::new();
    run(command, &arguments, &[], |line| line.clone_into(&mut last)).await?;
    serde_json::from_str(&last).map_err(|error| {
        tracing::warn!(%error, "a process that writes a recording reports nothing");
        Failure::Temporary(FAILED.into())
    })
}

/// Writes the MP4 file `out` from a delivered WebM file.
pub(crate) async fn convert(
    command: &[OsString],
    ffmpeg: &Path,
    recording: &Path,
    out: &Path,
) -> Result<(), Failure> {
    let arguments: [OsString; 5] = [
        "convert-recording".into(),
        recording.into(),
        out.into(),
        "--ffmpeg".into(),
        ffmpeg.into(),
    ];
    run(command, &arguments, &[], |_| {}).await
}

/// Runs a child process to its end, with `input` on its standard input, and gives each line of its
/// output to `on_line`. The child is killed when the future is dropped.
pub(crate) async fn run(
    command: &[OsString],
    arguments: &[OsString],
    input: &[u8],
    mut on_line: impl FnMut(&str),
) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        tracing::warn!(%error, "a process that writes a file cannot be run");
        Failure::Temporary("the process that writes it cannot be run".into())
    };
    let (program, first) =
        command.split_first().ok_or_else(|| Failure::Permanent("no program writes it".into()))?;
    let mut child = Command::new(program)
        .args(first)
        .args(arguments)
        .env_clear()
        // The child exits when this pipe is closed, for any reason.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(Failure::Temporary("the process that writes it cannot be run".into()));
    };
    let mut errors = Vec::new();
    let work = async {
        // A child that writes more fails at the closed pipe.
        let mut lines = BufReader::new(stdout.take(MAX_OUTPUT_BYTES)).lines();
        let mut stderr = stderr.take(MAX_OUTPUT_BYTES);
        let write = async {
            // A child that ends early is reported by its status.
            let _ = stdin.write_all(input).await;
            Ok::<_, io::Error>(())
        };
        let read = async {
            while let Some(line) = lines.next_line().await? {
                on_line(&line);
            }
            Ok::<_, io::Error>(())
        };
        tokio::try_join!(write, read, stderr.read_to_end(&mut errors))?;
        drop((lines, stderr));
        let status = child.wait().await;
        drop(stdin);
        status
    };
    let status = tokio::time::timeout(TIMEOUT, work)
        .await
        .map_err(|_| Failure::Temporary("the process that writes it takes too long".into()))?
        .map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&errors);
    let reason = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    match status.code() {
        // Its sentences are for users.
        Some(EXIT_UNREADABLE) if !reason.is_empty() => Err(Failure::Permanent(reason.into())),
        Some(EXIT_NO_SPACE) => Err(Failure::Waiting("the disk is full".into())),
        _ => {
            tracing::warn!(%status, reason, "a process that writes a file failed");
            Err(Failure::Temporary(FAILED.into()))
        }
    }
}
