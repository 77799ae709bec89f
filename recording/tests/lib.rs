//! Parts of the tests of recordings: a long call, and the reader of libwebm.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

pub mod call;
pub mod libwebm;
