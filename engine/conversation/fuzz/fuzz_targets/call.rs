//! Calls that bytes choose, against the oracle.
#![no_main]

#[path = "../../tests/oracle/oracle.rs"]
mod oracle;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracle::agrees(bytes));
