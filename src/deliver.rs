//! `visavis deliver-recording` and `visavis convert-recording`: the files of recordings, written
//! after calls by child processes of the server.
//!
//! Exit status of `deliver-recording`: 0 = written, 2 = the capture cannot be read, 1 = any other
//! failure, after which another attempt may succeed.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use recording::capture::ReadError;
use recording::{Channels, delivery};
use rlimit::Resource;

use crate::{CommandError, child_process};

/// Limits of both processes. A recording of four hours takes 150 s of CPU time, and its conversion
/// to MP4 one to three hours.
const MAX_CPU_SECONDS: u64 = 6 * 3600;
const MAX_MEMORY: u64 = 4 << 30;

/// The channels of a recording's sound.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum RecordingChannels {
    /// Both voices in one channel.
    #[default]
    Mixed,
    /// The user left, the agent right.
    Split,
}

/// Writes a recording, and prints its duration, its size and the CPU time of this process as JSON.
pub(crate) fn run(
    capture: &Path,
    out: &Path,
    channels: RecordingChannels,
) -> Result<ExitCode, CommandError> {
    prepare_process()?;
    child_process::exit_when_stdin_closes()?;
    let file = File::open(capture).context("the capture cannot be opened")?;
    let mut output = BufWriter::new(File::create(out).context("the recording cannot be created")?);
    let channels = match channels {
        RecordingChannels::Mixed => Channels::Mixed,
        RecordingChannels::Split => Channels::Split,
    };
    let summary = match delivery::write(BufReader::new(file), &mut output, channels, |_| {}) {
        Ok(summary) => summary,
        // Another attempt reads the same.
        Err(error @ (delivery::Error::Read(ReadError::NoHeader) | delivery::Error::Empty)) => {
            return Err(CommandError::Usage(error.to_string()));
        }
        Err(error) => return Err(error.into()),
    };
    let written = output.flush().and_then(|()| output.get_ref().sync_all());
    written.context("the recording cannot be written")?;
    let duration_ms = u64::try_from(summary.duration.as_millis()).unwrap_or(u64::MAX);
    let summary = serde_json::json!({
        "duration_ms": duration_ms,
        "bytes": summary.bytes,
        "cpu_us": cpu_time_us(),
    });
    println!("{summary}");
    Ok(ExitCode::SUCCESS)
}

/// CPU time of this process since its start, in user and kernel mode, in µs.
fn cpu_time_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000).unwrap_or(0)
}

/// Becomes ffmpeg, which converts a recording.
pub(crate) fn convert(
    recording: &Path,
    out: &Path,
    ffmpeg: &Path,
) -> Result<ExitCode, CommandError> {
    prepare_process()?;
    // The paths are absolute, so that none is taken for an option or a protocol.
    let absolute = |path| std::path::absolute(path).context("the path is not valid");
    let failure = Command::new(ffmpeg)
        .args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y", "-threads", "1"])
        .args(["-protocol_whitelist", "file", "-f", "matroska", "-i"])
        .arg(absolute(recording)?)
        // Every player plays 4:2:0 with sides that are even.
        .args(["-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p"])
        .args(["-threads", "1", "-c:a", "aac", "-b:a", "128k", "-movflags", "+faststart"])
        .args(["-f", "mp4"])
        .arg(absolute(out)?)
        .exec();
    Err(anyhow::Error::from(failure).context(ffmpeg.display().to_string()).into())
}

fn prepare_process() -> Result<(), CommandError> {
    child_process::lower_priority(child_process::BAKE_NICENESS)?;
    for (resource, limit) in [(Resource::CPU, MAX_CPU_SECONDS), (Resource::AS, MAX_MEMORY)] {
        let (_, hard) = resource.get()?;
        resource.set(limit.min(hard), limit.min(hard))?;
    }
    Ok(())
}

/// The `ffmpeg` of `PATH`.
pub(crate) fn find_ffmpeg() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let files = std::env::split_paths(&path).map(|folder| folder.join("ffmpeg"));
    // A relative folder would depend on the working directory.
    files.filter(|file| file.is_absolute()).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use rustix::fs::{Access, access};
    file.is_file() && access(file, Access::EXEC_OK).map_err(io::Error::from).is_ok()
}
