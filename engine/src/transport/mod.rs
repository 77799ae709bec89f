//! What carries a call: WebRTC, or nothing at all (tests).

mod ffi;
pub mod loopback;
mod outbox;
mod pacer;
pub mod rtvi;
mod sdp;
pub mod socket;
pub mod tcp;
pub mod tell;
mod track;
mod vp8;
pub mod webrtc;

use bytes::Bytes;

/// A text for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// JSON.
    pub body: String,
    /// What it is worth to a client that takes none.
    pub weight: Weight,
}

/// What is left out first where a client does not take its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Tells how something goes on; what comes later makes up for it.
    Progress,
    /// Tells that something is so.
    Fact,
}

impl Text {
    /// The same as progress.
    #[must_use]
    pub fn progress(self) -> Self {
        Self { weight: Weight::Progress, ..self }
    }
}

impl From<String> for Text {
    fn from(body: String) -> Self {
        Self { body, weight: Weight::Fact }
    }
}

impl From<&str> for Text {
    fn from(body: &str) -> Self {
        body.to_owned().into()
    }
}

/// What a connection tells its call.
#[derive(Debug)]
pub enum Event {
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
    KeyframeRequested,
    /// The receiver's bandwidth estimate, bits a second.
    Bandwidth(u64),
    /// The receiver lost this part of the last second's packets of the agent's voice.
    Lost(f32),
    /// The client closed the connection without a word (DTLS or channel closed).
    Closed,
}

/// One VP8 frame without its RTP descriptor, shared by all calls that show it.
#[derive(Clone, Debug)]
pub struct VideoFrame {
    /// The frame as the encoder made it.
    pub payload: Bytes,
    /// A key frame: sent reliably (NACK, RTX), as temporal layer 0.
    pub key: bool,
    /// Sent reliably too, as temporal layer 0 with the next TL0PICIDX; otherwise as layer 1, Y=1, N=1.
    pub base_layer: bool,
}
