//! The control plane over a real socket, with a store of its own and an engine that is controlled
//! by the test.

mod agents;
mod contract;
mod conversations;
mod crash;
mod doors;
mod drawn;
mod erasing;
mod fairness;
mod keys;
mod kit;
mod knowledge;
mod large;
mod lifecycle;
mod limits;
mod lost_commit;
mod mcp;
mod meaning;
mod outage;
mod panics;
mod prompt;
mod receivers;
mod routes;
mod sandbox;
mod scopes;
mod servers;
mod session;
mod slow;
mod table;
mod tools;
mod turns;
mod webhooks;
