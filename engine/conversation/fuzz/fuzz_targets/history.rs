//! Histories that bytes choose, against the laws.
#![no_main]

#[path = "../../tests/laws/harness.rs"]
mod harness;
#[path = "../../tests/bytes/histories.rs"]
mod histories;
#[path = "../../tests/laws/laws.rs"]
mod laws;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| histories::keeps_the_laws(bytes));
