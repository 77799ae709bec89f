//! Servers that share a database: the lease of each, the end of conversations whose server has died
//! or that no client joined, the erasure of old records, and requests of other servers.

pub(crate) mod erasure;
pub(crate) mod failure_detector;
pub(crate) mod failure_log;
pub(crate) mod lease;
pub(crate) mod pooler;
mod presence;
pub(crate) mod recovery;
pub(crate) mod relay_task;
pub(crate) mod singleton;
