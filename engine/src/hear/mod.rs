//! From packets of the user's voice to words.

pub mod decode;
pub mod jitter;
