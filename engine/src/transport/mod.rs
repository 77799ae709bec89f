//! What carries a call: WebRTC, or nothing at all (tests).

pub mod client_messages;
mod data_channel_queue;
mod ffi;
pub mod loopback;
mod pacer;
mod sdp;
pub mod server_messages;
pub mod socket;
pub mod tcp;
mod track;
mod vp8;
pub mod webrtc;

use bytes::Bytes;

/// A text for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextMessage {
    /// JSON.
    pub body: String,
    /// What it is worth to a client that takes none.
    pub priority: Priority,
}

/// What is left out first where a client does not take its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Tells how something goes on; what comes later makes up for it.
    Progress,
    /// Tells that something is so.
    Essential,
}

impl TextMessage {
    /// The same as progress.
    #[must_use]
    pub fn as_progress(self) -> Self {
        Self { priority: Priority::Progress, ..self }
    }
}

impl From<String> for TextMessage {
    fn from(body: String) -> Self {
        Self { body, priority: Priority::Essential }
    }
}

impl From<&str> for TextMessage {
    fn from(body: &str) -> Self {
        body.to_owned().into()
    }
}

/// What a connection tells its call.
#[derive(Debug)]
pub enum TransportEvent {
    /// ICE and DTLS are up: media may flow.
    Connected,
    /// An RTP packet of the user's voice.
    Audio {
        /// Sequence number, extended beyond 16 bits.
        sequence: u64,
        /// RTP time stamp at 48 kHz, extended beyond 32 bits.
        timestamp: u64,
        /// One Opus packet.
        payload: Bytes,
    },
    /// The client opened its data channel.
    ChannelOpen,
    /// A text frame of the data channel.
    Text(String),
    /// The client needs a key frame (PLI, FIR).
    KeyFrameRequested,
    /// The receiver's bandwidth estimate, bits a second.
    BandwidthEstimate(u64),
    /// The receiver lost this part of the last second's packets of the agent's voice.
    PacketLoss(f32),
    /// The client closed the connection without a word (DTLS or channel closed).
    Closed,
}

/// One VP8 frame without its RTP descriptor, shared by all calls that show it.
#[derive(Clone, Debug)]
pub struct VideoFrame {
    /// The frame as the encoder made it.
    pub payload: Bytes,
    /// A key frame: sent reliably (NACK, RTX), as temporal layer 0.
    pub is_key_frame: bool,
    /// Sent reliably too, as temporal layer 0 with the next TL0PICIDX; otherwise as layer 1, Y=1, N=1.
    pub base_layer: bool,
}
