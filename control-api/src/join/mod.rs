//! What a client uses to join a conversation: the pages for embedding, the signaling endpoints, and
//! the configuration of the call that the engine receives.

pub(crate) mod about;
mod audio_names;
pub(crate) mod audio_socket;
pub(crate) mod call_config;
pub(crate) mod embed;
mod hang_up;
pub(crate) mod livekit;
pub(crate) mod obstacle;
pub(crate) mod offers;
pub(crate) mod prompt;
pub(crate) mod relayed;
pub(crate) mod signaling;
