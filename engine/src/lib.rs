//! Threads, edges and nodes around the pure conversation.
//!
//! # Threads
//!
//! | thread | number | runs | may not |
//! |---|---|---|---|
//! | `media-N` | one per core ([`SocketConfig::threads`]) | all of its calls: socket, str0m, jitter buffer, Opus, speech detector, conversation, playout, choice of frames ([`shard`]) | wait on a lock, block, do disk or DNS, log per frame |
//! | `ice-tcp` | one, where a port is given | streams to datagrams and back ([`transport::tcp`]) | know a call |
//! | models' own | theirs | speech to text, the turn model, text to speech; resampling to 48 kHz ([`speak::tts`]) | know what a turn is |
//! | the net pool | the binary's tokio | language models, the search before them, tools, the doors ([`think`], [`host`]) | compute for over 1 ms |
//! | `disk` | one, where calls are traced | traces ([`trace`]) | push back on anyone |
//! | `warm-up` | for a moment | certificate and weights, behind the start | |
//!
//! A call lives on one media thread from birth to end, so its state needs no lock; all else reaches it through that thread's bounded inbox
//! ([`messages::CHANNELS`] says what happens where it is full). Text and decisions pass through the conversation; samples and pixels never do.
//!
//! # An audio frame's path
//!
//! `transport::webrtc → hear::jitter → hear::decode → hear::vad, hear::stt, hear::turn` → *conversation* → `think::llm` → *conversation* →
//! `speak::tts → speak::playout → speak::encode`, and `show` beside it, → `transport::webrtc`.
//!
//! # Invariants
//!
//! - Nothing on a media thread reads a clock: a step is given `now` ([`clock`], [`media_thread::MediaThread::step`]), so a test runs in virtual time.
//! - What is told as heard has left for the network: [`speak::playout`] counts samples, and nothing else says what was heard.
//! - News of what was cancelled, or of a call that is over, finds nobody and is dropped where it arrives.

mod call;
pub mod channel;
pub mod clock;
mod connection;
pub mod engine;
pub mod hear;
pub mod latency;
pub mod load;
pub mod media_thread;
mod memory;
pub mod messages;
pub mod show;
pub mod speak;
pub mod stats;
pub mod think;
pub mod thread;
mod token_bucket;
pub mod trace;
pub mod transport;

#[cfg(test)]
mod test_support;

pub use engine::{CallEngine, Config, Models, Timeouts, WithWarning};
