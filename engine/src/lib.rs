//! The engine: threads, channels and stages around the pure conversation.
//!
//! A call lives on one media thread from start to end, so its state needs no lock. All other
//! threads reach it through that thread's bounded inbox. Text and decisions pass through the
//! conversation; audio samples and pixels never do.
//!
//! # The pipeline
//!
//! On a media thread, every packet and frame passes through [`media_thread`] (socket, inbox, tick)
//! → `call.rs` (one conversation) → `connection.rs` (one client). The table lists the stages in the
//! order of a turn. ARCHITECTURE.md has the table too.
//!
//! | stage | files | thread | input | output | when its channel is full |
//! |---|---|---|---|---|---|
//! | Signaling | `control-api/src/join/signaling.rs`, `engine/offers.rs`, `engine/pending_offers.rs`, `engine/vendor_connections.rs`, `media_thread/offers.rs`, `transport/sdp.rs` | `net`, then `media-N` | a session token, an SDP offer | an SDP answer; at the client's first STUN check, connections to vendors; when it has connected, a call | [`REQUESTS`](channel::REQUESTS): the offer gets 503. A step handles at most one offer. Offers that have not connected: 16 per network, 32 per agent, 256 in all; the newest evicts the oldest |
//! | UDP socket, demultiplexing | [`transport::socket`], `transport/ffi.rs`, `media_thread/datagrams.rs` | `media-N` | UDP datagrams | a datagram of one connection, by ICE ufrag or address | In: the kernel drops datagrams over its receive buffer (4 MiB requested). One step reads 4,096 datagrams, or for 5 ms; the next step follows at once. Datagrams of one connection over 2,000 per second (2,048 at once) are dropped unread. Out: datagrams that the kernel does not accept at once are dropped and counted |
//! | ICE-TCP | [`transport::tcp`], `transport/tcp_framing.rs` | `ice-tcp` | TCP streams (RFC 4571) | datagrams, both ways | In: [`TCP`](channel::TCP), a queue of its own; datagrams are dropped and counted. One step reads 1,024 of them, or until 3.75 ms. Connections take turns of 64 frames; one that exceeds 2,000 frames per second is not read for a while. Out: 8,192 datagrams and 256 KiB per client; further ones are dropped |
//! | WebRTC | `connection.rs`, [`transport::webrtc`], `transport/sdp.rs`, `transport/track.rs` | `media-N` | a datagram, the time | RTP packet, text, key frame request, bandwidth estimate, loss report | No channel: str0m is drained after each input |
//! | Audio line | `engine/audio_line.rs`, [`transport::audio_line`], `transport/resampler.rs` | `net`, then `media-N` | samples of a service | samples, 16 kHz and 48 kHz | In: samples beyond .5 s, the oldest first; they are counted. Out: a client that takes nothing for .6 s hears nothing, and playout waits |
//! | LiveKit room | `engine/rooms.rs`, `livekit/`, [`transport::livekit`], `media_thread/rooms.rs` | `net`, then `media-N` | signals of the server, datagrams of a socket per room | the mix of all voices, commands, captions | Signals wait up to 1 s for room in the inbox; then the agent joins again. Requests to the server: 256, further ones are dropped. Data packets: 512 KiB, as for the data channel |
//! | Jitter buffer | [`hear::jitter`] | `media-N` | Opus packets | packets in order; gaps as FEC, concealment or silence | Over 128 packets, the oldest is dropped; only tests read this counter. Packets over 1.2 × real time, after a burst of 5 s, are dropped and counted |
//! | Decode | [`hear::decode`] | `media-N`, tick | a packet or a gap | samples, 16 kHz mono | No channel |
//! | Own voice | [`hear::own_voice`] | `media-N`, tick; only with several people | sent and heard samples | silence instead of the agent's own voice | No channel |
//! | VAD | [`hear`], [`hear::vad`], `hear/loudness.rs` | `media-N`, tick | windows of 32 ms; a batch has up to 16 calls | start, continuation and end of speech | No channel: each tick empties the windows |
//! | STT | [`hear::stt`], `models/src/stt/` | `model-stt-N` | speech with .5 s of pre-roll | interim and final transcripts | Audio: 2,048 commands per decoder, of which 64 are reserved for start and end of speech. Further audio is dropped and logged. Results: [`STAGE_EVENTS`](channel::STAGE_EVENTS) |
//! | Turn detection | [`hear::turn_detector`], `models/src/turn/` | `model-turn-N` | audio of the turn, after .15 s of silence | P(the turn is over) | 64 requests. A further request gets no answer, and the turn ends without it. Results: [`STAGE_EVENTS`](channel::STAGE_EVENTS) |
//! | Conversation | `call/outputs.rs`, [`conversation`] | `media-N` | `Input` and its time | `Output`: requests, playout commands, events | No channel: the outputs of each input are drained at once |
//! | Knowledge search | [`think::knowledge`], `control-api/src/resources/knowledge_cache.rs` | `net` | the last user turn | up to 4 snippets for the LLM request, or up to 48 passages for the built-in answerer | No queue: the task of the generation awaits the search. Results: [`STAGE_EVENTS`](channel::STAGE_EVENTS) |
//! | LLM | [`think::llm`], `models/src/llm/` | `net` | history, snippets, tools | text and tool calls, as a stream | No queue: one task per generation. Results: [`STAGE_EVENTS`](channel::STAGE_EVENTS) |
//! | Tools, guardrails | [`think::tools`], `think/guardrails.rs` | `net`; client tools: the browser | name and arguments; the user's words | result; triggered guardrail | One task per tool call; an HTTP or client tool has 20 s. Over 4 guardrail checks in a call, the oldest is cancelled. Results: [`STAGE_EVENTS`](channel::STAGE_EVENTS) |
//! | TTS | [`speak::tts`], `speak/lips.rs`, `models/src/tts/` | `model-tts-N` | text of a segment | samples at 48 kHz, phones, word timestamps | 256 texts. The segment of a further text fails (`TtsEvent::Failed`). Results: [`STAGE_EVENTS`](channel::STAGE_EVENTS) |
//! | Playout | [`speak`], [`speak::playout`] | `media-N`, tick | samples; play, duck, hold, cancel | frames of 10 or 20 ms; the playout position | No channel: a segment's length bounds its samples. Missing samples become silence. After a late tick, at most 10 frames are sent at once and the rest is skipped. Both are counted |
//! | Encode | [`speak::encode`] | `media-N`, tick | an audio frame | an Opus packet | No channel |
//! | Visemes, pose, avatar | [`show::visemes`], [`show::animator`], [`show::pose_cache`], [`show::avatars`] | `media-N`, tick | phones, playout position, agent state | a reference to an encoded VP8 frame | No channel: the stage draws and encodes nothing |
//! | Video frames, pacer | [`show::frame_clock`], `show/bandwidth_estimator.rs`, `transport/vp8.rs`, `transport/pacer.rs` | `media-N` | a VP8 frame | RTP packets, at the rate of the path | If several frames are due, only the last is sent. While packets wait in the pacer, frames that no other frame refers to are skipped, and the same key frame is not sent again |
//! | Data channel messages | `call/client.rs`, [`transport::client_messages`], [`transport::server_messages`], `transport/data_channel_queue.rs` | `media-N` | events; the client's messages | RTVI messages; commands | Out: over 512 KiB, the oldest progress message is dropped, then the oldest essential one; only tests read the counter. In: messages over 20 per second (60 at once) are ignored |
//! | Event sink | `call/outputs.rs`, `control-api/src/events/` | `media-N`, then `net` | `EventEnvelope` | stored event, webhook | Unbounded; the sender never waits. While the store fails or is late: 256 MiB in total, and 600 s of one call. Beyond that, progress events are dropped first and each loss is counted. The end of a call is always stored |
//! | Trace | [`trace`] | `disk` | inputs and outputs of a traced call | a file for `replay` | [`TRACE`](channel::TRACE); lines are dropped and counted |
//! | Recorder | `call/recording.rs`, [`recorder`] | `media-N`, then `recorder` | packets as sent and received | a file of three tracks | [`RECORDER`](channel::RECORDER); when it is full, the recording ends |
//!
//! # Channels
//!
//! [`channel`] declares the channels between threads ([`channel::CHANNELS`]) with capacity and
//! overflow rule ([`channel::Overflow`]). [`REQUESTS`](channel::REQUESTS) and
//! [`STAGE_EVENTS`](channel::STAGE_EVENTS) lead into one inbox of 8,192 messages per media thread.
//! [`TCP`](channel::TCP) is a second queue of 4,096 datagrams, so that datagrams do not displace
//! messages. Each channel counts how often it was full.
//!
//! - `REQUESTS` (offers, commands, hang-ups) rejects: a new offer gets 503, a command fails.
//! - `STAGE_EVENTS` blocks the sender for up to 200 ms, because lost text cannot be replaced. Then
//!   the message is dropped and counted. A media thread never blocks ([`thread::forbid_blocking`]).
//! - `TCP` and `TRACE` (16,384) drop the new message and count it. So does `RECORDER` (20,480), and
//!   the call ends its recording.
//!
//! # Threads
//!
//! | thread | number | runs | may not |
//! |---|---|---|---|
//! | `media-N` | one per core, or [`Config::threads`] | the hot path of its calls: socket, str0m, jitter buffer, Opus, VAD, conversation, playout, choice of the video frame ([`media_thread`]) | wait on a lock, block, do disk or DNS, log per frame |
//! | `ice-tcp` | one, if a TCP port is configured | TCP streams to datagrams and back ([`transport::tcp`]) | access a call |
//! | `model-KIND-N` | the models' own | STT, turn model, TTS; resampling to 48 kHz ([`models::tts::Upsampler`]) | decide turns |
//! | `net` | the binary's tokio pool | LLM, knowledge search, tools ([`think`]), signaling ([`engine`]) | compute over 1 ms |
//! | `disk` | one, if calls can be traced | traces ([`trace`]) | slow down any other thread |
//! | `recorder` | one, if calls can be recorded | recordings ([`recorder`]) | slow down any other thread |
//! | `warm-up` | one, at start only | DTLS certificate, models and VAD weights ([`engine`]) | |
//!
//! tokio's blocking pool and the threads of SQLite serve the control plane. ARCHITECTURE.md lists
//! them.
//!
//! # Invariants
//!
//! - Nothing on a media thread reads a clock inside a step. A step gets `now` ([`clock`],
//!   [`media_thread::MediaThread::step`]), so a test runs in virtual time. The one exception: a
//!   step ends its reading of input by a clock, which it gets too
//!   ([`media_thread::MediaThread::step_with_clock`]).
//! - Audio that counts as heard has left for the network. [`speak::playout`] counts its samples; no
//!   other code decides what the user heard.
//! - A stage event of a cancelled reply, or of a call that is over, is dropped on arrival. Only what
//!   it reports as used is counted.

mod call;
pub mod channel;
pub mod clock;
mod connection;
pub mod context;
pub mod cpu_load;
pub mod engine;
pub mod hear;
pub mod latency;
mod livekit;
pub mod media_thread;
mod memory;
pub mod messages;
mod model_factory;
pub mod recorder;
pub mod show;
pub mod speak;
pub mod stats;
pub mod think;
pub mod thread;
mod token_bucket;
pub mod trace;
pub mod transport;
mod usage;

#[cfg(test)]
mod test_support;

pub use call::recording::CallRecording;
pub use context::Timeouts;
pub use engine::{CallEngine, Config, MediaAddresses};
pub use model_factory::{Models, WithWarning};
