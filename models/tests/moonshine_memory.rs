//! Memory of Moonshine. It runs alone in its process, so that nothing else is measured.
#![allow(clippy::print_stdout, clippy::print_stderr)] // measurements, for --nocapture
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod common;

use models::stt::{Moonshine, MoonshineConfig, moonshine};

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
    let before = common::resident_memory_mb();
    let stt = Moonshine::start(MoonshineConfig { dir, workers: 1 }).unwrap();
    common::wait_for(|| !stt.is_loading());
    assert_eq!(stt.failure(), None);
    let loaded = common::resident_memory_mb() - before;
    // The first utterances take the worker's memory for their length.
    for _ in 0..3 {
        common::transcribe_in_streams(&stt, 1, &speech);
    }
    let one = common::resident_memory_mb() - before;
    common::transcribe_in_streams(&stt, STREAMS, &speech);
    let all = common::resident_memory_mb() - before;
    println!(
        "{loaded:.1} MB loaded, {one:.1} MB after three streams, {all:.1} MB after {STREAMS} more"
    );
    assert!((40.0..150.0).contains(&loaded) && one < 220.0, "{loaded:.1} MB, then {one:.1} MB");
    assert!(all - one < 3.0 * STREAMS as f64, "{one:.1} MB, then {all:.1} MB");
}
