//! Threads, edges and nodes around the pure conversation.

pub mod transport;
