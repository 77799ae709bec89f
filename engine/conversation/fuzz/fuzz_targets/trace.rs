//! Bytes as the trace of a call: refused in one sentence, or replayed to a verdict.
#![no_main]

#[path = "../../tests/bytes/trace.rs"]
mod trace;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trace::replayed_or_refused(bytes));
