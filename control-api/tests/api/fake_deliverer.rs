//! Stands in for `visavis deliver-recording` and `visavis convert-recording` in these tests. It
//! writes real recordings, without the limits of the real command. Instead of ffmpeg it runs
//! nothing: the converted file is a text.
#![allow(clippy::print_stdout, clippy::print_stderr)] // the output is the interface of this program
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::fs::{self, File};
use std::path::Path;

use recording::{Channels, delivery};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments[0].as_str() {
        "deliver-recording" => deliver(&arguments[1..]),
        "convert-recording" => convert(&arguments[1..]),
        other => panic!("{other}"),
    }
}

fn deliver(arguments: &[String]) {
    let (capture, out) = (Path::new(&arguments[0]), Path::new(&arguments[1]));
    assert_eq!(arguments[2], "--channels");
    let channels = if arguments[3] == "split" { Channels::Split } else { Channels::Mixed };
    // A test asks for crashes, one for each byte of a file in the data folder.
    let crashes = capture.ancestors().nth(2).unwrap().join("crashes");
    if let Ok(left) = fs::read(&crashes)
        && let Some((_, rest)) = left.split_first()
    {
        fs::write(&crashes, rest).unwrap();
        fs::write(out, b"incomplete").unwrap();
        std::process::abort();
    }
    // A test asks for a full disk in the same way.
    let full = crashes.with_file_name("full");
    if let Ok(left) = fs::read(&full)
        && let Some((_, rest)) = left.split_first()
    {
        fs::write(&full, rest).unwrap();
        fs::write(out, b"incomplete").unwrap();
        std::process::exit(3);
    }
    let input = File::open(capture).unwrap();
    match delivery::write(input, File::create(out).unwrap(), channels, |_| {}) {
        Ok(summary) => println!(
            "{{\"duration_ms\":{},\"bytes\":{},\"cpu_us\":2000000,\"is_damaged\":{}}}",
            summary.duration.as_millis(),
            summary.bytes,
            summary.is_damaged
        ),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2);
        }
    }
}

fn convert(arguments: &[String]) {
    let after = |flag: &str| {
        let at = arguments.iter().position(|word| word == flag)?;
        arguments.get(at + 1)
    };
    // A video: what becomes of it is in its last line.
    if let Some(format) = after("--format") {
        let captions = after("--captions").map(|file| fs::read_to_string(file).unwrap());
        assert!(captions.is_none_or(|text| text.starts_with("WEBVTT")));
        let mut video = fs::read(&arguments[0]).unwrap();
        video.extend(format!("\n{format} {}", after("--captions").is_some()).bytes());
        fs::write(&arguments[1], video).unwrap();
        return;
    }
    assert!(fs::read(&arguments[0]).unwrap().starts_with(&[0x1a, 0x45, 0xdf, 0xa3]), "no WebM");
    assert_eq!(arguments[2], "--ffmpeg");
    if arguments[3].ends_with("broken") {
        eprintln!("no codec");
        std::process::exit(1);
    }
    if arguments[3].ends_with("stalled") {
        // Until the server ends this process, or ends itself.
        fs::write(&arguments[1], std::process::id().to_string()).unwrap();
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    }
    fs::write(&arguments[1], b"MP4 of a test").unwrap();
}
