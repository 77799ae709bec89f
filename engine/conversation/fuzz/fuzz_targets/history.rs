//! Histories that bytes choose, against the laws.
#![no_main]

#[path = "../../tests/bytes/bodies.rs"]
mod bodies;
#[path = "../../tests/laws/laws.rs"]
mod laws;
#[path = "../../tests/laws/world.rs"]
mod world;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::history(bytes));
