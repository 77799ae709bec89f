//! Recordings of calls, and videos in which an avatar speaks a text.
//!
//! ```text
//! during the call   packets, as sent and received ─► capture ─► file of three tracks
//! after the call    file of three tracks ─► delivery ─► video copied, audio mixed, with an index
//! without a call    frames and samples   ─► film     ─► the same kind of file
//! ```
//!
//! All files are WebM (a profile of Matroska, RFC 9559) with VP8 and Opus. The file of a call is
//! readable up to its last complete cluster at any moment. Nothing is decoded or encoded while a
//! call runs.

pub mod capture;
pub mod delivery;
mod ebml;
pub mod film;
mod mixer;
mod timeline;
mod webm;

use std::time::Duration;

use bytes::Bytes;

/// Where a packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// A VP8 frame of the avatar.
    Video(Frame),
    /// An Opus packet of the agent.
    Agent,
    /// An Opus packet of the user.
    User,
}

/// What other frames of the avatar depend on this one. Each picture depends on the last key frame,
/// or on the last altref frame, and never on another picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A key frame. It replaces all references.
    Key,
    /// The altref frame, which depends on the key frame.
    Altref,
    /// A picture on which no frame depends.
    Picture,
}

/// A packet of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Time of its beginning since the start of the call: when it was sent, or when the user spoke.
    pub at: Duration,
    /// Where it belongs.
    pub track: Track,
    /// One VP8 frame, or one Opus packet.
    pub data: Bytes,
}

/// Width and height of the video in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Width.
    pub width: u32,
    /// Height.
    pub height: u32,
}

/// The channels of the delivered sound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channels {
    /// Both voices in one channel.
    #[default]
    Mixed,
    /// The user left, the agent right.
    Split,
}

/// Sample rate of all Opus streams, in Hz.
const SAMPLE_RATE: u32 = 48_000;
/// Delay of the Opus encoders of calls, in samples: that of libopus for speech (2.5 ms and 4 ms).
const OPUS_DELAY: u16 = 312;
