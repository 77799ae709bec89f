//! One connection of a call: WebRTC, or a loop-back. A call has one, and for a moment two while a new one takes over.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::engine::PendingOffer;
use crate::hear::decode::Decoder;
use crate::hear::jitter::JitterBuffer;
use crate::speak::AudioFrame;
use crate::transport::client_messages;
use crate::transport::loopback::{LoopbackOutput, LoopbackServer};
use crate::transport::webrtc::{PeerConnection, Protocol, Transmit};
use crate::transport::{TextMessage, TransportEvent, VideoFrame};

/// How long a hung-up connection may take to send its last words.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long after it came up a connection may still have handshakes to do (the data channel, negotiations), for which each round trip counts.
const HANDSHAKE_TIME: Duration = Duration::from_secs(1);
/// What a client is told that connects while the server is full, as REST says it.
const NO_CAPACITY: &str = "No capacity";
/// Samples of 20 ms at 16 kHz.
const SAMPLES_20_MS: usize = 320;

enum Transport {
    WebRtc { peer: Box<PeerConnection>, jitter: Box<JitterBuffer>, decoder: Box<Decoder> },
    Loopback { server: LoopbackServer, next_frame_at: Instant, last_received: Instant },
}

/// A connection with its place in the call.
pub(crate) struct Connection {
    /// Unique in the call.
    pub(crate) number: u32,
    transport: Transport,
    id: String,
    /// When it was offered.
    pub(crate) offered_at: Instant,
    /// When it came up.
    pub(crate) connected_at: Option<Instant>,
    /// When the client closed it.
    pub(crate) closed_at: Option<Instant>,
    /// When it was hung up from here.
    hung_up_at: Option<Instant>,
    /// When a packet of the user's voice last came.
    pub(crate) last_voice_at: Option<Instant>,
    /// What the client sends over its channel.
    pub(crate) message_reader: client_messages::ClientInbox,
    /// When the client opened its channel.
    pub(crate) channel_opened_at: Option<Instant>,
    /// Its entry among the offers that have not connected, until it has.
    pending_offer: Option<PendingOffer>,
}

impl Connection {
    /// An answered offer.
    pub(crate) fn webrtc(
        number: u32,
        connection: PeerConnection,
        decoder: Decoder,
        unconnected: Option<PendingOffer>,
        now: Instant,
    ) -> Self {
        let id = connection.id().to_owned();
        let wire = Transport::WebRtc {
            peer: Box::new(connection),
            jitter: Box::default(),
            decoder: Box::new(decoder),
        };
        Self {
            number,
            transport: wire,
            id,
            offered_at: now,
            connected_at: None,
            closed_at: None,
            hung_up_at: None,
            last_voice_at: None,
            message_reader: client_messages::ClientInbox::new(now),
            channel_opened_at: None,
            pending_offer: unconnected,
        }
    }

    /// A connection without a network.
    pub(crate) fn loopback(number: u32, server: LoopbackServer, now: Instant) -> Self {
        let wire = Transport::Loopback { server, next_frame_at: now, last_received: now };
        let id = format!("loopback-{number}");
        Self {
            number,
            transport: wire,
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

    /// Its unguessable name.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The WebRTC connection, if it is one.
    pub(crate) fn peer(&mut self) -> Option<&mut PeerConnection> {
        match &mut self.transport {
            Transport::WebRtc { peer: connection, .. } => Some(connection),
            Transport::Loopback { .. } => None,
        }
    }

    /// Whether it is this offer, and has not connected.
    pub(crate) fn is_offer(&self, number: u64) -> bool {
        self.pending_offer.as_ref().is_some_and(|unconnected| unconnected.number == number)
    }

    /// Whether media may flow.
    pub(crate) fn is_up(&self) -> bool {
        self.connected_at.is_some() && self.closed_at.is_none() && self.hung_up_at.is_none()
    }

    /// Whether it is past its handshakes: what comes and goes from now on may wait for a tick.
    pub(crate) fn is_past_handshake(&self, now: Instant) -> bool {
        self.connected_at.is_some_and(|at| now.saturating_duration_since(at) >= HANDSHAKE_TIME)
    }

    /// When the client was last heard, if ever.
    pub(crate) fn last_received(&self) -> Option<Instant> {
        match &self.transport {
            Transport::WebRtc { peer: connection, .. } => connection.last_heard(),
            Transport::Loopback { last_received: heard, .. } => Some(*heard),
        }
    }

    /// Whether the client wants pictures.
    pub(crate) fn has_video(&self) -> bool {
        match &self.transport {
            Transport::WebRtc { peer: connection, .. } => connection.has_video(),
            Transport::Loopback { .. } => true,
        }
    }

    /// Whether packets are wanted, or samples.
    pub(crate) fn wants_packets(&self) -> bool {
        matches!(self.transport, Transport::WebRtc { .. })
    }

    /// Takes a datagram; false if it is another's.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        protocol: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
        datagram: &[u8],
    ) -> bool {
        self.peer().is_some_and(|c| c.receive(now, protocol, source, destination, datagram))
    }

    /// When it needs time next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let own = match &self.transport {
            Transport::WebRtc { peer: connection, .. } => Some(connection.timeout()),
            Transport::Loopback { .. } => None,
        };
        let hung_up = self.hung_up_at.map(|at| at + CLOSE_TIMEOUT);
        [own, hung_up].into_iter().flatten().min()
    }

    /// Whether [`Connection::poll`] may have something: it was told of something, or its time has come.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        match &self.transport {
            Transport::WebRtc { peer: connection, .. } => connection.timeout() <= now,
            Transport::Loopback { .. } => true,
        }
    }

    /// The next event; voice goes into the jitter buffer on the way, datagrams to `transmit`.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        transmit: &mut dyn FnMut(Transmit),
    ) -> Option<TransportEvent> {
        let event = match &mut self.transport {
            Transport::WebRtc { peer: connection, jitter, .. } => loop {
                match connection.poll(now, &mut |t: Transmit| transmit(t))? {
                    TransportEvent::Audio { sequence, timestamp, payload } => {
                        self.last_voice_at = Some(now);
                        jitter.push(now, sequence, timestamp, payload);
                    }
                    other => break other,
                }
            },
            Transport::Loopback { server: near, .. } => near.poll()?,
        };
        match event {
            TransportEvent::Connected if self.connected_at.is_none() => {
                self.connected_at = Some(now);
                self.pending_offer = None;
                if let Transport::Loopback { server: near, next_frame_at: next, .. } = &mut self.transport {
                    *next = now;
                    near.send_output(LoopbackOutput::Connected { at: now });
                }
            }
            TransportEvent::Closed => self.closed_at = self.closed_at.or(Some(now)),
            _ => {}
        }
        Some(event)
    }

    /// The user's sound that has come: appended to `pcm` (16 kHz mono); returns the instant of its end.
    pub(crate) fn receive_audio(&mut self, now: Instant, pcm: &mut Vec<i16>) -> Option<Instant> {
        match &mut self.transport {
            Transport::WebRtc { jitter, decoder, .. } => {
                let frame = jitter.pull(now)?;
                decoder.decode(&frame, pcm);
                Some(frame.end_time)
            }
            Transport::Loopback { server: near, next_frame_at: next, last_received: heard } => {
                let at = *next + crate::speak::FRAME_DURATION;
                if at > now {
                    return None;
                }
                *next = at;
                let mut block = [0; SAMPLES_20_MS];
                if near.read_audio(&mut block) {
                    *heard = now;
                    self.last_voice_at = Some(now);
                    pcm.extend(block);
                    Some(at)
                } else {
                    None
                }
            }
        }
    }

    /// Packets of the user's voice since the last call that came faster than real time and were dropped.
    pub(crate) fn take_excess_packets(&mut self) -> u64 {
        match &mut self.transport {
            Transport::WebRtc { jitter, .. } => jitter.take_excess_packets(),
            Transport::Loopback { .. } => 0,
        }
    }

    /// Sends a block of the agent's voice.
    pub(crate) fn send_audio(&mut self, now: Instant, block: &AudioFrame<'_>) {
        match &mut self.transport {
            Transport::WebRtc { peer: connection, .. } => {
                if !block.packet.is_empty() {
                    connection.send_audio(now, block.timestamp, block.starts_talk_spurt, block.packet);
                }
            }
            Transport::Loopback { server: near, .. } => near.send_output(LoopbackOutput::Audio {
                at: now,
                timestamp: block.timestamp,
                pcm: block.pcm.into(),
                segment: block.playout_position.map(|l| (l.segment, l.position)),
            }),
        }
    }

    /// Sends a picture, unless the line has no room for it; whether it does. `timestamp` at 90 kHz.
    pub(crate) fn send_video(&mut self, now: Instant, timestamp: u64, frame: VideoFrame) -> bool {
        match &mut self.transport {
            Transport::WebRtc { peer: connection, .. } => connection.send_video(now, timestamp, &frame),
            Transport::Loopback { server: near, .. } => {
                near.send_output(LoopbackOutput::Video { at: now, frame });
                true
            }
        }
    }

    /// Sends a message.
    pub(crate) fn send_text(&mut self, now: Instant, text: impl Into<TextMessage>) {
        match &mut self.transport {
            Transport::WebRtc { peer: connection, .. } => connection.send_text(now, text),
            Transport::Loopback { server: near, .. } => {
                near.send_output(LoopbackOutput::Text(text.into().body))
            }
        }
    }

    /// Says good-bye and closes.
    pub(crate) fn hang_up(&mut self, now: Instant) {
        if self.hung_up_at.is_some() {
            return;
        }
        self.hung_up_at = Some(now);
        self.send_text(now, client_messages::peer_left());
        match &mut self.transport {
            Transport::WebRtc { peer: connection, .. } => connection.close(now),
            Transport::Loopback { server: near, .. } => near.send_output(LoopbackOutput::Closed),
        }
    }

    /// Tells the client that the server has failed and closes at once.
    pub(crate) fn abort(&mut self, now: Instant) {
        self.send_text(now, client_messages::error_message("The call has failed", true));
        match &mut self.transport {
            Transport::WebRtc { peer: connection, .. } => connection.abort(now),
            Transport::Loopback { server: near, .. } => near.send_output(LoopbackOutput::Closed),
        }
    }

    /// Tells the client that the server has no room for the call. [`Connection::hang_up`] is to follow once its channel is open.
    pub(crate) fn send_capacity_error(&mut self, now: Instant) {
        self.send_text(now, client_messages::error_message(NO_CAPACITY, true));
    }

    /// Whether it was hung up and has no last words left, or the client closed it after that.
    pub(crate) fn is_finished(&self, now: Instant) -> bool {
        self.hung_up_at.is_some_and(|at| {
            now >= at + CLOSE_TIMEOUT
                || match &self.transport {
                    Transport::WebRtc { peer: connection, .. } => connection.is_closed(),
                    Transport::Loopback { .. } => true,
                }
        })
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
