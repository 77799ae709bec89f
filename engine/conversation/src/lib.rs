//! Conversation engine: one conversation between a user and an agent, as a deterministic state
//! machine.
//!
//! The crate contains no clock, thread, I/O or async code. Time is a parameter. A call therefore
//! replays byte for byte from its trace, and tests run an hour of conversation in milliseconds.
//! Text and decisions pass through this crate; audio samples and pixels never do.
//!
//! The driver is the live engine, `simulate`, `replay` or a test. It does three things:
//!
//! - It calls [`Conversation::handle`] with each input and its time.
//! - It drains [`Conversation::poll`] and performs the outputs.
//! - It calls `handle` again no later than [`Conversation::poll_timeout`] says.
//!
//! # The driver's side
//!
//! - The driver drains [`Conversation::poll`] after every `handle`. Immediate answers to the
//!   outputs are sent before any other input.
//! - [`Output::Play`] permits a segment to play: at once, or directly after the playing one.
//!   Playout reports the first sample by [`PlayoutEvent::Started`], the last one by `Finished`, and
//!   the position at least every 100 ms by `Progress`. Between two reports the conversation
//!   extrapolates the position. A TTS underrun must therefore be reported by `Stalled` at once.
//!   Playout waits for late samples: a segment is `Finished` only after its [`TtsEvent::End`].
//! - [`Output::Hold`] pauses playout and is answered at once by `Progress(position)`.
//! - [`Output::Cancel`] ends the TTS and playout of an epoch, and needs no answer. It also ends
//!   ducking in playout. The conversation still sends [`Output::Unduck`] when its own state
//!   requires it.
//! - [`TtsEvent::FirstAudio`] means that the first samples are available. `End` means that the
//!   segment's duration is known. Before `End`, only word timestamps determine the heard words.
//!   Words without an estimate do not count as heard.
//! - While the VAD reports speech, [`Input::SpeechContinued`] is sent with each window over the
//!   threshold. The hold decision measures speech without trailing silence.
//! - An interim [`Input::Transcript`] replaces the previous one.
//! - After [`Output::RequestTurnProbability`], the turn model may answer until the commit. A later
//!   or missing answer changes nothing.
//! - Stale inputs are ignored in any order: those of a cancelled epoch, an unknown segment or an
//!   unknown tool call.
//!
//! The recorded inputs and outputs form a trace ([`trace`]). [`replay`] runs a trace again and
//! compares the outputs.
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

pub mod contract;
pub mod machine;
pub mod script;
pub mod simulation;
pub mod visible_text;
mod words;

pub use contract::{
    direction, event, id, input, output, participation, providers, settings, spec, time, view,
};
pub use machine::{conversation, phrase, timers};
pub use simulation::{replay, simulate, trace};
