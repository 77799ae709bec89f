//! The `net` side of calls in LiveKit rooms: the WebSocket to the server, joining, resuming, and
//! rejoining. [`crate::transport::livekit`] is the side of the media thread.

pub(crate) mod room_session;
pub(crate) mod signal_connection;
