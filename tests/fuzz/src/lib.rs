//! Fuzz targets for every parser of what strangers send. Each accepts any bytes, enters where
//! the server does, and panics if a property is violated that must hold for every input.
//!
//! | target | bytes | enters | continues into |
//! |---|---|---|---|
//! | [`demux`] | [`steps`] during the handshakes | `Demux`, `PeerConnection` | STUN, DTLS |
//! | [`rtp`] | steps when connected | the same, jitter buffer, Opus | RTP, RTCP, SRTP, SCTP |
//! | [`sdp`] | an offer | `PeerConnection::accept` | SDP |
//! | [`rtvi`] | a message of the data channel | `client_messages::decode`, `ClientInbox` | |
//! | [`trickle`] | the body of `PATCH /api/offer` | `control_api::validate_trickle` | |
//! | [`tcp`] | an ICE-TCP stream | `tcp::FrameDecoder` | `Demux`, `PeerConnection`, str0m |
//! | [`picture`] | an uploaded picture | `landmarks::decode` | PNG, JPEG, WebP, ICC |
//! | [`tflite`] | a network file | `tflite::Network` | |
//! | [`audio`] | an audio file; the output of its decoder | `documents::decode_audio`, `PcmReader` | MP3, Ogg, Opus |
//! | [`script`] | the text of a video | `script::parse` | |
//!
//! The last column names parsers of other crates, except `Demux` and `PeerConnection`. The datagrams of
//! `demux` are intact, damaged or made up; those of `rtp` are RTP under valid keys, text messages,
//! or any bytes.
//!
//! `README.md` describes how to run them.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod audio;
mod demux;
mod harness;
pub mod mutate;
mod picture;
mod rtp;
mod rtvi;
mod script;
mod sdp;
pub mod steps;
mod tcp;
mod tflite;
mod trickle;

pub use audio::audio;
pub use demux::demux;
pub use picture::picture;
pub use rtp::rtp;
pub use rtvi::rtvi;
pub use script::script;
pub use sdp::sdp;
pub use tcp::tcp;
pub use tflite::tflite;
pub use trickle::trickle;

/// A target: it accepts any bytes, and panics on a violation.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 10] = [
    ("demux", demux),
    ("rtp", rtp),
    ("sdp", sdp),
    ("rtvi", rtvi),
    ("trickle", trickle),
    ("tcp", tcp),
    ("picture", picture),
    ("tflite", tflite),
    ("audio", audio),
    ("script", script),
];

/// Maximum input, in bytes: a longer one only takes longer.
const MAX_INPUT: usize = 96 * 1024;
