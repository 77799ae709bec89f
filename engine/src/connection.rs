//! One connection of a call: WebRTC, a LiveKit room, samples or loopback. A call has one current connection, and
//! up to three others: offers that may take over.
//!
//! States of a connection, derived from the times that it stores:
//!
//! ```text
//!  offered ---Connected---> up ---Closed by client---> closed
//!     | \                    |                          ^ |
//!     |  +-------------------|-----Closed by client-----+ |
//!     | hang_up              | hang_up                    | hang_up (optional)
//!     v                      v                            v
//!  hung up ----- transport closed, or 1 s (HANG_UP_TIMEOUT) -----> finished
//! ```
//!
//! A call drops its closed connections by its own timeouts. [`Connection::abort`] changes no state:
//! the failed call drops its connections.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine_api::OfferError;

use crate::context::PendingOffer;
use crate::hear::decode::Decoder;
use crate::hear::jitter::{Frame, FrameKind, JitterBuffer};
use crate::speak::AudioFrame;
use crate::token_bucket::TokenBucket;
use crate::transport::audio_line::LineServer;
use crate::transport::client_messages;
use crate::transport::livekit::room_peer::RoomPeer;
use crate::transport::livekit::room_socket::RoomSocket;
use crate::transport::loopback::{LoopbackOutput, LoopbackServer};
use crate::transport::webrtc::{PeerConnection, Protocol, Transmit};
use crate::transport::{
    ConnectionReply, MAX_DATAGRAM_BURST, MAX_DATAGRAMS_PER_SECOND, TextMessage, TransportEvent,
    VideoFrame,
};

/// Limit for sending the last messages after a hang-up.
const HANG_UP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long after it connected a connection may still do handshakes (data channel, negotiations),
/// in which each round trip counts.
const HANDSHAKE_TIME: Duration = Duration::from_secs(1);
/// Error sent to a client that connects while the server has no capacity, in the words of the REST
/// API.
const NO_CAPACITY: &str = "No capacity";
/// Samples of 20 ms at 16 kHz.
const SAMPLES_20_MS: usize = 320;

mod room;

enum Transport {
    WebRtc {
        peer: Box<PeerConnection>,
        jitter: Box<JitterBuffer>,
        decoder: Box<Decoder>,
        /// Rate limit of the client's datagrams.
        datagram_bucket: TokenBucket,
    },
    Room {
        peer: Box<RoomPeer>,
        socket: RoomSocket,
        /// Rate limit of the datagrams.
        datagram_bucket: TokenBucket,
    },
    Loopback {
        server: LoopbackServer,
        next_frame_at: Instant,
        last_received: Instant,
    },
    Line {
        server: Box<LineServer>,
        next_frame_at: Instant,
        last_received: Instant,
    },
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reception {
    /// The connection took it.
    Accepted,
    /// It does not belong to the connection.
    Foreign,
    /// The client sends too many datagrams; this one was dropped unread.
    RateLimited,
}

/// A connection and its state in the call.
pub(crate) struct Connection {
    /// Unique in the call.
    pub(crate) number: u32,
    transport: Transport,
    id: String,
    /// When it was offered.
    pub(crate) offered_at: Instant,
    /// When it connected.
    pub(crate) connected_at: Option<Instant>,
    /// When the client closed it.
    pub(crate) closed_at: Option<Instant>,
    /// When the server hung it up.
    hung_up_at: Option<Instant>,
    /// When the last packet of the user's audio arrived.
    pub(crate) last_voice_at: Option<Instant>,
    /// Reader of the client's messages on the data channel.
    pub(crate) message_reader: client_messages::ClientInbox,
    /// When the client opened its data channel.
    pub(crate) channel_opened_at: Option<Instant>,
    /// The entry in the list of pending offers, until the connection is up.
    pending_offer: Option<PendingOffer>,
}

impl Connection {
    /// A connection from an answered offer.
    pub(crate) fn webrtc(
        number: u32,
        peer: PeerConnection,
        decoder: Decoder,
        pending_offer: Option<PendingOffer>,
        now: Instant,
    ) -> Self {
        let id = peer.id().to_owned();
        let transport = Transport::WebRtc {
            peer: Box::new(peer),
            jitter: Box::default(),
            decoder: Box::new(decoder),
            datagram_bucket: TokenBucket::new(MAX_DATAGRAMS_PER_SECOND, MAX_DATAGRAM_BURST, now),
        };
        Self { pending_offer, ..Self::new(number, transport, id, now) }
    }

    /// A connection without a network.
    pub(crate) fn loopback(number: u32, server: LoopbackServer, now: Instant) -> Self {
        let transport = Transport::Loopback { server, next_frame_at: now, last_received: now };
        Self::new(number, transport, format!("loopback-{number}"), now)
    }

    /// A connection that carries samples.
    pub(crate) fn line(number: u32, server: LineServer, now: Instant) -> Self {
        let server = Box::new(server);
        let transport = Transport::Line { server, next_frame_at: now, last_received: now };
        Self::new(number, transport, format!("{:032x}", rand::random::<u128>()), now)
    }

    fn new(number: u32, transport: Transport, id: String, now: Instant) -> Self {
        Self {
            number,
            transport,
            id,
            offered_at: now,
            connected_at: None,
            closed_at: None,
            hung_up_at: None,
            last_voice_at: None,
            message_reader: client_messages::ClientInbox::new(now),
            channel_opened_at: None,
            pending_offer: None,
        }
    }

    /// The connection's id, which is unguessable except for loopback.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The WebRTC connection, if it is one.
    pub(crate) fn peer(&mut self) -> Option<&mut PeerConnection> {
        match &mut self.transport {
            Transport::WebRtc { peer, .. } => Some(peer),
            Transport::Room { .. } | Transport::Loopback { .. } | Transport::Line { .. } => None,
        }
    }

    /// Whether this is the pending offer with this number.
    pub(crate) fn is_offer(&self, number: u64) -> bool {
        self.pending_offer.as_ref().is_some_and(|pending_offer| pending_offer.number == number)
    }

    /// Whether media may flow.
    pub(crate) fn is_up(&self) -> bool {
        self.connected_at.is_some() && self.closed_at.is_none() && self.hung_up_at.is_none()
    }

    /// Whether the client hears what is sent: media flows, and it shows signs of life. Silence of
    /// `max_silence` is a lost connection; `None` = none is.
    pub(crate) fn is_listening(&self, now: Instant, max_silence: Option<Duration>) -> bool {
        let is_lost = max_silence
            .zip(self.last_received())
            .is_some_and(|(max, at)| now.saturating_duration_since(at) >= max);
        let takes_audio = match &self.transport {
            Transport::WebRtc { .. } | Transport::Room { .. } | Transport::Loopback { .. } => true,
            Transport::Line { server, .. } => server.is_listening(),
        };
        self.is_up() && takes_audio && !is_lost
    }

    /// Whether the handshakes are over: datagrams in both directions may then wait for a tick.
    pub(crate) fn is_past_handshake(&self, now: Instant) -> bool {
        self.connected_at.is_some_and(|at| now.saturating_duration_since(at) >= HANDSHAKE_TIME)
    }

    /// When the last data from the client arrived, if any.
    pub(crate) fn last_received(&self) -> Option<Instant> {
        match &self.transport {
            Transport::WebRtc { peer, .. } => peer.last_heard(),
            Transport::Room { peer, .. } => peer.last_heard(),
            Transport::Loopback { last_received, .. } | Transport::Line { last_received, .. } => {
                Some(*last_received)
            }
        }
    }

    /// Whether the client has passed an authenticated STUN check.
    pub(crate) fn has_passed_check(&self) -> bool {
        match &self.transport {
            Transport::WebRtc { peer, .. } => peer.last_heard().is_some(),
            Transport::Room { .. } | Transport::Loopback { .. } | Transport::Line { .. } => true,
        }
    }

    /// Whether the client receives video.
    pub(crate) fn has_video(&self) -> bool {
        match &self.transport {
            Transport::WebRtc { peer, .. } => peer.has_video(),
            Transport::Room { peer, .. } => peer.is_watched(),
            Transport::Loopback { .. } => true,
            Transport::Line { .. } => false,
        }
    }

    /// Whether what the call hears has no packets: it comes over a line, or is the mix of a room.
    pub(crate) fn carries_samples(&self) -> bool {
        matches!(self.transport, Transport::Line { .. } | Transport::Room { .. })
    }

    /// Whether the connection takes encoded packets (WebRTC) instead of samples.
    pub(crate) fn wants_packets(&self) -> bool {
        matches!(self.transport, Transport::WebRtc { .. } | Transport::Room { .. })
    }

    /// Whether the client shows the level of its microphone, which it gets from the server.
    pub(crate) fn wants_levels(&self) -> bool {
        !matches!(self.transport, Transport::Room { .. })
    }

    /// Takes a datagram. Its rate limit comes first: a STUN check costs an HMAC and an answer, a
    /// media packet its decryption, whether they are genuine or not.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        protocol: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
        datagram: &[u8],
    ) -> Reception {
        let Transport::WebRtc { peer, datagram_bucket, jitter, .. } = &mut self.transport else {
            return Reception::Foreign;
        };
        if !datagram_bucket.try_take(now) {
            return Reception::RateLimited;
        }
        if !peer.receive(now, protocol, source, destination, datagram) {
            return Reception::Foreign;
        }
        // A tick takes audio from the jitter buffer before it polls the connection.
        while let Some(TransportEvent::Audio { sequence, timestamp, payload }) =
            peer.take_audio(now)
        {
            self.last_voice_at = Some(now);
            jitter.push(now, sequence, timestamp, payload);
        }
        Reception::Accepted
    }

    /// When the connection must be served next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let own = match &self.transport {
            Transport::WebRtc { peer, .. } => Some(peer.timeout()),
            Transport::Room { peer, .. } => Some(peer.timeout()),
            Transport::Loopback { .. } | Transport::Line { .. } => None,
        };
        let hung_up = self.hung_up_at.map(|at| at + HANG_UP_TIMEOUT);
        [own, hung_up].into_iter().flatten().min()
    }

    /// Whether [`Connection::poll`] may have something: new input, or a timeout that is due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        match &self.transport {
            Transport::WebRtc { peer, .. } => peer.timeout() <= now,
            Transport::Room { peer, .. } => peer.timeout() <= now,
            Transport::Loopback { .. } | Transport::Line { .. } => true,
        }
    }

    /// The next event. Datagrams go to `transmit`, and audio packets into the jitter buffer.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        transmit: &mut dyn FnMut(Transmit),
    ) -> Option<TransportEvent> {
        let event = match &mut self.transport {
            Transport::WebRtc { peer, jitter, .. } => loop {
                match peer.poll(now, &mut |t: Transmit| transmit(t))? {
                    TransportEvent::Audio { sequence, timestamp, payload } => {
                        self.last_voice_at = Some(now);
                        jitter.push(now, sequence, timestamp, payload);
                    }
                    other => break other,
                }
            },
            Transport::Room { peer, socket, .. } => {
                let event = peer.poll(now, &mut |datagram| socket.send(datagram));
                if self.connected_at.is_some() && self.hung_up_at.is_none() {
                    self.closed_at = peer.left_at();
                }
                if event.is_none() {
                    socket.flush();
                }
                event?
            }
            Transport::Loopback { server, .. } => server.poll()?,
            Transport::Line { server, last_received, .. } => {
                let event = server.poll();
                if server.take_received() {
                    *last_received = now;
                }
                event?
            }
        };
        match event {
            TransportEvent::Connected if self.connected_at.is_none() => {
                self.connected_at = Some(now);
                self.pending_offer = None;
                match &mut self.transport {
                    Transport::WebRtc { .. } | Transport::Room { .. } => {}
                    Transport::Loopback { server, next_frame_at, .. } => {
                        *next_frame_at = now;
                        server.send_output(LoopbackOutput::Connected { at: now });
                    }
                    Transport::Line { next_frame_at, .. } => *next_frame_at = now,
                }
            }
            TransportEvent::Closed => self.closed_at = self.closed_at.or(Some(now)),
            _ => {}
        }
        Some(event)
    }

    /// Appends the next frame of the user's audio that has arrived to `pcm` (16 kHz mono). Returns
    /// the time of its end. `on_packet` gets its packet, if there is one.
    pub(crate) fn receive_audio(
        &mut self,
        now: Instant,
        pcm: &mut Vec<i16>,
        on_packet: impl FnOnce(&Frame, &Bytes),
    ) -> Option<Instant> {
        match &mut self.transport {
            Transport::WebRtc { jitter, decoder, .. } => {
                let frame = jitter.pull(now)?;
                decoder.decode(&frame, pcm);
                if let FrameKind::Packet(packet) = &frame.kind {
                    on_packet(&frame, packet);
                }
                Some(frame.end_time)
            }
            Transport::Room { peer, .. } => {
                let end = peer.pull_audio(now, pcm)?;
                self.last_voice_at = Some(now);
                Some(end)
            }
            Transport::Loopback { server, next_frame_at, last_received } => {
                let at = *next_frame_at + crate::speak::FRAME_DURATION;
                if at > now {
                    return None;
                }
                *next_frame_at = at;
                let mut block = [0; SAMPLES_20_MS];
                if server.read_audio(&mut block) {
                    *last_received = now;
                    self.last_voice_at = Some(now);
                    pcm.extend(block);
                    Some(at)
                } else {
                    None
                }
            }
            Transport::Line { server, next_frame_at, last_received } => {
                let at = *next_frame_at + crate::speak::FRAME_DURATION;
                if at > now {
                    return None;
                }
                *next_frame_at = at;
                let mut block = [0; SAMPLES_20_MS];
                let is_heard = server.read_audio(&mut block);
                if server.take_received() {
                    *last_received = now;
                }
                if !is_heard {
                    return None;
                }
                self.last_voice_at = Some(now);
                pcm.extend(block);
                Some(at)
            }
        }
    }

    /// Number of the user's audio packets since the last call of this method that arrived faster
    /// than real time and were dropped.
    pub(crate) fn take_excess_packets(&mut self) -> u64 {
        match &mut self.transport {
            Transport::WebRtc { jitter, .. } => jitter.take_excess_packets(),
            Transport::Room { peer, .. } => peer.take_excess_packets(),
            Transport::Loopback { .. } => 0,
            Transport::Line { server, .. } => server.take_dropped_blocks(),
        }
    }

    /// Sends a frame of the agent's audio.
    pub(crate) fn send_audio(&mut self, now: Instant, frame: &AudioFrame<'_>) {
        match &mut self.transport {
            Transport::WebRtc { peer, .. } => {
                if !frame.packet.is_empty() {
                    peer.send_audio(now, frame.timestamp, frame.starts_talk_spurt, frame.packet);
                }
            }
            Transport::Room { peer, .. } => peer.send_audio(now, frame),
            Transport::Loopback { server, .. } => server.send_output(LoopbackOutput::Audio {
                at: now,
                timestamp: frame.timestamp,
                pcm: frame.pcm.into(),
                segment: frame.playout_position.map(|l| (l.segment, l.position)),
            }),
            Transport::Line { server, .. } => server.send_audio(frame),
        }
    }

    /// Sends a video frame if the estimated bandwidth allows it. Returns whether it was sent.
    /// `timestamp` is at 90 kHz.
    pub(crate) fn send_video(&mut self, now: Instant, timestamp: u64, frame: VideoFrame) -> bool {
        match &mut self.transport {
            Transport::WebRtc { peer, .. } => peer.send_video(now, timestamp, &frame),
            Transport::Room { peer, .. } => peer.send_video(now, timestamp, &frame),
            Transport::Loopback { server, .. } => {
                server.send_output(LoopbackOutput::Video { at: now, frame });
                true
            }
            Transport::Line { .. } => false,
        }
    }

    /// Sends a message.
    pub(crate) fn send_text(&mut self, now: Instant, text: impl Into<TextMessage>) {
        match &mut self.transport {
            Transport::WebRtc { peer, .. } => peer.send_text(now, text),
            Transport::Room { peer, .. } => peer.send_text(now, text.into()),
            Transport::Loopback { server, .. } => {
                server.send_output(LoopbackOutput::Text(text.into().body))
            }
            Transport::Line { .. } => {}
        }
    }

    /// Sends a leave message and closes the connection.
    pub(crate) fn hang_up(&mut self, now: Instant) {
        if self.hung_up_at.is_some() {
            return;
        }
        self.hung_up_at = Some(now);
        self.send_text(now, client_messages::peer_left());
        match &mut self.transport {
            Transport::WebRtc { peer, .. } => peer.close(now),
            Transport::Room { peer, .. } => peer.close(now),
            Transport::Loopback { server, .. } => server.send_output(LoopbackOutput::Closed),
            // The client learns of it when the connection is dropped.
            Transport::Line { server, .. } => {
                server.reply(ConnectionReply::Rejected(OfferError::Ended))
            }
        }
    }

    /// Sends the client an error that the call has failed, and closes the connection at once.
    pub(crate) fn abort(&mut self, now: Instant) {
        self.send_text(now, client_messages::error_message("The call has failed", true));
        match &mut self.transport {
            Transport::WebRtc { peer, .. } => peer.abort(now),
            Transport::Room { peer, .. } => peer.abort(now),
            Transport::Loopback { server, .. } => server.send_output(LoopbackOutput::Closed),
            Transport::Line { .. } => {}
        }
    }

    /// Sends the client a capacity error. [`Connection::hang_up`] must follow once the data channel
    /// is open.
    pub(crate) fn send_capacity_error(&mut self, now: Instant) {
        self.send_text(now, client_messages::error_message(NO_CAPACITY, true));
        if let Transport::Line { server, .. } = &mut self.transport {
            let error = OfferError::NoCapacity(NO_CAPACITY.into());
            server.reply(ConnectionReply::Rejected(error));
        }
    }

    /// The connection carries the call from now on.
    pub(crate) fn on_current(&mut self) {
        if let Transport::Line { server, .. } = &mut self.transport {
            server.reply(ConnectionReply::Accepted);
        }
    }

    /// Whether the server hung up and closing is complete: [`HANG_UP_TIMEOUT`] is over or the
    /// transport is closed.
    pub(crate) fn is_finished(&self, now: Instant) -> bool {
        self.hung_up_at.is_some_and(|at| {
            now >= at + HANG_UP_TIMEOUT
                || match &self.transport {
                    Transport::WebRtc { peer, .. } => peer.is_closed(),
                    Transport::Room { peer, .. } => peer.is_closed(),
                    Transport::Loopback { .. } | Transport::Line { .. } => true,
                }
        })
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
