//! Calls that bytes choose, against the oracle.
#![no_main]

#[allow(dead_code)] // the ordinary tests read scenario files with it, too
#[path = "../../tests/oracle/oracle.rs"]
mod oracle;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::assert_agrees(bytes));
