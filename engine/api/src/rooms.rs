//! Calls in LiveKit rooms.

use core::any::Any;
use core::fmt;
use std::sync::Arc;

use conversation::input::Command;

use crate::BoxFuture;
use crate::call_config::CallConfig;

/// How a call gets into its room.
#[derive(Clone)]
pub struct RoomAccess {
    /// URL of the LiveKit server: `ws`, `wss`, `http` or `https`.
    pub server_url: String,
    /// Name of the room, for logs.
    pub room: String,
    /// Makes a token of the agent. Each attempt to connect takes a new one, because calls outlive
    /// tokens.
    pub token: Arc<dyn Fn() -> String + Send + Sync>,
    /// When the call was created, in ms since the Unix epoch. If two agents of ours are in one room,
    /// the one with the later call leaves.
    pub created_unix_ms: u64,
}

impl fmt::Debug for RoomAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoomAccess").field("room", &self.room).finish_non_exhaustive()
    }
}

/// A place for a call that is about to start. Dropping it frees the place.
pub struct CallReservation(Box<dyn Any + Send>);

impl CallReservation {
    /// Wraps the engine's own mark of the place.
    #[must_use]
    pub fn new(place: impl Any + Send) -> Self {
        Self(Box::new(place))
    }

    /// The engine's mark, if it has this type.
    #[must_use]
    pub fn into_place<T: Any>(self) -> Option<T> {
        self.0.downcast().ok().map(|place| *place)
    }
}

/// A request to join a LiveKit room as an agent.
pub struct RoomOffer {
    /// The call's configuration. Ignored if the conversation is already running.
    pub config: Arc<CallConfig>,
    /// Commands received before the call started, in order. They take effect at the start.
    pub commands: Vec<Command>,
    /// The room.
    pub access: RoomAccess,
    /// The place that was reserved for the call; `None` = there must be capacity now.
    pub reservation: Option<CallReservation>,
}

/// An agent that is in its room.
pub struct RoomSession {
    /// Resolves when the agent has left the room for good.
    pub ended: BoxFuture<'static, RoomEnd>,
}

/// Why an agent is not in its room any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoomEnd {
    /// The call has ended.
    CallEnded,
    /// The room was closed or deleted, or nobody came.
    RoomClosed,
    /// The agent was removed from the room, or another participant took its identity.
    Removed,
    /// Another agent of ours serves the room.
    Superseded,
    /// The server was lost for too long, or refused the agent; in one sentence.
    Failed(String),
}
