//! `visavis bake`: renders an avatar in every pose and encodes the frames, once, for all calls.
//!
//! A finished pose set is cached under the fingerprint of avatar, size and renderer. So are the
//! parts of an interrupted bake. The next bake with the same fingerprint copies the finished set,
//! or continues from the parts.

use std::fs;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use bytes::Bytes;
use models::face::avatar_source::{AvatarSource, Subject};
use models::face::avatar_spec::{self, AvatarSpec};
use models::face::background::Background;
use models::face::bake::{self, BakeEvent, BakeOutput, PatchCache, PosePlan};
use models::face::bake_request::{BakeRequest, BakeSubject};
use models::face::photo_avatar::PhotoAvatar;
use models::face::{Framing, PoseSet};

use crate::progress::ProgressBar;
use crate::{CommandError, child_process};

/// Minimum and maximum width and height of a frame, in pixels.
const SIDE_RANGE: std::ops::RangeInclusive<usize> = 128..=1920;

/// What to bake, and where to write it.
pub(crate) struct BakeOptions<'a> {
    /// Frame size as given on the command line.
    pub(crate) size: &'a str,
    /// Framing as given on the command line.
    pub(crate) framing: &'a str,
    /// Output file or folder; `None` = the current folder.
    pub(crate) out: Option<&'a Path>,
    /// Cache folder for finished sets and parts; `None` = the user's cache.
    pub(crate) cache_dir: Option<&'a Path>,
    /// File for partial pose sets, each replacing the previous one; `None` = none are written.
    pub(crate) partial_out: Option<&'a Path>,
    /// Whether to report progress as JSON lines.
    pub(crate) json: bool,
}

/// Name of the avatar that is read from standard input.
const FROM_STDIN: &str = "-";

/// What is baked.
struct Avatar {
    person: Person,
    background: Option<Background>,
    /// Width and height of the pose set, if they are not those of the command line.
    size: Option<(usize, usize)>,
    framing: Framing,
}

enum Person {
    Character(Box<AvatarSpec>),
    Photo(Box<PhotoAvatar>),
}

impl Avatar {
    fn character(avatar: AvatarSpec, framing: Framing) -> Self {
        let person = Person::Character(Box::new(avatar));
        Self { person, background: None, size: None, framing }
    }

    fn source(&self) -> AvatarSource<'_> {
        let subject = match &self.person {
            Person::Character(avatar) => Subject::Character(avatar),
            Person::Photo(avatar) => Subject::Photo(avatar),
        };
        AvatarSource { subject, background: self.background.as_ref(), framing: self.framing }
    }

    /// `avatar_key_id` and display name.
    fn names(&self) -> (&str, &str) {
        match &self.person {
            Person::Character(avatar) => (&avatar.id, &avatar.name),
            Person::Photo(avatar) => (&avatar.id, &avatar.name),
        }
    }
}

/// Bakes one avatar, or all built-in ones. In the `background`, the process has the lowest priority
/// and exits when standard input closes.
pub(crate) fn run(
    avatar: Option<&str>,
    options: &BakeOptions<'_>,
    background: bool,
) -> Result<ExitCode, CommandError> {
    let &BakeOptions { size, out, framing, .. } = options;
    if background {
        child_process::run_when_idle()?;
    }
    let requested = (avatar == Some(FROM_STDIN)).then(read_request).transpose()?;
    if background {
        child_process::exit_when_stdin_closes()?;
    }
    let pixels =
        parse_size(size).map_err(|why| CommandError::Usage(format!("--size {size}: {why}")))?;
    let framing = Framing::from_name(framing).ok_or_else(|| {
        CommandError::Usage(format!("--framing {framing}: neither close nor bust"))
    })?;
    let character = |avatar| Avatar::character(avatar, framing);
    let avatars: Vec<Avatar> = match (requested, avatar) {
        (Some(avatar), _) => vec![avatar],
        (None, Some(who)) => vec![character(find_avatar(who)?)],
        (None, None) => avatar_spec::ids().filter_map(avatar_spec::find).map(character).collect(),
    };
    if avatars.len() > 1 && options.partial_out.is_some() {
        return Err(CommandError::Usage("--first: requires a single avatar".into()));
    }
    let folder =
        out.is_none_or(|out| out.is_dir() || out.as_os_str().to_string_lossy().ends_with('/'));
    if avatars.len() > 1 && !folder {
        let out = out.unwrap_or(Path::new("")).display();
        return Err(CommandError::Usage(format!("--out {out}: several avatars require a folder")));
    }
    for avatar in &avatars {
        let file = match out {
            Some(file) if !folder => file.to_owned(),
            _ => out.unwrap_or(Path::new("")).join(format!("{}.{size}.poses", avatar.names().0)),
        };
        if file.extension().is_some_and(|e| e == "webp") {
            let why = "the name of a pose set cannot end in .webp, which its display picture uses"
                .to_owned();
            return Err(CommandError::Usage(format!("--out {}: {why}", file.display())));
        }
        check_writable(&file)?;
        bake_one(avatar, avatar.size.unwrap_or(pixels), &file, options)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The pose set of a built-in avatar or a character file in this size, from the cache or drawn now.
/// `report` gets the progress of drawing.
pub(crate) fn pose_set(
    name_or_file: &str,
    size: &str,
    background: Option<Background>,
    cache_dir: Option<&Path>,
    report: &mut (dyn FnMut(f64) + Send),
) -> Result<PoseSet, CommandError> {
    let size =
        parse_size(size).map_err(|why| CommandError::Usage(format!("--size {size}: {why}")))?;
    let avatar = find_avatar(name_or_file)?;
    let avatar = Avatar { background, ..Avatar::character(avatar, Framing::default()) };
    let plan = PosePlan::new();
    let cache = cache_folder(cache_dir, &avatar, size, &plan);
    if let Some((set, _)) = cache.as_deref().and_then(cached_set) {
        return Ok(PoseSet::parse(&set)?);
    }
    let parts = PatchCache::new(cache.as_deref())?;
    let baked = bake::bake_progressively(avatar.source(), size, &plan, &[], &parts, |update| {
        if let BakeEvent::Progress(done) = update {
            report(done);
        }
    })?;
    if let Some(cache) = &cache {
        store(cache, &baked)?;
    }
    Ok(baked.pose_set)
}

/// Where the cache has the set of an avatar, or parts of it.
fn cache_folder(
    cache_dir: Option<&Path>,
    avatar: &Avatar,
    size: (usize, usize),
    plan: &PosePlan,
) -> Option<PathBuf> {
    let cache = cache_dir.map(Path::to_owned).or_else(default_cache_dir)?;
    Some(cache.join(bake::fingerprint(avatar.source(), size, plan)))
}

/// The set in a folder of the cache, and its display picture. A damaged one is rendered again.
fn cached_set(cache: &Path) -> Option<(Bytes, Vec<u8>)> {
    let set = Bytes::from(fs::read(cache.join("poses")).ok()?);
    let display_picture = fs::read(cache.join("webp")).ok()?;
    PoseSet::parse(&set).is_ok().then_some((set, display_picture))
}

/// Adds a finished set to the cache.
fn store(cache: &Path, baked: &BakeOutput) -> Result<(), CommandError> {
    write_atomically(&cache.join("webp"), &baked.display_picture)?;
    write_atomically(&cache.join("poses"), &baked.pose_set.to_bytes())?;
    remove_parts(cache);
    Ok(())
}

fn find_avatar(name_or_file: &str) -> Result<AvatarSpec, CommandError> {
    if !name_or_file.ends_with(".toml") {
        let names: Vec<&str> = avatar_spec::ids().collect();
        let unknown = || {
            format!("{name_or_file}: unknown avatar; use {} and files (*.toml)", names.join(", "))
        };
        return avatar_spec::find(name_or_file).ok_or_else(|| CommandError::Usage(unknown()));
    }
    let bad = |why: String| CommandError::Usage(format!("{name_or_file}: {why}"));
    let text = fs::read_to_string(name_or_file).map_err(|e| bad(e.to_string()))?;
    let id = Path::new(name_or_file).file_stem().unwrap_or_default().to_string_lossy();
    avatar_spec::parse(&id, &text).map_err(bad)
}

/// Width and height of `512`, `720p`, `portrait` or `1280x720`.
fn parse_size(size: &str) -> Result<(usize, usize), String> {
    let (width, height) = match size.split_once('x') {
        Some(both) => both,
        None if size == "portrait" => ("720", "1280"),
        None => match size.strip_suffix('p') {
            Some("720") => ("1280", "720"),
            Some("360") => ("640", "360"),
            Some(_) => return Err("only 360p and 720p are supported".into()),
            None => (size, size),
        },
    };
    let side = |text: &str| {
        let side: usize = text
            .parse()
            .map_err(|_| "not a size such as 512, 720p, portrait or 1280x720".to_owned())?;
        if !SIDE_RANGE.contains(&side) || !side.is_multiple_of(2) {
            return Err(format!(
                "width and height must be even and between {} and {} pixels",
                SIDE_RANGE.start(),
                SIDE_RANGE.end()
            ));
        }
        Ok(side)
    };
    Ok((side(width)?, side(height)?))
}

/// Default cache folder for finished sets and parts.
fn default_cache_dir() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(cache.join("visavis").join("faces"))
}

/// Checks that the set and its picture can be written here, before the long rendering starts.
fn check_writable(file: &Path) -> Result<(), CommandError> {
    let path_context = || file.display().to_string();
    if let Some(folder) = file.parent().filter(|f| !f.as_os_str().is_empty()) {
        fs::create_dir_all(folder).with_context(path_context)?;
    }
    for file in [file, &file.with_extension("webp")] {
        // The rename at the end would replace a device or a pipe by a file.
        if file.exists() && !file.is_file() {
            return Err(CommandError::Usage(format!(
                "--out {}: not a regular file",
                file.display()
            )));
        }
        let temp = temp_path(file);
        fs::write(&temp, b"").and_then(|()| fs::remove_file(&temp)).with_context(path_context)?;
    }
    Ok(())
}

/// Reads the avatar from the first line of standard input.
fn read_request() -> Result<Avatar, CommandError> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let unreadable = |why: String| CommandError::Usage(format!("standard input: {why}"));
    let BakeRequest { subject, background } =
        serde_json::from_str(&line).map_err(|error| unreadable(error.to_string()))?;
    let (person, [width, height], framing) = match subject {
        BakeSubject::Character(request) => {
            let (size, framing) = (request.size, request.framing);
            let avatar = request.into_avatar().map_err(unreadable)?;
            (Person::Character(Box::new(avatar)), size, framing)
        }
        BakeSubject::Photo(request) => {
            let (size, framing) = (request.pixels(), request.framing);
            let photo = request.into_avatar().map_err(|error| unreadable(error.to_string()))?;
            (Person::Photo(Box::new(photo)), size, framing)
        }
    };
    Ok(Avatar { person, background, size: Some((width, height)), framing })
}

fn bake_one(
    avatar: &Avatar,
    size: (usize, usize),
    file: &Path,
    options: &BakeOptions<'_>,
) -> Result<(), CommandError> {
    let start = Instant::now();
    let plan = match avatar.person {
        Person::Character(_) => PosePlan::new(),
        Person::Photo(_) => PosePlan::for_photo(),
    };
    let cache = cache_folder(options.cache_dir, avatar, size, &plan);
    let report = |sentence: String| {
        if !options.json {
            println!("{sentence}");
        }
    };
    if let Some((set, display)) = cache.as_deref().and_then(cached_set) {
        write_atomically(&file.with_extension("webp"), &display)?;
        write_atomically(file, &set)?;
        report(format!("{}: {} KB, from the cache", file.display(), set.len() / 1000));
        return Ok(());
    }
    let parts = PatchCache::new(cache.as_deref())?;
    let mut bar = ProgressBar::new(avatar.names().1, options.json);
    let mut shares =
        if options.partial_out.is_some() { plan.progressive_subsets() } else { Vec::new() };
    if matches!(avatar.person, Person::Photo(_)) {
        // A photo takes a few seconds, so the second subset would only delay the set.
        shares.truncate(1);
    }
    let mut written = Ok(());
    let baked = bake::bake_progressively(avatar.source(), size, &plan, &shares, &parts, |update| {
        match (update, options.partial_out) {
            (BakeEvent::Progress(done), _) => bar.update(done),
            (BakeEvent::PartialSet(share), Some(first)) if written.is_ok() => {
                written = write_set(first, &share).map(|()| bar.report_partial());
            }
            (BakeEvent::PartialSet(_), _) => {}
        }
    });
    bar.clear();
    written?;
    let baked = baked?;
    write_set(file, &baked)?;
    if let Some(cache) = &cache {
        store(cache, &baked)?;
    }
    let BakeOutput { pose_set: set, luma_psnr: psnr, chroma_psnr: colours, .. } = baked;
    let bytes = set.to_bytes();
    report(format!(
        "{}: {} KB, {} poses, quantizers {:?}, luma PSNR {:.1} dB (minimum {:.1}), \
         chroma PSNR {:.1} dB (minimum {:.1}), {:.0} s",
        file.display(),
        bytes.len() / 1000,
        set.manifest().frames.len(),
        set.manifest().quantizers,
        psnr.0,
        psnr.1,
        colours.0,
        colours.1,
        start.elapsed().as_secs_f64()
    ));
    let limit = bake::max_set_bytes(size);
    if bytes.len() > limit {
        eprintln!("{}: exceeds the limit of {} KB", file.display(), limit / 1000);
    }
    Ok(())
}

/// Writes a set and its display picture. The picture is first: a reader that finds the set also
/// finds the picture.
fn write_set(file: &Path, baked: &BakeOutput) -> Result<(), CommandError> {
    write_atomically(&file.with_extension("webp"), &baked.display_picture)?;
    write_atomically(file, &baked.pose_set.to_bytes())
}

/// The temporary file next to `file`, renamed to it once it is complete.
fn temp_path(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    file.with_file_name(name)
}

/// Writes the whole file, or leaves the old one in place.
fn write_atomically(file: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    let temp = temp_path(file);
    let written = fs::write(&temp, bytes).and_then(|()| fs::rename(&temp, file));
    if written.is_err() {
        // On a full disk the temporary file is incomplete.
        let _ = fs::remove_file(&temp);
    }
    Ok(written.with_context(|| file.display().to_string())?)
}

/// Removes the files that only an unfinished set needs. A file that cannot be removed does no harm.
fn remove_parts(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        if entry.file_name() != "poses" && entry.file_name() != "webp" {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_bad_ones_refused() {
        assert_eq!(parse_size("512"), Ok((512, 512)));
        assert_eq!(parse_size("360"), Ok((360, 360)));
        assert_eq!(parse_size("720p"), Ok((1280, 720)));
        assert_eq!(parse_size("1280x720"), Ok((1280, 720)));
        assert_eq!(parse_size("portrait"), Ok((720, 1280)));
        for bad in ["", "x", "0", "127", "513", "512x", "x512", "512x99999", "1080p", "-4", "5e2"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_unknown_avatar_name_lists_the_known_ones() {
        let Err(CommandError::Usage(message)) = find_avatar("nobody") else { panic!("found") };
        assert!(message.contains("theo, ") && !message.contains('\n'), "{message}");
        let Err(CommandError::Usage(message)) = find_avatar("/nowhere/x.toml") else {
            panic!("found")
        };
        assert!(message.starts_with("/nowhere/x.toml: "), "{message}");
    }
}
