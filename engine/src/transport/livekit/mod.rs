//! A participant of a LiveKit room, on the protocol of `/rtc/v1`: one peer connection, and the client
//! makes all offers.
//!
//! [`room_peer`] joins the parts. It holds no socket, thread or clock. `engine/rooms` joins the room
//! and carries signals between the server's WebSocket and the media thread.
//!
//! | file | |
//! |---|---|
//! | [`room_peer`] | the participant: one str0m connection and all that follows from signals and data |
//! | `negotiation` | offers, answers, media sections |
//! | `people` | who is in the room, and their audio tracks |
//! | `speakers` | who is reported to speak |
//! | `audio` | one jitter buffer and decoder per voice; the active speaker; the mix |
//! | `data_channels` | data packets in both directions |
//! | `text_streams` | text streams that arrive in parts |
//! | `captions` | the events of a call as captions of both sides, and the agent's state |
//! | `room_socket` | the UDP socket of one participant |

mod audio;
mod captions;
mod congestion;
mod data_channels;
mod negotiation;
mod people;
pub mod room_peer;
pub mod room_socket;
mod speakers;
mod speech_level;
mod text_streams;

#[cfg(test)]
mod tests;

use std::time::Instant;

use conversation::input::Command;
use engine_api::RoomEnd;

/// Topic of data packets with our own messages: JSON as on the data channel of a call.
const MESSAGE_TOPIC: &str = "visavis";
/// Topic of the text streams that people type.
const CHAT_TOPIC: &str = "lk.chat";
/// Topic of captions.
const CAPTION_TOPIC: &str = "lk.transcription";
/// Attribute of the agent's participant: what it does.
const STATE_ATTRIBUTE: &str = "lk.agent.state";
/// Attribute of an agent's participant, set by its token: the name by which it gets its jobs.
const AGENT_NAME_ATTRIBUTE: &str = "lk.agent_name";
/// Attribute of the agent's participant: when its call was created, in ms since the Unix epoch. Of two
/// agents of ours in a room, the one with the later call leaves.
pub const CREATED_ATTRIBUTE: &str = "visavis.created";

/// What happened in a room, for its call.
#[derive(Debug)]
pub enum RoomEvent {
    /// The number of people that the agent hears has changed.
    CallersChanged {
        /// The new number.
        count: u32,
    },
    /// A person left, and others are there. Who left as the last one is told at the end of the call
    /// ([`room_peer::RoomPeer::take_last_to_leave`]).
    CallerLeft {
        /// Identity in the room.
        identity: String,
    },
    /// A person started or stopped speaking.
    Speaker {
        /// Name, or identity without one: one visible line.
        name: String,
        /// Whether the person started.
        is_speaking: bool,
        /// When.
        at: Instant,
    },
    /// A person asks for something.
    Request(RoomCommand),
    /// The room has ended for the agent.
    Closed(RoomEnd),
}

/// A command from a room, and to whom its outcome goes.
#[derive(Debug)]
pub struct RoomCommand {
    /// The command.
    pub command: Command,
    /// Who asked.
    pub origin: RequestOrigin,
}

/// How a person asked for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOrigin {
    /// By a message of the chat.
    Chat,
    /// By a remote procedure call.
    Rpc {
        /// Identity of the caller.
        caller: String,
        /// Id of the request.
        request_id: String,
    },
}
