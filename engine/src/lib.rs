//! Threads, edges and nodes around the pure conversation.

pub mod clock;
pub mod edge;
pub mod graph;
pub mod hear;
pub mod host;
pub mod keep;
mod link;
mod node;
pub mod shard;
pub mod show;
pub mod speak;
pub mod think;
pub mod thread;
pub mod transport;

#[cfg(test)]
mod tests_support;

pub use host::{Chosen, Config, Engine, Models, Timeouts};
