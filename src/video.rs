//! `visavis video` and `visavis render-video`: videos in which an avatar speaks a text or an audio
//! file.
//!
//! The first one is for people, the second one is a child process of the server, which sends it a
//! [`Task`]. Exit status of both: 0 = written, 2 = the input cannot be used, 3 = there is no space
//! for the video, 1 = any other failure, after which another attempt may succeed.

mod arguments;
mod files;
mod input;

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use engine::show::Avatars;
use models::face::PoseSet;
use models::face::background::Background;
use models::film::{FRAME_RATES, Files, Line, Picture, Speech, Summary, Task, seed_of};
use serde_json::json;
use studio::{Captions, Error, Options, SpeechSource, SpoolSource, VoiceSource};

use self::arguments::CaptionStyle;
pub(crate) use self::arguments::VideoArgs;
use self::files::Part;
use self::input::{check_out, check_speech, parse_script, read_speech, unreadable};
use crate::deliver::{self, Conversion, NO_SPACE, VideoFormat};
use crate::progress::ProgressBar;
use crate::{CommandError, bake, child_process, config, error_chain, load_environment_config};

/// Limits of the child process. The longest video takes 15 minutes of CPU time.
const MAX_CPU_SECONDS: u64 = 3_600;
const MAX_MEMORY: u64 = 4 << 30;
/// Most bytes of a task: four of each character of the text, and escapes.
const MAX_TASK_BYTES: u64 = 1 << 20;
/// The sizes for which a built-in avatar is in the program.
const BUILT_IN_SIZES: [&str; 2] = ["512", "512x512"];
/// Share of the progress that drawing the avatar has, if it must be drawn.
const BAKE_SHARE: f64 = 0.9;

/// A video to write, with its pose set.
struct Job {
    set: Arc<PoseSet>,
    speech: Speech,
    options: Options,
    files: Files,
    models: PathBuf,
}

/// Writes the video of a task from standard input. Reports on standard output.
pub(crate) fn render_as_child() -> Result<ExitCode, CommandError> {
    child_process::run_when_idle_within(MAX_CPU_SECONDS, MAX_MEMORY)?;
    let mut line = String::new();
    io::stdin().lock().take(MAX_TASK_BYTES).read_line(&mut line)?;
    let task: Task = serde_json::from_str(&line).context("the task on standard input")?;
    child_process::exit_when_stdin_closes()?;
    end(render_task(task))
}

fn render_task(task: Task) -> Result<(), Failure> {
    let Task { picture, speech, frame_rate, seed, files, models, avatars } = task;
    if !FRAME_RATES.contains(&frame_rate) {
        return Err(input(format!("the frame rate is not one of {FRAME_RATES:?}")));
    }
    let set = match picture {
        Picture::Stock { id } => {
            let mut known = Avatars::built_in().map_err(anyhow::Error::from)?;
            if let Some(folder) = avatars {
                known.add_dir(&folder).map_err(anyhow::Error::from)?;
            }
            let found = known.find(&id).map(|avatar| Arc::clone(&avatar.pose_set));
            found.ok_or_else(|| input(format!("the avatar {id} does not exist")))?
        }
        // The server writes it, anew for each attempt: its fault is none of the user's.
        Picture::Set { file } => Arc::new(read_set(&file).map_err(|error| match error {
            CommandError::Usage(sentence) => CommandError::Failed(anyhow::anyhow!(sentence)),
            failed @ CommandError::Failed(_) => failed,
        })?),
    };
    let options = Options { frame_rate, seed };
    let mut reported = 0;
    let summary = write(&Job { set, speech, options, files, models }, &mut |progress| {
        let percent = (progress * 100.0) as u32;
        if percent > reported {
            reported = percent;
            print_line(&Line::Progress { progress: percent as f32 / 100.0 });
        }
    })?;
    print_line(&Line::Done(summary));
    Ok(())
}

/// Nothing can be done if nobody reads the line.
fn print_line(line: &Line) {
    if let Ok(line) = serde_json::to_string(line) {
        let mut out = io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

/// Writes a video for people.
pub(crate) fn run(arguments: &VideoArgs) -> Result<ExitCode, CommandError> {
    end(run_for_people(arguments))
}

fn run_for_people(arguments: &VideoArgs) -> Result<(), Failure> {
    let VideoArgs { avatar, out, captions, frame_rate, json, .. } = arguments;
    let usage = |sentence: String| Failure::Command(CommandError::Usage(sentence));
    if !FRAME_RATES.contains(frame_rate) {
        let (first, last) = (FRAME_RATES.start(), FRAME_RATES.end());
        return Err(usage(format!("--frame-rate {frame_rate}: not from {first} to {last}")));
    }
    let format = match out.extension().and_then(|extension| extension.to_str()) {
        Some("webm") => VideoFormat::Webm,
        Some("mp4") => VideoFormat::Mp4,
        _ => return Err(usage(format!("--out {}: not *.webm or *.mp4", out.display()))),
    };
    if arguments.audio_file.is_some() && *captions != CaptionStyle::None {
        return Err(usage("--captions: an audio file has no text".into()));
    }
    let is_converted = format == VideoFormat::Mp4 || *captions == CaptionStyle::Burned;
    let ffmpeg = if is_converted { deliver::find_ffmpeg() } else { None };
    if is_converted && ffmpeg.is_none() {
        return Err(usage("MP4 and burned captions need ffmpeg, which is not installed".into()));
    }
    // All input is checked now, because drawing takes minutes.
    let (speech, content) = read_speech(arguments)?;
    let models = models_folder(arguments.models.clone(), &speech)?;
    check_speech(&speech)?;
    check_out("--out", out)?;
    let captions_beside = out.with_extension("vtt");
    if *captions == CaptionStyle::Vtt {
        check_out("--captions", &captions_beside)?;
    }
    let mut bar = ProgressBar::new(avatar, *json);
    let mut drawn = 0.0;
    let set = find_set(arguments, &mut |done| {
        drawn = BAKE_SHARE;
        bar.update(done * BAKE_SHARE);
    })?;
    let manifest = set.manifest();
    let seed = json!([
        manifest.id,
        manifest.width,
        manifest.height,
        arguments.background,
        frame_rate,
        arguments.voice,
        content
    ]);
    let parts = [deliver::part_of(out), deliver::part_of(&captions_beside)];
    let folder = ffmpeg.is_some().then(|| files::WorkFolder::path_beside(out));
    let parts = parts.into_iter().chain(folder).collect();
    files::remove_at_signal(parts).context("signals cannot be received")?;
    let work = ffmpeg.as_ref().map(|_| files::WorkFolder::beside(out)).transpose();
    let work = work.with_context(|| out.display().to_string())?;
    let rendered = match &work {
        Some(work) => work.path().join("film.webm"),
        None => out.clone(),
    };
    let captions_file = match (captions, &work) {
        (CaptionStyle::None, _) => None,
        (CaptionStyle::Burned, Some(work)) => Some(work.path().join("captions.vtt")),
        _ => Some(captions_beside),
    };
    let job = Job {
        set,
        speech,
        options: Options { frame_rate: *frame_rate, seed: seed_of(seed.to_string().as_bytes()) },
        files: Files { video: rendered.clone(), poster: None, captions: captions_file.clone() },
        models,
    };
    let mut summary = write(&job, &mut |progress| {
        bar.update(drawn + f64::from(progress) * (1.0 - drawn));
    })?;
    if let Some(ffmpeg) = ffmpeg {
        let captions = captions_file.filter(|_| *captions == CaptionStyle::Burned);
        summary.bytes = convert(rendered, out, ffmpeg, format, captions)?;
        summary.cpu_us = child_process::cpu_time_us() + child_process::children_cpu_time_us();
    }
    bar.clear();
    if *json {
        print_line(&Line::Done(summary));
        return Ok(());
    }
    for warning in &summary.warnings {
        eprintln!("{warning}");
    }
    let Summary { duration_ms, bytes, width, height, cpu_us, .. } = summary;
    println!(
        "{}: {:.1} s, {width}x{height}, {} KB, {:.1} s of CPU time",
        out.display(),
        duration_ms as f64 / 1_000.0,
        bytes / 1_000,
        cpu_us as f64 / 1e6
    );
    Ok(())
}

/// The folder with the models: that of the command line, else that of the server. Warns if a voice
/// needs it and it does not exist.
fn models_folder(named: Option<PathBuf>, speech: &Speech) -> Result<PathBuf, CommandError> {
    let models = match named {
        Some(dir) => config::Models { dir: Some(dir) },
        None => load_environment_config()?.models,
    };
    if matches!(speech, Speech::Voice { .. })
        && let Some(reason) = models.missing_reason()
    {
        eprintln!("warning: {reason}");
    }
    Ok(models.folder())
}

/// The pose set that a command line names. `report` gets the progress of drawing it.
fn find_set(
    arguments: &VideoArgs,
    report: &mut (dyn FnMut(f64) + Send),
) -> Result<Arc<PoseSet>, CommandError> {
    let VideoArgs { avatar, size, background, keep, .. } = arguments;
    let size = size.as_deref();
    if avatar.ends_with(".poses") {
        if size.is_some() || background.is_some() {
            let sentence = "a pose set has its size and background: without --size, --background";
            return Err(CommandError::Usage(format!("{avatar}: {sentence}")));
        }
        return Ok(Arc::new(read_set(Path::new(avatar))?));
    }
    let background = background
        .as_ref()
        .map(|colour| {
            let background = json!({"type": "colour", "colour": colour});
            serde_json::from_value::<Background>(background).map_err(|_| {
                CommandError::Usage(format!("--background {colour}: not a colour such as #c0906f"))
            })
        })
        .transpose()?;
    let size = size.unwrap_or(BUILT_IN_SIZES[0]);
    let is_built_in = BUILT_IN_SIZES.contains(&size) && background.is_none();
    if is_built_in && let Some(found) = Avatars::built_in()?.find(avatar) {
        return Ok(Arc::clone(&found.pose_set));
    }
    let set = bake::pose_set(avatar, size, background, keep.as_deref(), report)?;
    Ok(Arc::new(set))
}

fn read_set(file: &Path) -> Result<PoseSet, CommandError> {
    let content = fs::read(file).map_err(|error| unreadable(file, error))?;
    PoseSet::parse(&Bytes::from(content)).map_err(|error| unreadable(file, error))
}

/// Writes the files of a video.
fn write(job: &Job, progress: &mut dyn FnMut(f32)) -> Result<Summary, Failure> {
    let Job { set, speech, options, files, models } = job;
    let mut video = Part::create(&files.video).map_err(Error::Write)?;
    let mut warnings = Vec::new();
    let mut source: Box<dyn SpeechSource> = match speech {
        Speech::Voice { text, provider, voice, language, pronunciation } => {
            let voices = [voice.as_str(), &set.manifest().voice];
            let script = parse_script(text)?;
            let source =
                VoiceSource::new(script, provider, &voices, pronunciation.clone(), models)?;
            warnings.extend(language.as_deref().and_then(foreign_language));
            Box::new(source)
        }
        Speech::Spool { text, file } => {
            let spool = File::open(file).map_err(anyhow::Error::from)?;
            Box::new(SpoolSource::new(parse_script(text)?, BufReader::new(spool))?)
        }
        Speech::Audio { file } => crate::audio_file::open(file)?,
    };
    let mut captions = files.captions.as_ref().map(|_| Captions::default());
    let rendered = studio::render(
        Arc::clone(set),
        &mut *source,
        options,
        video.file(),
        captions.as_mut(),
        progress,
    )?;
    warnings.extend(source.warnings());
    // Its child process has ended now, so that its CPU time counts.
    drop(source);
    let mut others = Vec::new();
    if let (Some(file), Some(captions)) = (&files.captions, &captions) {
        others.push((file, captions.to_vtt().into_bytes()));
    }
    if let Some(file) = &files.poster {
        others.push((file, studio::poster(set)));
    }
    for (file, content) in others {
        let mut part = Part::create(file).map_err(Error::Write)?;
        part.file().write_all(&content).map_err(Error::Write)?;
        part.complete().map_err(Error::Write)?;
    }
    // The video comes last: who finds it, finds the others.
    video.complete().map_err(Error::Write)?;
    let cpu_us = child_process::cpu_time_us() + child_process::children_cpu_time_us();
    Ok(Summary {
        duration_ms: milliseconds(rendered.duration),
        bytes: rendered.bytes,
        width: rendered.size.width,
        height: rendered.size.height,
        cpu_us,
        warnings,
    })
}

/// A warning if a built-in voice does not speak the language, a BCP 47 tag.
fn foreign_language(tag: &str) -> Option<String> {
    let primary = tag.trim().split(['-', '_']).next().unwrap_or_default();
    let is_spoken = primary.is_empty() || primary.eq_ignore_ascii_case("en");
    let tag: String = tag.chars().take(40).collect();
    (!is_spoken)
        .then(|| format!("The built-in voices speak English; the language {tag:?} is ignored."))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Converts a video, and returns the size of the file.
fn convert(
    recording: PathBuf,
    out: &Path,
    ffmpeg: PathBuf,
    format: VideoFormat,
    captions: Option<PathBuf>,
) -> Result<u64, Failure> {
    let part = Part::create(out).map_err(Error::Write)?;
    let conversion =
        Conversion { recording, out: part.path().to_owned(), ffmpeg, format, captions };
    let code = deliver::run_ffmpeg(&conversion)?;
    if code == ExitCode::from(NO_SPACE) {
        return Err(Error::Write(io::ErrorKind::StorageFull.into()).into());
    }
    if code != ExitCode::SUCCESS {
        return Err(Error::Failed("ffmpeg failed".into()).into());
    }
    part.complete().map_err(Error::Write)?;
    Ok(fs::metadata(out).map_err(Error::Write)?.len())
}

/// Why no video was written.
enum Failure {
    Video(Error),
    Command(CommandError),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Video(error)
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Command(CommandError::Failed(error))
    }
}

fn input(sentence: String) -> Failure {
    Failure::Video(Error::Input(sentence))
}

/// Ends this process with the exit status of the result. Libraries of voices must not run their
/// destructors, see [`models::exit_process`].
fn end(result: Result<(), Failure>) -> ! {
    let (sentence, code) = match result {
        Ok(()) => models::exit_process(0),
        Err(Failure::Command(CommandError::Usage(sentence))) => (sentence, 2),
        Err(Failure::Command(CommandError::Failed(error))) => (error_chain(&error), 1),
        Err(Failure::Video(Error::Input(sentence))) => (sentence, 2),
        Err(Failure::Video(error)) => {
            let is_full =
                matches!(&error, Error::Write(cause) if engine_api::is_out_of_space(cause));
            (error.to_string(), if is_full { NO_SPACE } else { 1 })
        }
    };
    eprintln!("{sentence}");
    models::exit_process(code)
}
