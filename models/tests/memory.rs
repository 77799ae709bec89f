//! Memory of the built-in models. It runs alone in its process, so that nothing else is measured.
#![allow(clippy::print_stdout, reason = "measured numbers, shown with --nocapture")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod common;

use models::stt::{PocketSphinxConfig, PocketSphinxPool};

#[test]
fn a_decoder_that_has_heard_a_sentence_holds_at_most_95_megabytes() {
    const DECODERS: usize = 2;
    let speech = common::synthesise(common::SENTENCES[1], "slt");
    let before = common::resident_memory_mb();
    let pool = PocketSphinxPool::start(PocketSphinxConfig {
        dir: common::models_dir(),
        decoders: DECODERS,
    });
    common::wait_for(|| !pool.is_loading());
    assert_eq!(pool.loaded_count(), DECODERS, "{:?}", pool.failure());
    common::transcribe_in_streams(&pool, DECODERS, &speech);
    let each = (common::resident_memory_mb() - before) / DECODERS as f64;
    println!("{each:.1} MB a decoder");
    assert!((30.0..95.0).contains(&each), "{each:.1} MB a decoder");
}
