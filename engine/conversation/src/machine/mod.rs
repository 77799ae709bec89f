//! The state machine of one conversation: [`conversation::Conversation`] and the rules of
//! turn-taking, one file each.

pub(crate) mod address_words;
pub(crate) mod addressing;
pub(crate) mod barge_in;
pub mod conversation;
pub(crate) mod departures;
pub(crate) mod endpointing;
pub(crate) mod floor;
pub(crate) mod generated_text;
pub(crate) mod guardrail;
pub(crate) mod heard_text;
pub(crate) mod history;
pub(crate) mod lifecycle;
pub(crate) mod model_decision;
pub(crate) mod open_words;
pub(crate) mod opening;
pub(crate) mod participation;
pub(crate) mod people;
pub mod phrase;
pub(crate) mod preemptive;
pub(crate) mod reply;
pub(crate) mod speech;
pub(crate) mod think;
pub mod timers;
pub(crate) mod tools;
pub(crate) mod voice;
