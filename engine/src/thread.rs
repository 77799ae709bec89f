//! The only place that starts a thread.

#![allow(clippy::disallowed_methods)] // here they are allowed

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread under a name of at most 15 bytes (what Linux shows of it).
///
/// # Errors
/// The system has no thread left.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    debug_assert!(name.len() <= 15, "Linux cuts {name}");
    Builder::new().name(name.to_owned()).spawn(run)
}

/// How many threads the machine runs at once.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
