//! Stands in for `visavis render-video` in these tests. The video that it writes is its task as
//! JSON, behind the first bytes of a WebM file.
#![allow(clippy::print_stdout, clippy::print_stderr)] // the output is the interface of this program
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::fs;
use std::io::Write as _;
use std::path::Path;

use models::film::{Line, Picture, Speech, SpoolReader, Summary, Task};

fn main() {
    assert_eq!(std::env::args().nth(1).as_deref(), Some("render-video"));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let task: Task = serde_json::from_str(&line).unwrap();
    let folder = task.files.video.parent().unwrap();
    let data = folder.ancestors().nth(2).unwrap();
    print(&Line::Progress { progress: 0.25 });
    misbehave(data, folder);
    print(&Line::Progress { progress: 0.75 });
    note_order(data, folder);
    let mut words = serde_json::to_value(&task).unwrap();
    words["sentences"] = count_sentences(&task).into();
    let video = [&[0x1a, 0x45, 0xdf, 0xa3][..], words.to_string().as_bytes()].concat();
    fs::write(&task.files.video, &video).unwrap();
    if let Some(file) = &task.files.poster {
        fs::write(file, b"RIFF....WEBPVP8 ").unwrap();
    }
    if let Some(file) = &task.files.captions {
        fs::write(file, b"WEBVTT\n").unwrap();
    }
    let (width, height) = (512, 512);
    print(&Line::Done(Summary {
        duration_ms: 1_500,
        bytes: video.len() as u64,
        width,
        height,
        cpu_us: 2_000_000,
        warnings: vec!["The voice of a test speaks.".into()],
    }));
}

fn print(line: &Line) {
    println!("{}", serde_json::to_string(line).unwrap());
}

/// What a test asks for by a file in the data folder: an end of some kind for each of its bytes.
fn misbehave(data: &Path, folder: &Path) {
    if take(&data.join("crashes")) {
        fs::write(folder.join("film.webm.new"), b"incomplete").unwrap();
        std::process::abort();
    }
    if take(&data.join("full")) {
        std::process::exit(3);
    }
    if take(&data.join("damaged")) {
        eprintln!("a line for the log");
        eprintln!("the audio is damaged");
        std::process::exit(2);
    }
    if data.join("stalled").exists() {
        // Until the server ends this process, or ends itself.
        fs::write(data.join("pid"), std::process::id().to_string()).unwrap();
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
        std::process::exit(1);
    }
}

/// Appends the id of the video to a file, for tests that ask in which order videos are made.
fn note_order(data: &Path, folder: &Path) {
    let file = fs::OpenOptions::new().append(true).create(true).open(data.join("order"));
    writeln!(file.unwrap(), "{}", folder.file_name().unwrap().display()).unwrap();
}

/// Removes the first byte of a file; false if there is none.
fn take(file: &Path) -> bool {
    let Ok(left) = fs::read(file) else { return false };
    let Some((_, rest)) = left.split_first() else { return false };
    fs::write(file, rest).unwrap();
    true
}

/// Checks the input files. The number of sentences that a hosted voice has spoken.
fn count_sentences(task: &Task) -> usize {
    if let Picture::Set { file } = &task.picture {
        assert!(fs::metadata(file).unwrap().len() > 1_000);
    }
    match &task.speech {
        Speech::Audio { file } => {
            assert!(fs::read(file).unwrap().starts_with(b"RIFF"));
            0
        }
        Speech::Spool { file, .. } => {
            let mut reader = SpoolReader::new(fs::File::open(file).unwrap());
            std::iter::from_fn(|| reader.next_segment().unwrap()).count()
        }
        Speech::Voice { .. } => 0,
    }
}
