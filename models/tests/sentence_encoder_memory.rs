//! Memory of the sentence encoder. It runs alone in its process, so that nothing else is measured.
#![allow(clippy::print_stdout, reason = "measured numbers, shown with --nocapture")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod common;

use models::sentence_encoder::SentenceEncoder;

#[test]
fn the_sentence_encoder_holds_at_most_32_megabytes() {
    let dir = common::models_dir();
    let before = common::resident_memory_mb();
    let encoder = SentenceEncoder::load(&dir).unwrap_or_else(|error| panic!("{error}"));
    let loaded = common::resident_memory_mb() - before;
    assert_eq!(encoder.encode(&"word ".repeat(200)).len(), 384);
    let used = common::resident_memory_mb() - before;
    println!("{loaded:.1} MB loaded, {used:.1} MB after a long text");
    assert!((20.0..32.0).contains(&loaded) && used < 35.0, "{loaded:.1} MB, then {used:.1} MB");
}
