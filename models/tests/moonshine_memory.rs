//! Memory of Moonshine. It runs alone in its process, so that nothing else is measured.
#![allow(clippy::print_stdout, clippy::print_stderr)] // measurements, for --nocapture
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod common;

use crossbeam_channel::unbounded;
use models::Sink;
use models::stt::{Event, Moonshine, MoonshineConfig, Stt, moonshine};

/// Resident memory of this process in MB (millions of bytes).
fn resident_memory_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0 / 1e6
}

#[test]
fn moonshine_holds_at_most_150_megabytes_and_a_stream_at_most_three() {
    const STREAMS: usize = 10;
    let dir = common::models_dir();
    if let Err(why) = moonshine::check_installed(&dir) {
        return eprintln!("LEFT OUT, it proves nothing here: {why}");
    }
    let speech = common::synthesise(common::SENTENCES[3], "slt");
    // As long as a part may become with pauses: 10 s.
    let speech: Vec<i16> = speech.iter().copied().cycle().take(10 * 16_000).collect();
    let before = resident_memory_mb();
    let stt = Moonshine::start(MoonshineConfig { dir, workers: 1 }).unwrap();
    common::wait_for(|| !stt.is_loading());
    assert_eq!(stt.failure(), None);
    let loaded = resident_memory_mb() - before;
    // The first utterance takes the worker's memory for its length.
    transcribe_in_streams(&stt, 1, &speech);
    let one = resident_memory_mb() - before;
    transcribe_in_streams(&stt, STREAMS, &speech);
    let all = resident_memory_mb() - before;
    println!("{loaded:.1} MB loaded, {one:.1} MB after a stream, {all:.1} MB after {STREAMS} more");
    assert!((40.0..150.0).contains(&loaded) && one < 220.0, "{loaded:.1} MB, then {one:.1} MB");
    assert!(all - one < 3.0 * STREAMS as f64, "{one:.1} MB, then {all:.1} MB");
}

/// The same speech in several streams at a time.
fn transcribe_in_streams(stt: &Moonshine, count: usize, speech: &[i16]) {
    let (sender, receiver) = unbounded();
    let mut streams: Vec<_> = (0..count)
        .map(|_| {
            let sender = sender.clone();
            stt.open(Sink::new(move |event| sender.send(event).unwrap_or_default()))
                .unwrap_or_else(|e| panic!("{e}"))
        })
        .collect();
    for stream in &mut streams {
        stream.start_speech();
        stream.push_audio(speech);
        stream.end_speech();
    }
    let mut finals = 0;
    while finals < count {
        if let Event::Final(text) = receiver.recv_timeout(common::HANG_TIMEOUT).expect("an answer")
        {
            assert!(!text.is_empty());
            finals += 1;
        }
    }
}
