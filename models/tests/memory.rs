//! Memory of the built-in models. It runs alone in its process, so that nothing else is measured.
#![allow(clippy::print_stdout, reason = "measured numbers, shown with --nocapture")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod common;

use crossbeam_channel::unbounded;
use models::Sink;
use models::stt::{Event, PocketSphinxConfig, PocketSphinxPool, Stt};

/// Resident memory of this process in MB (millions of bytes).
fn resident_memory_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0 / 1e6
}

#[test]
fn a_decoder_that_has_heard_a_sentence_holds_at_most_95_megabytes() {
    const DECODERS: usize = 2;
    let speech = common::synthesise(common::SENTENCES[1], "slt");
    let before = resident_memory_mb();
    let pool = PocketSphinxPool::start(PocketSphinxConfig {
        dir: common::models_dir(),
        decoders: DECODERS,
    });
    common::wait_for(|| !pool.is_loading());
    assert_eq!(pool.loaded_count(), DECODERS, "{:?}", pool.failure());
    let (sender, receiver) = unbounded();
    let mut streams: Vec<_> = (0..DECODERS)
        .map(|_| {
            let sender = sender.clone();
            pool.open(Sink::new(move |event| sender.send(event).unwrap_or_default()))
                .unwrap_or_else(|e| panic!("{e}"))
        })
        .collect();
    for stream in &mut streams {
        stream.start_speech();
        stream.push_audio(&speech);
        stream.end_speech();
    }
    let mut finals = 0;
    while finals < DECODERS {
        if let Event::Final(text) = receiver.recv_timeout(common::HANG_TIMEOUT).expect("an answer")
        {
            assert!(!text.is_empty());
            finals += 1;
        }
    }
    let each = (resident_memory_mb() - before) / DECODERS as f64;
    println!("{each:.1} MB a decoder");
    assert!((30.0..95.0).contains(&each), "{each:.1} MB a decoder");
}
