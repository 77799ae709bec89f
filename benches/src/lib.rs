//! Shared code of the benches and of the tests of promised performance.
//!
//! Time is CPU time of the working thread: on a busy machine, the wall clock also measures the
//! other programs.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

pub mod allocation;
pub mod cpu;
pub mod instructions;
pub mod recording;
pub mod simulated_call;
