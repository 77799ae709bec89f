//! The control plane over a real socket, with a store of its own and an engine that is controlled
//! by the test.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod agents;
mod backgrounds;
mod commit_crash;
mod contract;
mod conversations;
mod crash;
mod credentials;
mod custom_avatars;
mod embeddings;
mod erasure;
mod fairness;
mod harness;
mod interface_rows;
mod keys;
mod knowledge;
mod large;
mod lifecycle;
mod limits;
mod lists;
mod lost_commit;
mod mcp;
mod object_storage;
mod outage;
mod ownership;
mod pages;
mod panics;
mod photo_avatars;
mod prompt;
mod providers;
mod recordings;
mod recordings_crash;
mod recordings_faults;
mod relay;
mod renewals;
mod routes;
mod s3_server;
mod sandbox;
mod scopes;
mod servers;
mod session;
mod signaling;
mod slow_clients;
mod tools;
mod turn_settings;
mod variants;
mod videos;
mod videos_crash;
mod videos_faults;
mod videos_requests;
mod videos_storage;
mod webhook_receivers;
mod webhooks;
