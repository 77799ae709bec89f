//! The control plane over a real socket, with a store of its own and an engine that is played by the test.

mod agents;
mod conversations;
mod doors;
mod keys;
mod kit;
mod knowledge;
mod lifecycle;
mod limits;
mod slow;
mod tools;
mod webhooks;
