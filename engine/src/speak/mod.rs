//! From words to packets of the agent's voice.

pub mod encode;
