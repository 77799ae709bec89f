//! The commands that write videos, as people and the server run them. They speak with flite.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use models::film::{Files, Line, Picture, Speech, Summary, Task};
use rustix::process::{Pid, Signal, kill_process};

const VOICE: &str = "rms";
/// Permitted CPU time for a minute of video, in µs.
const MAX_CPU_US: u64 = 15_000_000;

struct TempFolder(PathBuf);

impl TempFolder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("visavis-videos-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `visavis video` in a folder, with a `PATH`.
fn video_with_path(folder: &TempFolder, path: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_visavis"))
        .arg("video")
        .args(arguments)
        .current_dir(&folder.0)
        .env_clear()
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn video(folder: &TempFolder, arguments: &[&str]) -> Output {
    video_with_path(folder, Path::new("/nowhere"), arguments)
}

/// The result, which is the last line.
fn summary(output: &Output) -> Summary {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let mut last = 0.0;
    for line in text.lines() {
        match serde_json::from_str(line).unwrap() {
            Line::Progress { progress } => {
                assert!(progress >= last, "{text}");
                last = progress;
            }
            Line::Done(summary) => return summary,
        }
    }
    panic!("no summary: {text}");
}

#[test]
fn a_person_speaks_a_minute_within_the_permitted_cpu_time() {
    let folder = TempFolder::new("minute");
    let sentence = "The oldest of them was built in sixteen seventy six, and five of its wheels \
                    are made of pear wood. ";
    fs::write(folder.path("text.txt"), sentence.repeat(11)).unwrap();
    let output = video(
        &folder,
        &[
            "--avatar",
            "clara",
            "--text-file",
            "text.txt",
            "--voice",
            VOICE,
            "--out",
            "a.webm",
            "--captions",
            "vtt",
            "--json",
        ],
    );
    let summary = summary(&output);
    assert!((50_000..90_000).contains(&summary.duration_ms), "{summary:?}");
    let permitted = MAX_CPU_US * summary.duration_ms / 60_000;
    assert!(summary.cpu_us < permitted, "{summary:?}");
    assert_eq!((summary.width, summary.height), (512, 512));
    let file = fs::read(folder.path("a.webm")).unwrap();
    assert!(file.starts_with(&[0x1a, 0x45, 0xdf, 0xa3]));
    assert_eq!(summary.bytes, file.len() as u64);
    let captions = fs::read_to_string(folder.path("a.vtt")).unwrap();
    assert!(captions.starts_with("WEBVTT\n\n00:00:00.4"), "{captions}");
    assert_eq!(captions.matches("wood.").count(), 11, "{captions}");
    assert_eq!(folder.names(), ["a.vtt", "a.webm", "text.txt"]);
}

#[test]
fn equal_requests_give_equal_files_and_a_pose_set_is_its_avatar() {
    let folder = TempFolder::new("equal");
    let poses = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/avatars/martin.512.poses");
    for (avatar, out) in
        [("martin", "a.webm"), ("martin", "b.webm"), (poses.to_str().unwrap(), "c.webm")]
    {
        let text = "[warm] Hello! [nod] Are you well?";
        let arguments = ["--avatar", avatar, "--text", text, "--voice", VOICE, "--out", out];
        let output = video(&folder, &arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(report.starts_with(&format!("{out}: ")), "{report}");
        let [first, this] = ["a.webm", out].map(|name| fs::read(folder.path(name)).unwrap());
        assert!(first == this, "{out}");
    }
}

#[test]
fn what_cannot_be_used_is_refused_in_one_sentence() {
    let folder = TempFolder::new("refused");
    fs::write(folder.path("empty.txt"), "").unwrap();
    fs::write(folder.path("long.txt"), "a".repeat(20_001)).unwrap();
    fs::write(folder.path("latin1.txt"), [0xe4]).unwrap();
    fs::write(folder.path("bad.poses"), "no poses").unwrap();
    fs::write(folder.path("flac"), "fLaC").unwrap();
    fs::create_dir(folder.path("dir.webm")).unwrap();
    fs::create_dir(folder.path("b.vtt")).unwrap();
    let drawn = ["--avatar", "clara", "--size", "720x1280", "--json"];
    let avatars = "theo, clara, martin, amina, raj, mei, ingrid, nia, leo";
    let unknown = format!("nobody: unknown avatar; use {avatars} and files (*.toml)");
    let silent = "the text contains nothing to speak";
    let pauses = "[pause 10]".repeat(61) + "Hello.";
    for (arguments, expected) in [
        (vec!["--avatar", "nobody", "--text", "a", "--out", "a.webm"], &*unknown),
        (
            vec!["--avatar", "clara", "--text", "a", "--out", "a.webm", "--voice", "Joanna"],
            "--voice Joanna: must be one of heart, slt, rms, awb, kal16, kal",
        ),
        (
            vec!["--avatar", "clara", "--text", "a", "--out", "a.webm", "--size", "9"],
            "--size 9: width and height must be even and between 128 and 1920 pixels",
        ),
        (
            vec!["--avatar", "clara", "--text", "a", "--out", "a.webm", "--frame-rate", "31"],
            "--frame-rate 31: not from 10 to 30",
        ),
        (
            vec!["--avatar", "clara", "--text", "a", "--out", "a.webm", "--background", "red"],
            "--background red: not a colour such as #c0906f",
        ),
        (
            vec!["--avatar", "clara", "--text", "a", "--out", "a.avi"],
            "--out a.avi: not *.webm or *.mp4",
        ),
        (
            vec!["--avatar", "clara", "--text", "a", "--out", "a.mp4"],
            "MP4 and burned captions need ffmpeg, which is not installed",
        ),
        // The avatar would have to be drawn, which takes minutes.
        ([&drawn[..], &["--text", "[nod] ...", "--out", "a.webm"]].concat(), silent),
        (
            [&drawn[..], &["--text", "a", "--out", "no/a.webm"]].concat(),
            "--out no/a.webm: No such file or directory (os error 2)",
        ),
        (
            [&drawn[..], &["--text", "a", "--out", "dir.webm"]].concat(),
            "--out dir.webm: is a folder",
        ),
        (
            [&drawn[..], &["--text-file", "long.txt", "--out", "a.webm"]].concat(),
            "the text is longer than 20,000 characters",
        ),
        (
            [&drawn[..], &["--text", "a", "--out", "b.webm", "--captions", "vtt"]].concat(),
            "--captions b.vtt: is a folder",
        ),
        (
            [&drawn[..], &["--audio-file", "flac", "--out", "a.webm"]].concat(),
            "the audio is not WAV, MP3 or Ogg (Vorbis or Opus)",
        ),
        (vec!["--avatar", "clara", "--text-file", "empty.txt", "--out", "a.webm"], silent),
        (
            vec!["--avatar", "clara", "--text", &pauses, "--out", "a.webm"],
            "the text pauses for longer than 600 s in total",
        ),
        (
            vec!["--avatar", "clara", "--text-file", "latin1.txt", "--out", "a.webm"],
            "latin1.txt: stream did not contain valid UTF-8",
        ),
        (
            vec!["--avatar", "clara", "--audio-file", "none.wav", "--out", "a.webm"],
            "none.wav: No such file or directory (os error 2)",
        ),
        (
            vec!["--avatar", "clara", "--audio-file", "/dev/null", "--out", "a.webm"],
            "/dev/null: the audio is not in a file",
        ),
        (
            vec!["--avatar", "clara", "--audio-file", "a", "--out", "a.webm", "--captions", "vtt"],
            "--captions: an audio file has no text",
        ),
        (
            vec!["--avatar", "bad.poses", "--text", "a", "--out", "a.webm"],
            "bad.poses: not a pose set",
        ),
    ] {
        let output = video(&folder, &arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert_eq!(message, format!("{expected}\n"), "{arguments:?}");
        assert_eq!(output.stdout, b"", "nothing was drawn: {arguments:?}");
    }
    assert_eq!(
        folder.names(),
        ["b.vtt", "bad.poses", "dir.webm", "empty.txt", "flac", "latin1.txt", "long.txt"]
    );
}

#[test]
fn ffmpeg_makes_mp4_and_draws_captions() {
    let folder = TempFolder::new("ffmpeg");
    // Writes its working directory's captions and what it was given.
    let script =
        "#!/bin/sh\nfor last; do :; done\n{ echo \"$@\"; cat captions.vtt; } > \"$last\"\n";
    let ffmpeg = folder.path("ffmpeg");
    fs::write(&ffmpeg, script).unwrap();
    fs::set_permissions(&ffmpeg, fs::Permissions::from_mode(0o700)).unwrap();
    let path = PathBuf::from(format!("{}:/usr/bin:/bin", folder.0.display()));
    let text = ["--avatar", "leo", "--text", "Five plums.", "--voice", "kal16"];
    // Equal requests give equal files: a positive speed depends on the load.
    for (out, codec) in [("a.mp4", "-c:v libx264"), ("a.webm", "-cpu-used -8")] {
        let arguments = [&text[..], &["--out", out, "--captions", "burned"]].concat();
        let output = video_with_path(&folder, &path, &arguments);
        assert!(output.status.success(), "{output:?}");
        let written = fs::read_to_string(folder.path(out)).unwrap();
        for part in [codec, "-vf subtitles=captions.vtt", "+bitexact", "\nFive plums.\n"] {
            assert!(written.contains(part), "{written}");
        }
    }
    // A folder of the user stays.
    fs::create_dir(folder.path("a.mp4.work")).unwrap();
    fs::write(&ffmpeg, "#!/bin/sh\necho 'No space left on device' >&2; exit 1\n").unwrap();
    let arguments = [&text[..], &["--out", "a.mp4"]].concat();
    let full = video_with_path(&folder, &path, &arguments);
    assert_eq!(full.status.code(), Some(3), "{full:?}");
    assert_eq!(folder.names(), ["a.mp4", "a.mp4.work", "a.webm", "ffmpeg"]);
}

/// A WAV file of a voice-like sound: syllables with a pause between two phrases.
fn wav(seconds: usize) -> Vec<u8> {
    const RATE: usize = 16_000;
    let samples: Vec<i16> = (0..seconds * RATE)
        .map(|n| {
            let time = n as f32 / RATE as f32;
            let is_pause = (time - seconds as f32 / 2.0).abs() < 0.3;
            let syllable = (time * 4.0 * std::f32::consts::PI).sin().powi(2);
            let harmonics: f32 = (1..12).map(|k| (time * 940.0 * k as f32).sin() / k as f32).sum();
            if is_pause { 0 } else { (harmonics * syllable * 6_000.0) as i16 }
        })
        .collect();
    let data: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let mut file = b"RIFF".to_vec();
    file.extend((data.len() as u32 + 36).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16u32.to_le_bytes());
    for number in [1u16, 1] {
        file.extend(number.to_le_bytes());
    }
    file.extend((RATE as u32).to_le_bytes());
    file.extend((RATE as u32 * 2).to_le_bytes());
    for number in [2u16, 16] {
        file.extend(number.to_le_bytes());
    }
    file.extend(b"data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

#[test]
fn an_audio_file_is_spoken_and_what_is_none_is_refused_in_one_sentence() {
    let folder = TempFolder::new("audio");
    fs::write(folder.path("a.wav"), wav(6)).unwrap();
    let mut written = Vec::new();
    for out in ["a.webm", "b.webm"] {
        let output = video(
            &folder,
            &["--avatar", "martin", "--audio-file", "a.wav", "--out", out, "--json"],
        );
        let report = summary(&output);
        // With the silence around it.
        assert!((7_100..7_300).contains(&report.duration_ms), "{report:?}");
        assert!(report.warnings.is_empty(), "{report:?}");
        written.push(fs::read(folder.path(out)).unwrap());
    }
    assert!(written[0] == written[1], "equal requests give equal files");
    for (content, expected) in [
        (&b""[..], "the audio contains no sound\n"),
        (b"no audio at all", "the audio is not WAV, MP3 or Ogg (Vorbis or Opus)\n"),
        (b"RIFF\0\0\0\0WAVE", "the audio is damaged\n"),
    ] {
        fs::write(folder.path("bad"), content).unwrap();
        let refused =
            video(&folder, &["--avatar", "martin", "--audio-file", "bad", "--out", "c.webm"]);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!((refused.status.code(), &*message), (Some(2), expected), "{content:?}");
    }
    let whole = fs::read(folder.path("a.wav")).unwrap();
    fs::write(folder.path("bad"), &whole[..whole.len() / 2]).unwrap();
    let half = ["--avatar", "martin", "--audio-file", "bad", "--out", "c.webm", "--json"];
    let [warning] = &summary(&video(&folder, &half)).warnings[..] else { panic!("no warning") };
    assert!(warning.contains("ends early"), "{warning}");
    assert_eq!(folder.names(), ["a.wav", "a.webm", "b.webm", "bad", "c.webm"]);
    let mut task = task(&folder, "");
    task.speech = Speech::Audio { file: folder.path("a.wav") };
    task.files.captions = None;
    assert!(render(&task).status.success());
}

#[test]
fn an_end_by_a_signal_leaves_no_part() {
    let folder = TempFolder::new("signal");
    fs::write(folder.path("text.txt"), "Hello there. ".repeat(1_500)).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_visavis"))
        .args(["video", "--avatar", "clara", "--text-file", "text.txt", "--voice", VOICE])
        .args(["--out", "a.webm", "--json"])
        .current_dir(&folder.0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_rendering = |line: String| match serde_json::from_str(&line).unwrap() {
        Line::Progress { progress } => progress > 0.0,
        Line::Done(summary) => panic!("it is complete: {summary:?}"),
    };
    assert!(lines.any(|line| is_rendering(line.unwrap())));
    assert_eq!(folder.names(), ["a.webm.new", "text.txt"]);
    let id = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    kill_process(id, Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(folder.names(), ["text.txt"]);
}

fn task(folder: &TempFolder, text: &str) -> Task {
    Task {
        picture: Picture::Stock { id: "theo".into() },
        speech: Speech::Voice {
            text: text.into(),
            provider: String::new(),
            voice: VOICE.into(),
            language: None,
            pronunciation: Vec::new(),
        },
        frame_rate: 25,
        seed: 1,
        files: Files {
            video: folder.path("film.webm"),
            poster: Some(folder.path("poster.webp")),
            captions: Some(folder.path("captions.vtt")),
        },
        models: folder.path("models"),
        avatars: None,
    }
}

/// Starts `visavis render-video` with its standard input open, as the server does.
fn start_render(task: &Task) -> (Child, ChildStdin) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_visavis"))
        .arg("render-video")
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", serde_json::to_string(task).unwrap()).unwrap();
    (child, stdin)
}

fn render(task: &Task) -> Output {
    let (child, stdin) = start_render(task);
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    output
}

#[test]
fn the_server_s_child_process_writes_all_files_and_equal_ones_for_equal_tasks() {
    let folder = TempFolder::new("task");
    let task = task(&folder, "Hello there. [pause 0.5] How are you?");
    let report = summary(&render(&task));
    assert!(report.warnings.is_empty() && report.duration_ms > 2_500, "{report:?}");
    let names = ["captions.vtt", "film.webm", "poster.webp"];
    assert_eq!(folder.names(), names);
    let read = || names.map(|name| fs::read(folder.path(name)).unwrap());
    let first = read();
    for name in names {
        let mode = fs::metadata(folder.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}: only the owner may see it");
    }
    assert!(render(&task).status.success());
    assert!(first == read());
    for (tag, is_spoken) in [("en-GB", true), ("", true), ("de-AT", false)] {
        let mut tagged = task.clone();
        if let Speech::Voice { language, .. } = &mut tagged.speech {
            *language = Some(tag.into());
        }
        let warnings = summary(&render(&tagged)).warnings;
        assert_eq!(warnings.is_empty(), is_spoken, "{tag}: {warnings:?}");
        assert!(first == read(), "{tag}");
    }
}

#[test]
fn the_exit_status_tells_why_there_is_no_video() {
    let folder = TempFolder::new("status");
    let good = task(&folder, "Hello.");
    let mut unknown = good.clone();
    unknown.picture = Picture::Stock { id: "nobody".into() };
    let silent = task(&folder, "...");
    for (task, sentence) in [
        (unknown, "the avatar nobody does not exist\n"),
        (silent, "the text contains nothing to speak\n"),
    ] {
        let refused = render(&task);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert_eq!(String::from_utf8_lossy(&refused.stderr), sentence);
    }
    // A pose set is the server's own file: another attempt writes it anew.
    let mut damaged = good.clone();
    damaged.picture = Picture::Set { file: folder.path("poses") };
    fs::write(folder.path("poses"), "no poses").unwrap();
    assert_eq!(render(&damaged).status.code(), Some(1));
    fs::remove_file(folder.path("poses")).unwrap();
    assert_eq!(folder.names(), [""; 0]);
    // Every write to this device fails with ENOSPC.
    std::os::unix::fs::symlink("/dev/full", folder.path("film.webm.new")).unwrap();
    let full = render(&good);
    assert_eq!(full.status.code(), Some(3), "{full:?}");
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn the_child_process_ends_with_the_server() {
    let folder = TempFolder::new("orphan");
    let (mut child, stdin) = start_render(&task(&folder, &"Hello there. ".repeat(1_500)));
    // All pipes of a server that is killed close.
    drop((child.stdout.take(), child.stderr.take()));
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(!folder.path("film.webm").exists());
}
