//! Bytes as a scenario file: refused in one sentence, or played to its end.
#![no_main]

#[path = "../../tests/bytes/scenario.rs"]
mod scenario;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| scenario::played_or_refused(bytes));
