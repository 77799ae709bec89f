//! Fuzz targets: every parser that reads from the network. Each takes any bytes, enters where the server does, and panics where something
//! does not hold that must hold of any input.
//!
//! | target | bytes are | enters | goes on into |
//! |---|---|---|---|
//! | [`demux`] | steps of [`steps`]: datagrams of a client whose handshakes are under way, whole, damaged, or made up | `Demux`, `Connection` | str0m: STUN, DTLS |
//! | [`rtp`] | steps of a client that is connected: RTP under valid keys, texts, anything else | `Demux`, `Connection`, jitter buffer, Opus | str0m: RTP, RTCP, SRTP, SCTP |
//! | [`sdp`] | an offer | `Connection::accept` | str0m: SDP |
//! | [`rtvi`] | a text of the data channel | `rtvi::decode`, `rtvi::Inbox` | |
//! | [`trickle`] | the body of `PATCH /api/offer` | `control_api::trickle` | |
//! | [`tcp`] | a stream of ICE-TCP | `tcp::Frames` | `Demux`, `Connection`, str0m |
//!
//! `README.md` says how they are run.

mod client;
mod demux;
pub mod mutate;
mod rtp;
mod rtvi;
mod sdp;
pub mod steps;
mod tcp;
mod trickle;

pub use demux::demux;
pub use rtp::rtp;
pub use rtvi::rtvi;
pub use sdp::sdp;
pub use tcp::tcp;
pub use trickle::trickle;

/// A target: any bytes, and a panic where something is wrong.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 6] =
    [("demux", demux), ("rtp", rtp), ("sdp", sdp), ("rtvi", rtvi), ("trickle", trickle), ("tcp", tcp)];

/// Longest input that is looked at, bytes: a longer one only takes longer.
const LONGEST: usize = 96 * 1024;
