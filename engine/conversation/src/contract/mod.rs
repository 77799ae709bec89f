//! What goes into the state machine and what comes out of it: inputs, outputs, events, settings.
//! Plain data without rules.

pub mod direction;
pub mod event;
pub mod id;
pub mod input;
pub mod meeting_status;
pub mod output;
pub mod participation;
pub mod participation_settings;
pub mod providers;
pub mod setting_error;
pub mod settings;
pub mod spec;
pub(crate) mod stop_words;
pub mod time;
pub mod view;
