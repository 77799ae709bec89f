//! Event storage: events arrive from the media threads, which never wait, and one task writes them
//! in batches of 20 ms.
//!
//! An event, its webhook and the conversation's status are written in one transaction, so they are
//! stored together or not at all. What an outage drops is counted ([`backlog`]).

mod append;
mod backlog;
pub(crate) mod ending;
mod event_source;
mod projection;
pub(crate) mod record;
#[cfg(test)]
mod write_load_tests;
mod writer;

pub(crate) use self::append::{Appended, append, append_in};
pub(crate) use self::writer::Writer;
