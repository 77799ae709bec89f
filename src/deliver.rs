//! `visavis deliver-recording` and `visavis convert-recording`: the files of recordings, written
//! after calls by child processes of the server.
//!
//! Exit status of `deliver-recording`: 0 = written, 2 = the capture cannot be read, 3 = there is no
//! space for the recording, 1 = any other failure, after which another attempt may succeed.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::Context as _;
use recording::capture::ReadError;
use recording::{Channels, delivery};
use rustix::process::Signal;

use crate::{CommandError, child_process};

/// Limits of both processes. A recording of four hours takes 150 s of CPU time, and its conversion
/// to MP4 one to three hours.
const MAX_CPU_SECONDS: u64 = 6 * 3600;
const MAX_MEMORY: u64 = 4 << 30;
/// Exit status if there is no space for the recording.
pub(crate) const NO_SPACE: u8 = 3;

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
    if is_same_file(&file, out) {
        return Err(CommandError::Usage("the recording would replace the capture".into()));
    }
    let channels = match channels {
        RecordingChannels::Mixed => Channels::Mixed,
        RecordingChannels::Split => Channels::Split,
    };
    // An earlier recording of this name stays until the new one is complete.
    let part = part_of(out);
    let result = write(file, &part, channels).and_then(|summary| {
        fs::rename(&part, out).map(|()| summary).map_err(delivery::Error::Write)
    });
    let summary = match result {
        Ok(summary) => summary,
        Err(error) => {
            // It may not have been created.
            let _ = fs::remove_file(&part);
            return failure(error);
        }
    };
    let duration_ms = u64::try_from(summary.duration.as_millis()).unwrap_or(u64::MAX);
    let summary = serde_json::json!({
        "duration_ms": duration_ms,
        "bytes": summary.bytes,
        "cpu_us": child_process::cpu_time_us(),
        "is_damaged": summary.is_damaged,
    });
    println!("{summary}");
    Ok(ExitCode::SUCCESS)
}

/// Writes and synchronizes the file `part`.
fn write(
    capture: File,
    part: &Path,
    channels: Channels,
) -> Result<delivery::Summary, delivery::Error> {
    let mut output = BufWriter::new(File::create(part).map_err(delivery::Error::Write)?);
    let summary = delivery::write(BufReader::new(capture), &mut output, channels, |_| {})?;
    let written = output.flush().and_then(|()| output.get_ref().sync_all());
    written.map_err(delivery::Error::Write)?;
    Ok(summary)
}

/// The exit status and the message of a failure.
fn failure(error: delivery::Error) -> Result<ExitCode, CommandError> {
    match &error {
        // Another attempt reads the same.
        delivery::Error::Read(ReadError::NoHeader) | delivery::Error::Empty => {
            Err(CommandError::Usage(error.to_string()))
        }
        delivery::Error::Write(cause) if engine_api::is_out_of_space(cause) => {
            eprintln!("{error}");
            Ok(ExitCode::from(NO_SPACE))
        }
        _ => Err(error.into()),
    }
}

/// The file that becomes `out` when it is complete.
pub(crate) fn part_of(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Whether `path` names the open file, also by a link.
fn is_same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(one), Ok(other)) => id(one) == id(other),
        _ => false,
    }
}

/// The format of a conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum VideoFormat {
    /// MP4 with H.264 and AAC.
    #[default]
    Mp4,
    /// WebM with VP8. The sound is copied.
    Webm,
}

/// What ffmpeg makes of a WebM file.
#[derive(clap::Args, Clone)]
pub(crate) struct Conversion {
    /// WebM file
    pub(crate) recording: PathBuf,
    /// File to write
    pub(crate) out: PathBuf,
    /// Path of ffmpeg
    #[arg(long)]
    pub(crate) ffmpeg: PathBuf,
    /// Format of the file
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: VideoFormat,
    /// WebVTT file whose captions become a part of the picture
    #[arg(long, value_name = "FILE")]
    pub(crate) captions: Option<PathBuf>,
}

/// Converts a recording with ffmpeg, which ends with this process, and this process with the server.
pub(crate) fn convert(conversion: &Conversion) -> Result<ExitCode, CommandError> {
    prepare_process()?;
    child_process::exit_when_stdin_closes()?;
    run_ffmpeg(conversion)
}

/// Runs ffmpeg, which ends with this process.
pub(crate) fn run_ffmpeg(conversion: &Conversion) -> Result<ExitCode, CommandError> {
    let Conversion { recording, out, ffmpeg, format, captions } = conversion;
    let program = std::env::current_exe().context("this program cannot be found")?;
    let format = if *format == VideoFormat::Webm { "webm" } else { "mp4" };
    // The process that becomes ffmpeg is a child of this thread, which lives as long as the process.
    let mut command = Command::new(program);
    command
        .args(["convert-recording".as_ref(), &**recording, out, "--ffmpeg".as_ref(), ffmpeg])
        .args(["--format", format, "--parent", &std::process::id().to_string()]);
    if let Some(captions) = captions {
        command.arg("--captions").arg(captions);
    }
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .and_then(Child::wait_with_output)
        .context("the conversion cannot be started")?;
    if output.status.success() {
        return Ok(ExitCode::SUCCESS);
    }
    let message = String::from_utf8_lossy(&output.stderr);
    eprintln!("{}", message.trim_end());
    // ffmpeg has no exit status of its own for it.
    let is_full = ["No space left on device", "Disk quota exceeded"];
    if is_full.iter().any(|text| message.contains(text)) {
        return Ok(ExitCode::from(NO_SPACE));
    }
    Ok(ExitCode::FAILURE)
}

/// Becomes ffmpeg, which is killed when the process `parent` ends for any reason.
pub(crate) fn become_ffmpeg(
    conversion: &Conversion,
    parent: u32,
) -> Result<ExitCode, CommandError> {
    let Conversion { recording, out, ffmpeg, format, captions } = conversion;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("the end of the conversion cannot be arranged")?;
    if std::os::unix::process::parent_id() != parent {
        // It ended before.
        return Ok(ExitCode::FAILURE);
    }
    // The paths are absolute, so that none is taken for an option or a protocol.
    let absolute = |path| std::path::absolute(path).context("the path is not valid");
    let mut command = Command::new(ffmpeg);
    command
        .args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y", "-threads", "1"])
        .args(["-protocol_whitelist", "file", "-f", "matroska", "-i"])
        .arg(absolute(recording)?);
    if let Some(captions) = captions {
        let captions = absolute(captions)?;
        let (folder, filter) = subtitles_filter(&captions)?;
        command.current_dir(folder).args(["-vf", &filter]);
    }
    match format {
        VideoFormat::Mp4 => command
            // Every player plays 4:2:0 with sides that are even.
            .args(["-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p"])
            .args(["-threads", "1", "-c:a", "aac", "-b:a", "128k", "-movflags", "+faststart"]),
        // A negative speed is fixed. A positive one depends on the load of the machine, so that
        // equal inputs would give different files.
        VideoFormat::Webm => command
            .args(["-c:v", "libvpx", "-b:v", "1M", "-deadline", "realtime", "-cpu-used", "-8"])
            .args(["-threads", "1", "-c:a", "copy"]),
    };
    // Neither times nor versions of libraries, so that equal inputs give equal files.
    command.args(["-map_metadata", "-1", "-fflags", "+bitexact"]);
    command.args(["-flags:v", "+bitexact", "-flags:a", "+bitexact"]);
    let format = if *format == VideoFormat::Webm { "webm" } else { "mp4" };
    let failure = command.args(["-f", format]).arg(absolute(out)?).exec();
    Err(anyhow::Error::from(failure).context(ffmpeg.display().to_string()).into())
}

/// The folder of a caption file, and the filter that draws its captions. The filter has a syntax of
/// its own, so it gets a plain name in the working directory.
fn subtitles_filter(captions: &Path) -> Result<(&Path, String), CommandError> {
    let plain = |name: &&str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._".contains(&b));
    let name = captions.file_name().and_then(|name| name.to_str()).filter(plain);
    match (captions.parent(), name) {
        (Some(folder), Some(name)) => Ok((folder, format!("subtitles={name}"))),
        _ => Err(CommandError::Usage("the name of the captions has other characters".into())),
    }
}

fn prepare_process() -> Result<(), CommandError> {
    Ok(child_process::run_when_idle_within(MAX_CPU_SECONDS, MAX_MEMORY)?)
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
