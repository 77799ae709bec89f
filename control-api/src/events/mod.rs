//! Event storage: events arrive from the media threads, which never wait, and one task writes them
//! in batches of a few milliseconds.
//!
//! The consequences of an event are written in the same transaction: the webhook that must be sent,
//! and the conversation's status. Every emitted event is therefore stored, and every stored event
//! is emitted.

mod backlog;
pub(crate) mod ending;
mod inbox;
mod projection;
pub(crate) mod record;
mod writer;

pub(crate) use self::projection::append;
pub(crate) use self::writer::Writer;
