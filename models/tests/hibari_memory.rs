//! Memory of the voice Hibari. It runs alone in its process, so that nothing else is measured.
#![allow(clippy::print_stdout)] // measurements, for --nocapture
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod common;
#[path = "common/hibari.rs"]
mod voice;

use models::tts::Event;
use voice::{load, request, speak};

#[test]
fn hibari_holds_at_most_100_megabytes_whatever_it_speaks() {
    let before = common::resident_memory_mb();
    let voice = load(1);
    speak(&voice, "Hello.", &[]);
    let loaded = common::resident_memory_mb() - before;
    let text = "Please read this rather long sentence aloud, as well as you can, to its very end. ";
    speak(&voice, text, &[]);
    let once = common::resident_memory_mb() - before;
    // Its audio is dropped as it comes.
    let (_handle, events) = request(&voice, &text.repeat(50), &[]);
    assert!(events.iter().any(|event| matches!(event, Event::End)));
    let often = common::resident_memory_mb() - before;
    println!("{loaded:.1} MB loaded, {once:.1} MB after a sentence, {often:.1} MB after fifty");
    assert!(loaded < 100.0 && often < 130.0);
    assert!(often - once < 20.0, "{once:.1} MB, then {often:.1} MB");
}
