//! The file of a call that runs: packets as they were sent and received.
//!
//! A cluster is written when it is complete. A file that ends at any byte is valid up to its last
//! complete cluster.

mod clusters;
mod reader;
mod writer;

pub use reader::{CaptureReader, Header, ReadError};
pub use writer::CaptureWriter;

#[cfg(test)]
mod tests;
