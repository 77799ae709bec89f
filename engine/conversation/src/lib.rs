//! One conversation between a person and an agent, as a value.
//!
//! No clock, thread, I/O or async: time is a parameter, so that a call replays byte for byte from its trace and an hour of talk is
//! tested in milliseconds. The driver (the live graph, `simulate`, `replay`, the tests) does three things: it calls
//! [`Conversation::handle`] with what happened and when, drains [`Conversation::poll`] and does what the outputs ask, and calls
//! `handle` again no later than [`Conversation::poll_timeout`] says. Text and decisions pass through here; samples and pixels never do.
//!
//! # The driver's side
//!
//! - Drain [`Conversation::poll`] after every `handle`, and answer what can be answered at once before any other input.
//! - [`Output::Play`] permits a piece to sound: at once, or right behind the piece that sounds. The first sample is reported by
//!   [`PlayoutEvent::Started`], the last by `Finished`, and the position at least every 100 ms by `Progress`; between two reports the
//!   conversation counts on by itself, so that a voice that is late must be reported by `Stalled` at once. Samples that are not there
//!   yet are waited for: a piece is `Finished` only after its [`TtsEvent::End`].
//! - [`Output::Hold`] pauses playout and is answered at once by `Progress(position)`; [`Output::Cancel`] ends everything of an epoch, TTS and
//!   playout, and needs no answer. Playout also forgets that it was ducked: [`Output::Unduck`] is sent where it matters.
//! - [`TtsEvent::FirstAudio`] = the first samples are there; `End` = the length of the piece is known. Before that, heard words are counted
//!   from word times alone: what cannot be judged was not heard.
//! - While the detector hears the user, [`Input::SpeechContinued`] is told with each window over the threshold: speech without trailing
//!   silence is what holds the agent. An interim [`Input::Transcript`] replaces the one before it.
//! - Asked for a turn's end ([`Output::RequestTurnProbability`]), a turn model may answer until the commit; later answers and no answer change nothing.
//! - Stale news (of a cancelled epoch, an unknown piece or call) is ignored, in any order.
//!
//! Written down, its inputs and outputs are a trace ([`trace`]), which [`replay`] plays again and compares.
//!
//! [`Output::Play`]: output::Output::Play
//! [`Output::Hold`]: output::Output::Hold
//! [`Output::Cancel`]: output::Output::Cancel
//! [`Output::Unduck`]: output::Output::Unduck
//! [`Output::RequestTurnProbability`]: output::Output::RequestTurnProbability
//! [`PlayoutEvent::Started`]: input::PlayoutEvent::Started
//! [`TtsEvent::FirstAudio`]: input::TtsEvent::FirstAudio
//! [`TtsEvent::End`]: input::TtsEvent::End
//! [`Input::SpeechContinued`]: input::Input::SpeechContinued
//! [`Input::Transcript`]: input::Input::Transcript
//! [`Conversation::handle`]: conversation::Conversation::handle
//! [`Conversation::poll`]: conversation::Conversation::poll
//! [`Conversation::poll_timeout`]: conversation::Conversation::poll_timeout

mod barge_in;
pub mod call_config;
pub mod conversation;
mod endpoint;
pub mod engine;
pub mod event;
mod floor;
mod heard_text;
mod history;
pub mod input;
mod lifecycle;
pub mod metrics;
pub mod output;
pub mod phrase;
pub mod replay;
mod reply;
mod report;
mod scenario;
mod scenario_fields;
mod scripted_models;
pub mod settings;
pub mod simulate;
pub mod spec;
mod speech;
mod stop_words;
mod strict_json;
mod think;
pub mod time;
pub mod timers;
mod tools;
pub mod trace;
pub mod view;
mod voice;
