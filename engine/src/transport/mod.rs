//! Transports of a call: WebRTC, samples for a service that uses a socket, or an in-process loopback
//! (tests).

pub mod audio_line;
pub mod client_messages;
mod data_channel_queue;
pub mod demux;
mod ffi;
pub mod livekit;
pub mod loopback;
mod pacer;
mod resampler;
mod sdp;
pub mod server_messages;
pub mod socket;
pub mod tcp;
mod tcp_framing;
mod track;
mod vp8;
pub mod webrtc;

use bytes::Bytes;
use engine_api::OfferError;

/// Sustained rate of the datagrams of one connection. A client sends some 50 audio packets a second
/// (400 of 2.5 ms), a few checks and reports, and at most 1,100 parts of texts; a client that sends
/// video though the answer declines it adds 1,000 (8 Mbit/s). At this rate, one connection takes
/// about 1 % of a media thread's time.
pub(crate) const MAX_DATAGRAMS_PER_SECOND: f64 = 2_000.0;
/// Burst of the same rate: what a network that stalled delivers at once, be it 40 s of audio or 2 s
/// of audio and video.
pub(crate) const MAX_DATAGRAM_BURST: f64 = 2_048.0;

/// A text frame for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextMessage {
    /// JSON.
    pub body: String,
    /// Which texts are dropped first if the client does not read.
    pub priority: Priority,
}

/// Priority of a text in the send queue. If the client does not read, the lower priority is dropped
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Reports the progress of something; a later message supersedes it.
    Progress,
    /// Reports an event that no later message repeats.
    Essential,
}

impl TextMessage {
    /// The same text with progress priority.
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

/// What became of a connection that carries samples, or of one to a LiveKit room.
#[derive(Debug, PartialEq, Eq)]
pub enum ConnectionReply {
    /// The call has it.
    Accepted,
    /// Rejected.
    Rejected(OfferError),
    /// The call is not on this thread, and the request cannot start it.
    NotRunning,
}

/// An event that a connection reports to its call.
#[derive(Debug)]
pub enum TransportEvent {
    /// ICE and DTLS are up: media may flow.
    Connected,
    /// An RTP packet of the user's audio.
    Audio {
        /// Sequence number, extended beyond 16 bits.
        sequence: u64,
        /// RTP timestamp at 48 kHz, extended beyond 32 bits.
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
    /// The receiver's bandwidth estimate, bits per second.
    BandwidthEstimate(u64),
    /// Fraction of the agent's audio packets that the receiver lost in the last second, 0 to 1.
    PacketLoss(f32),
    /// The client closed the connection without a leave message (DTLS or channel closed).
    Closed,
    /// Something happened in the LiveKit room of the call.
    Room(livekit::RoomEvent),
}

/// One VP8 frame without its RTP descriptor. All calls that show it share its bytes.
#[derive(Clone, Debug)]
pub struct VideoFrame {
    /// The frame as the encoder produced it.
    pub payload: Bytes,
    /// Whether it is a key frame: sent reliably (NACK, RTX), as temporal layer 0.
    pub is_key_frame: bool,
    /// Whether it is sent reliably as temporal layer 0 with the next TL0PICIDX. Other interframes
    /// are layer 1 with Y=1 and N=1.
    pub base_layer: bool,
}
