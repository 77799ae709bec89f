//! Threads, edges and nodes around the pure conversation.

pub mod hear;
pub mod show;
pub mod speak;
pub mod transport;
