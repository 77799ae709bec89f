//! The control plane over a real socket, with a store of its own and an engine that is played by the test.

mod agents;
mod contract;
mod conversations;
mod crash;
mod doors;
mod drawn;
mod erasing;
mod keys;
mod kit;
mod knowledge;
mod large;
mod lifecycle;
mod limits;
mod mcp;
mod meaning;
mod outage;
mod prompt;
mod receivers;
mod routes;
mod servers;
mod session;
mod slow;
mod table;
mod tools;
mod turns;
mod webhooks;
