//! LiveKit: the worker that takes jobs, and rooms whose job was lost. [`crate::state::livekit`] has
//! what these share with handlers. The engine joins the rooms.
//!
//! | file | |
//! |---|---|
//! | `worker` | registers with the dispatch of LiveKit, answers its requests |
//! | `job` | a job's metadata, its conversation and its call |
//! | `rescue` | rooms whose job LiveKit has lost |

pub(crate) mod job;
pub(crate) mod rescue;
pub(crate) mod worker;
