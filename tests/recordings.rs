//! The child processes that write recordings, as the server runs them.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use bytes::Bytes;
use recording::capture::CaptureWriter;
use recording::{Packet, Track};

struct TempFolder(PathBuf);

impl TempFolder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("visavis-recordings-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The file of a call of two seconds of silence.
fn write_capture(file: &Path) {
    let mut writer = CaptureWriter::new(File::create(file).unwrap(), None).unwrap();
    for n in 0..100 {
        // CELT, 48 kHz, mono, 20 ms.
        let data = Bytes::from_static(&[0xf8, 0xff, 0xfe]);
        let packet = Packet { at: Duration::from_millis(n * 20), track: Track::Agent, data };
        writer.push(packet).unwrap();
    }
    writer.flush().unwrap();
}

/// Starts the command with its standard input open, as the server does.
fn start(arguments: &[&Path]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_visavis"))
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn run(arguments: &[&Path]) -> Output {
    let mut child = start(arguments);
    let stdin = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    output
}

#[test]
fn a_recording_is_delivered_in_both_layouts() {
    let folder = TempFolder::new("deliver");
    let (capture, out) = (folder.0.join("a.recorded"), folder.0.join("a.webm"));
    write_capture(&capture);
    for channels in ["mixed", "split"] {
        let arguments: [&Path; 5] = [
            "deliver-recording".as_ref(),
            &capture,
            &out,
            "--channels".as_ref(),
            channels.as_ref(),
        ];
        let output = run(&arguments);
        assert!(output.status.success(), "{output:?}");
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let written = fs::read(&out).unwrap();
        assert_eq!(summary["bytes"], written.len(), "{channels}");
        let duration = summary["duration_ms"].as_i64().unwrap();
        assert!((1_950..=2_050).contains(&duration), "{channels}: {duration}");
        assert!(written.starts_with(&[0x1a, 0x45, 0xdf, 0xa3]), "{channels}");
    }
}

#[test]
fn a_capture_is_never_replaced_and_a_recording_only_by_a_complete_one() {
    let folder = TempFolder::new("same");
    let (capture, link) = (folder.0.join("a.recorded"), folder.0.join("link"));
    write_capture(&capture);
    let content = fs::read(&capture).unwrap();
    std::os::unix::fs::symlink(&capture, &link).unwrap();
    for out in [&capture, &link] {
        let refused = run(&["deliver-recording".as_ref(), &capture, out]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let message = "the recording would replace the capture\n";
        assert_eq!(String::from_utf8_lossy(&refused.stderr), message);
        assert_eq!(fs::read(&capture).unwrap(), content);
    }
    let (damaged, out) = (folder.0.join("b.recorded"), folder.0.join("b.webm"));
    fs::write(&damaged, b"no capture").unwrap();
    fs::write(&out, b"an earlier recording").unwrap();
    assert_eq!(run(&["deliver-recording".as_ref(), &damaged, &out]).status.code(), Some(2));
    assert_eq!(fs::read(&out).unwrap(), b"an earlier recording");
    assert!(run(&["deliver-recording".as_ref(), &capture, &out]).status.success());
    assert!(fs::read(&out).unwrap().starts_with(&[0x1a, 0x45, 0xdf, 0xa3]));
    let mode = fs::metadata(&out).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only the owner may hear it");
    let mut names: Vec<_> =
        fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.recorded", "b.recorded", "b.webm", "link"]);
}

#[test]
fn a_full_disk_is_told_from_other_failures_by_the_exit_status() {
    let folder = TempFolder::new("full");
    let (capture, out) = (folder.0.join("a.recorded"), folder.0.join("a.webm"));
    write_capture(&capture);
    // Every write to this device fails with ENOSPC.
    std::os::unix::fs::symlink("/dev/full", folder.0.join("a.webm.new")).unwrap();
    let full = run(&["deliver-recording".as_ref(), &capture, &out]);
    assert_eq!(full.status.code(), Some(3), "{full:?}");
    assert!(!out.exists() && capture.exists());
    let (webm, ffmpeg) = (folder.0.join("b.webm"), folder.0.join("ffmpeg"));
    fs::write(&webm, b"webm").unwrap();
    write_script(
        &ffmpeg,
        "echo 'av_interleaved_write_frame(): No space left on device' >&2; exit 1",
    );
    let mp4 = folder.0.join("b.mp4");
    let full = run(&convert_arguments(&webm, &mp4, &ffmpeg));
    assert_eq!(full.status.code(), Some(3), "{full:?}");
}

/// A script that stands in for ffmpeg.
fn write_script(file: &Path, commands: &str) {
    fs::write(file, format!("#!/bin/sh\n{commands}\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o700)).unwrap();
}

fn convert_arguments<'a>(webm: &'a Path, out: &'a Path, ffmpeg: &'a Path) -> [&'a Path; 5] {
    ["convert-recording".as_ref(), webm, out, "--ffmpeg".as_ref(), ffmpeg]
}

#[test]
fn a_conversion_ends_with_the_server_and_with_its_process() {
    for is_killed in [false, true] {
        let folder = TempFolder::new(if is_killed { "killed" } else { "orphan" });
        let (webm, out) = (folder.0.join("a.webm"), folder.0.join("a.mp4"));
        let (ffmpeg, blocker) = (folder.0.join("ffmpeg"), folder.0.join("blocker"));
        let life = folder.0.join("life");
        fs::write(&webm, b"webm").unwrap();
        for pipe in [&blocker, &life] {
            use rustix::fs::{CWD, FileType, Mode, mknodat};
            mknodat(CWD, pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        }
        // Holds a pipe open while it lives, and waits for a line that nobody writes.
        let (blocker, life) = (blocker.display(), life.display());
        write_script(
            &ffmpeg,
            &format!("exec 3<>'{blocker}'; exec 4>'{life}'; echo runs >&4; read line <&3"),
        );
        let mut child = start(&convert_arguments(&webm, &out, &ffmpeg));
        let mut life = BufReader::new(File::open(life.to_string()).unwrap());
        let mut text = String::new();
        life.read_line(&mut text).unwrap();
        assert_eq!(text, "runs\n");
        if is_killed {
            // As a deletion does.
            child.kill().unwrap();
        } else {
            drop(child.stdin.take());
        }
        assert!(!child.wait().unwrap().success());
        assert_eq!(life.read_line(&mut text).unwrap(), 0, "the pipe is closed");
    }
}

#[test]
fn a_file_that_is_no_capture_is_told_from_other_failures_by_the_exit_status() {
    let folder = TempFolder::new("damaged");
    let (capture, out) = (folder.0.join("a.recorded"), folder.0.join("a.webm"));
    fs::write(&capture, b"no capture").unwrap();
    let damaged = run(&["deliver-recording".as_ref(), &capture, &out]);
    assert_eq!(damaged.status.code(), Some(2), "{damaged:?}");
    assert_eq!(String::from_utf8_lossy(&damaged.stderr), "the file has no valid header\n");
    let absent = run(&["deliver-recording".as_ref(), &folder.0.join("none"), &out]);
    assert_eq!(absent.status.code(), Some(1), "{absent:?}");
}

#[test]
fn ffmpeg_converts_at_the_lowest_priority_with_limits() {
    let folder = TempFolder::new("convert");
    let (webm, out) = (folder.0.join("a.webm"), folder.0.join("a.mp4"));
    fs::write(&webm, b"webm").unwrap();
    // Stands in for ffmpeg: writes what it was given.
    let ffmpeg = folder.0.join("ffmpeg");
    write_script(
        &ffmpeg,
        "for last; do :; done; { /usr/bin/nice; ulimit -t; echo \"$@\"; } > \"$last\"",
    );
    let arguments: [&Path; 5] =
        ["convert-recording".as_ref(), &webm, &out, "--ffmpeg".as_ref(), &ffmpeg];
    let output = run(&arguments);
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&out).unwrap();
    let mut lines = text.lines();
    assert_eq!((lines.next(), lines.next()), (Some("19"), Some("21600")), "{text}");
    let line = lines.next().unwrap();
    for part in ["-nostdin", "-c:v libx264", "-c:a aac", "-movflags +faststart"] {
        assert!(line.contains(part), "{line}");
    }
    assert!(line.contains(&format!("-i {}", webm.display())), "{line}");
    let none = run(&[
        "convert-recording".as_ref(),
        &webm,
        &out,
        "--ffmpeg".as_ref(),
        &folder.0.join("none"),
    ]);
    assert_eq!(none.status.code(), Some(1), "{none:?}");
}
