//! The engine: threads, channels and stages around the pure conversation.
//!
//! A call lives on one media thread from start to end, so its state needs no lock. All other
//! threads reach it through that thread's bounded inbox. Text and decisions pass through the
//! conversation; audio samples and pixels never do.
//!
//! # The pipeline
//!
//! On a media thread every packet and frame goes through [`media_thread`] (socket, inbox, tick) →
//! `call.rs` (one conversation) → `connection.rs` (one client). The table lists the stages in the
//! order of a turn.
//!
//! | stage | files | thread | input | output | when its channel is full |
//! |---|---|---|---|---|---|
//! | UDP socket, demultiplexing | [`transport::socket`], `transport/ffi.rs`, `media_thread/datagrams.rs` | `media-N` | UDP datagrams | a datagram of one connection, by ICE ufrag or address | In: the kernel drops over its receive buffer (4 MiB requested); one step reads 4,096 datagrams, the next one follows at once. Out: what the kernel does not take at once is dropped and counted |
//! | ICE-TCP | [`transport::tcp`] | `ice-tcp` | TCP streams (RFC 4571) | datagrams, both ways | In: [`TCP`](channel::TCP), dropped and counted. Out: 8,192 datagrams and 256 KiB per client, dropped |
//! | WebRTC | `connection.rs`, [`transport::webrtc`], `transport/sdp.rs`, `transport/track.rs` | `media-N` | a datagram, the time | RTP packet, text, key frame request, bandwidth estimate, loss report | No channel: str0m is drained after each input |
//! | Jitter buffer | [`hear::jitter`] | `media-N` | Opus packets | packets in order; gaps as FEC, concealment or silence | Over 128 packets the oldest is dropped; a sender faster than 1.2 × real time, after a burst of 5 s, loses the excess. Both are counted |
//! | Decode | [`hear::decode`] | `media-N`, tick | a packet or a gap | samples, 16 kHz mono | No channel |
//! | VAD | [`hear`], [`hear::vad`], `hear/loudness.rs` | `media-N`, tick | windows of 32 ms, up to 16 calls in one batch | start, continuation and end of speech | No channel: each tick empties the windows |
//! | STT | [`hear::stt`], `models/src/stt/` | `model-stt-N` | speech with .5 s of pre-roll | interim and final transcripts | Audio: 2,048 commands per decoder (64 of them reserved for start and end of speech), then audio is left out and logged. Results: [`STAGE_EVENTS`](channel::STAGE_EVENTS) |
//! | Turn detection | [`hear::turn`], `models/src/turn/` | `model-turn-N` | audio of the turn, after .15 s of silence | P(the turn is over) | 64 requests, then one is not answered and the turn ends without it. Results: [`STAGE_EVENTS`](channel::STAGE_EVENTS) |
//! | Conversation | `call/outputs.rs`, [`conversation::conversation`] | `media-N` | `Input` and its time | `Output`: requests, playout commands, events | No channel: each input is handled and its outputs are drained at once |
//! | Knowledge search | [`think::knowledge`], `control-api/src/resources/knowledge_cache.rs` | `net` | the last user turn | up to 4 snippets, into the LLM request | No queue: the task of the generation awaits it. Results: [`STAGE_EVENTS`](channel::STAGE_EVENTS) |
//! | LLM | [`think::llm`], `models/src/llm/` | `net` | history, snippets, tools | text and tool calls, as a stream | No queue: one task per generation. Results: [`STAGE_EVENTS`](channel::STAGE_EVENTS) |
//! | Tools, guardrails | [`think::tools`], `think/guardrails.rs` | `net`; client tools: the browser | name and arguments; the user's words | result; triggered guardrail | One task per tool call; 20 s for an HTTP or client tool. Over 4 checks of guardrails in a call the oldest is cancelled. Results: [`STAGE_EVENTS`](channel::STAGE_EVENTS) |
//! | TTS | [`speak::tts`], `speak/lips.rs`, `models/src/tts/` | `model-tts-N` | text of a segment | samples at 48 kHz, phones, word timestamps | 256 texts, then the segment fails (`TtsEvent::Failed`). Results: [`STAGE_EVENTS`](channel::STAGE_EVENTS) |
//! | Playout | [`speak`], [`speak::playout`] | `media-N`, tick | samples; play, duck, hold, cancel | frames of 10 or 20 ms; the position that has left | No channel: a segment's length bounds its samples. Missing samples become silence; after a late tick at most 10 frames are sent at once, the rest is skipped. Both are counted |
//! | Encode | [`speak::encode`] | `media-N`, tick | an audio frame | an Opus packet | No channel |
//! | Visemes, pose, avatar | [`show::visemes`], [`show::idle_motion`], [`show::animator`], [`show::pose_cache`], [`show::avatars`] | `media-N`, tick | phones, playout position, agent state | a reference to an encoded VP8 frame | No channel: nothing is drawn or encoded |
//! | Video frames, pacer | [`show::frame_clock`], `show/bandwidth_estimator.rs`, `transport/vp8.rs`, `transport/pacer.rs` | `media-N` | a VP8 frame | RTP packets, at the rate of the path | Of several frames that are due only the last is sent. While packets wait in the pacer, frames that no other refers to are skipped, and the same key frame is not sent again |
//! | Data channel messages | `call/client.rs`, [`transport::client_messages`], [`transport::server_messages`], `transport/data_channel_queue.rs` | `media-N` | events; the client's messages | RTVI messages; commands | Out: over 512 KiB the oldest progress message is dropped, then the oldest essential one, and counted. In: over 20 a second (60 at once) messages are ignored |
//! | Event sink | `call/outputs.rs`, `control-api/src/events/` | `media-N`, then `net` | `EventEnvelope` | stored event, webhook | Unbounded, never waits. While the store fails or is late: 256 MiB and 600 s per call, then progress events are dropped first; each loss is counted, the end of a call is always kept |
//! | Trace | [`trace`] | `disk` | inputs and outputs of a traced call | a file for `replay` | [`TRACE`](channel::TRACE), dropped and counted |
//!
//! # Channels
//!
//! [`channel`] declares the channels between threads ([`channel::CHANNELS`]) with capacity and
//! overflow rule ([`channel::Overflow`]). [`REQUESTS`](channel::REQUESTS),
//! [`STAGE_EVENTS`](channel::STAGE_EVENTS) and [`TCP`](channel::TCP) lead into one inbox of 8,192
//! messages per media thread. Each channel counts how often it was full.
//!
//! - `REQUESTS` (offers, commands, hang-ups) rejects: a new offer gets 503, a command fails.
//! - `STAGE_EVENTS` blocks the sender for up to 200 ms, because lost text cannot be replaced. Then
//!   the message is dropped and counted. A media thread never waits ([`thread::forbid_blocking`]).
//! - `TCP` and `TRACE` (16,384) drop the new message and count it.
//!
//! # Threads
//!
//! | thread | number | runs | may not |
//! |---|---|---|---|
//! | `media-N` | one per core ([`Config::threads`]) | all of its calls: socket, str0m, jitter buffer, Opus, VAD, conversation, playout, choice of video frames ([`media_thread`]) | wait on a lock, block, do disk or DNS, log per frame |
//! | `ice-tcp` | one, where a port is configured | streams to datagrams and back ([`transport::tcp`]) | know a call |
//! | `model-KIND-N` | the models' own | STT, turn model, TTS; resampling to 48 kHz ([`models::tts::Upsampler`]) | know what a turn is |
//! | `net` pool | the binary's tokio | LLM, knowledge search, tools ([`think`]), signaling ([`engine`]) | compute for over 1 ms |
//! | `disk` | one, where calls are traced | traces ([`trace`]) | slow down any other thread |
//! | `warm-up` | one, at start only | DTLS certificate, models and VAD weights ([`engine`]) | |
//!
//! # Invariants
//!
//! - Nothing on a media thread reads a clock inside a step. A step gets `now` ([`clock`],
//!   [`media_thread::MediaThread::step`]), so a test runs in virtual time.
//! - Audio that counts as heard has left for the network. [`speak::playout`] counts its samples; no
//!   other code decides what the user heard.
//! - A stage event of a cancelled reply, or of a call that is over, is dropped on arrival.

mod call;
pub mod channel;
pub mod clock;
mod connection;
pub mod context;
pub mod engine;
pub mod hear;
pub mod latency;
pub mod load;
pub mod media_thread;
mod memory;
pub mod messages;
mod model_factory;
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

pub use context::Timeouts;
pub use engine::{CallEngine, Config};
pub use model_factory::{Models, WithWarning};
