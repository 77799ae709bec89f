//! Servers that share a database: the lease of each, the end of conversations whose server has died
//! or that no client joined, and the erasure of old records.

pub(crate) mod erasure;
pub(crate) mod lease;
pub(crate) mod recovery;
