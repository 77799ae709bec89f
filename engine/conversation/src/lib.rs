//! One conversation between a person and an agent, as a value.
//!
//! No clock, thread, I/O or async: time is a parameter, so that a call replays byte for byte from its trace and an hour of talk is
//! tested in milliseconds. The driver (the live graph, `simulate`, `replay`, the tests) does three things: it calls
//! [`Conversation::handle`] with what happened and when, drains [`Conversation::poll`] and does what the outputs ask, and calls
//! `handle` again no later than [`Conversation::poll_timeout`] says. Text and decisions pass through here; samples and pixels never do.
//!
//! [`Conversation::handle`]: conversation::Conversation::handle
//! [`Conversation::poll`]: conversation::Conversation::poll
//! [`Conversation::poll_timeout`]: conversation::Conversation::poll_timeout

pub mod call;
pub mod event;
pub mod host;
pub mod input;
pub mod output;
pub mod spec;
pub mod time;
