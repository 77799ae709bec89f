//! One connection of a call: WebRTC, or a loop-back. A call has one, and for a moment two while a new one takes over.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::hear::decode::Decoder;
use crate::hear::jitter::Buffer;
use crate::host::Unconnected;
use crate::speak::Block;
use crate::transport::loopback::{Left, Near};
use crate::transport::rtvi;
use crate::transport::webrtc::{Connection, Protocol, Transmit};
use crate::transport::{Event, Text, VideoFrame};

/// How long a hung-up connection may take to send its last words.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long after it came up a connection may still have handshakes to do (the data channel, negotiations), for which each round trip counts.
const HANDSHAKES: Duration = Duration::from_secs(1);
/// What a client is told that connects while the server is full, as REST says it.
const NO_CAPACITY: &str = "No capacity";
/// Samples of 20 ms at 16 kHz.
const HEARD: usize = 320;

enum Wire {
    Rtc { connection: Box<Connection>, jitter: Box<Buffer>, decoder: Box<Decoder> },
    Loop { near: Near, next: Instant, heard: Instant },
}

/// A connection with its place in the call.
pub(crate) struct Link {
    /// Unique in the call.
    pub(crate) number: u32,
    wire: Wire,
    id: String,
    /// When it was offered.
    pub(crate) offered: Instant,
    /// When it came up.
    pub(crate) connected: Option<Instant>,
    /// When the client closed it.
    pub(crate) closed: Option<Instant>,
    /// When it was hung up from here.
    hung_up: Option<Instant>,
    /// When a packet of the user's voice last came.
    pub(crate) voice: Option<Instant>,
    /// What the client sends over its channel.
    pub(crate) inbox: rtvi::Inbox,
    /// When the client opened its channel.
    pub(crate) talks: Option<Instant>,
    /// Its entry among the offers that have not connected, until it has.
    unconnected: Option<Unconnected>,
}

impl Link {
    /// An answered offer.
    pub(crate) fn rtc(
        number: u32,
        connection: Connection,
        decoder: Decoder,
        unconnected: Option<Unconnected>,
        now: Instant,
    ) -> Self {
        let id = connection.id().to_owned();
        let wire = Wire::Rtc {
            connection: Box::new(connection),
            jitter: Box::default(),
            decoder: Box::new(decoder),
        };
        Self {
            number,
            wire,
            id,
            offered: now,
            connected: None,
            closed: None,
            hung_up: None,
            voice: None,
            inbox: rtvi::Inbox::new(now),
            talks: None,
            unconnected,
        }
    }

    /// A connection without a network.
    pub(crate) fn looped(number: u32, near: Near, now: Instant) -> Self {
        let wire = Wire::Loop { near, next: now, heard: now };
        let id = format!("loopback-{number}");
        Self {
            number,
            wire,
            id,
            offered: now,
            connected: None,
            closed: None,
            hung_up: None,
            voice: None,
            inbox: rtvi::Inbox::new(now),
            talks: None,
            unconnected: None,
        }
    }

    /// Its unguessable name.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The WebRTC connection, if it is one.
    pub(crate) fn connection(&mut self) -> Option<&mut Connection> {
        match &mut self.wire {
            Wire::Rtc { connection, .. } => Some(connection),
            Wire::Loop { .. } => None,
        }
    }

    /// Whether it is this offer, and has not connected.
    pub(crate) fn is_offer(&self, number: u64) -> bool {
        self.unconnected.as_ref().is_some_and(|unconnected| unconnected.number == number)
    }

    /// Whether media may flow.
    pub(crate) fn is_up(&self) -> bool {
        self.connected.is_some() && self.closed.is_none() && self.hung_up.is_none()
    }

    /// Whether it is past its handshakes: what comes and goes from now on may wait for a tick.
    pub(crate) fn is_settled(&self, now: Instant) -> bool {
        self.connected.is_some_and(|at| now.saturating_duration_since(at) >= HANDSHAKES)
    }

    /// When the client was last heard, if ever.
    pub(crate) fn last_heard(&self) -> Option<Instant> {
        match &self.wire {
            Wire::Rtc { connection, .. } => connection.last_heard(),
            Wire::Loop { heard, .. } => Some(*heard),
        }
    }

    /// Whether the client wants pictures.
    pub(crate) fn has_video(&self) -> bool {
        match &self.wire {
            Wire::Rtc { connection, .. } => connection.has_video(),
            Wire::Loop { .. } => true,
        }
    }

    /// Whether packets are wanted, or samples.
    pub(crate) fn wants_packets(&self) -> bool {
        matches!(self.wire, Wire::Rtc { .. })
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
        self.connection().is_some_and(|c| c.receive(now, protocol, source, destination, datagram))
    }

    /// When it needs time next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let own = match &self.wire {
            Wire::Rtc { connection, .. } => Some(connection.timeout()),
            Wire::Loop { .. } => None,
        };
        let hung_up = self.hung_up.map(|at| at + LAST_WORDS);
        [own, hung_up].into_iter().flatten().min()
    }

    /// Whether [`Link::poll`] may have something: it was told of something, or its time has come.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        match &self.wire {
            Wire::Rtc { connection, .. } => connection.timeout() <= now,
            Wire::Loop { .. } => true,
        }
    }

    /// The next event; voice goes into the jitter buffer on the way, datagrams to `transmit`.
    pub(crate) fn poll(&mut self, now: Instant, transmit: &mut dyn FnMut(Transmit)) -> Option<Event> {
        let event = match &mut self.wire {
            Wire::Rtc { connection, jitter, .. } => loop {
                match connection.poll(now, &mut |t: Transmit| transmit(t))? {
                    Event::Audio { sequence, timestamp, payload } => {
                        self.voice = Some(now);
                        jitter.push(now, sequence, timestamp, payload);
                    }
                    other => break other,
                }
            },
            Wire::Loop { near, .. } => near.poll()?,
        };
        match event {
            Event::Connected if self.connected.is_none() => {
                self.connected = Some(now);
                self.unconnected = None;
                if let Wire::Loop { near, next, .. } = &mut self.wire {
                    *next = now;
                    near.send(Left::Began { at: now });
                }
            }
            Event::Closed => self.closed = self.closed.or(Some(now)),
            _ => {}
        }
        Some(event)
    }

    /// The user's sound that has come: appended to `pcm` (16 kHz mono); returns the instant of its end.
    pub(crate) fn hear(&mut self, now: Instant, pcm: &mut Vec<i16>) -> Option<Instant> {
        match &mut self.wire {
            Wire::Rtc { jitter, decoder, .. } => {
                let frame = jitter.pull(now)?;
                decoder.decode(&frame, pcm);
                Some(frame.at)
            }
            Wire::Loop { near, next, heard } => {
                let at = *next + crate::speak::FRAME;
                if at > now {
                    return None;
                }
                *next = at;
                let mut block = [0; HEARD];
                if near.pull(&mut block) {
                    *heard = now;
                    self.voice = Some(now);
                    pcm.extend(block);
                    Some(at)
                } else {
                    None
                }
            }
        }
    }

    /// Packets of the user's voice since the last call that came faster than real time and were dropped.
    pub(crate) fn take_excess(&mut self) -> u64 {
        match &mut self.wire {
            Wire::Rtc { jitter, .. } => jitter.take_excess(),
            Wire::Loop { .. } => 0,
        }
    }

    /// Sends a block of the agent's voice.
    pub(crate) fn sound(&mut self, now: Instant, block: &Block<'_>) {
        match &mut self.wire {
            Wire::Rtc { connection, .. } => {
                if !block.packet.is_empty() {
                    connection.send_audio(now, block.timestamp, block.begins, block.packet);
                }
            }
            Wire::Loop { near, .. } => near.send(Left::Sound {
                at: now,
                timestamp: block.timestamp,
                pcm: block.pcm.into(),
                piece: block.leaving.map(|l| (l.piece, l.position)),
            }),
        }
    }

    /// Sends a picture, unless the line has no room for it; whether it does. `timestamp` at 90 kHz.
    pub(crate) fn picture(&mut self, now: Instant, timestamp: u64, frame: VideoFrame) -> bool {
        match &mut self.wire {
            Wire::Rtc { connection, .. } => connection.send_video(now, timestamp, &frame),
            Wire::Loop { near, .. } => {
                near.send(Left::Picture { at: now, frame });
                true
            }
        }
    }

    /// Sends a message.
    pub(crate) fn text(&mut self, now: Instant, text: impl Into<Text>) {
        match &mut self.wire {
            Wire::Rtc { connection, .. } => connection.send_text(now, text),
            Wire::Loop { near, .. } => near.send(Left::Text(text.into().body)),
        }
    }

    /// Says good-bye and closes.
    pub(crate) fn hang_up(&mut self, now: Instant) {
        if self.hung_up.is_some() {
            return;
        }
        self.hung_up = Some(now);
        self.text(now, rtvi::peer_left());
        match &mut self.wire {
            Wire::Rtc { connection, .. } => connection.close(now),
            Wire::Loop { near, .. } => near.send(Left::Closed),
        }
    }

    /// Tells the client that the server has failed and closes at once.
    pub(crate) fn break_off(&mut self, now: Instant) {
        self.text(now, rtvi::error("The call has failed", true));
        match &mut self.wire {
            Wire::Rtc { connection, .. } => connection.abort(now),
            Wire::Loop { near, .. } => near.send(Left::Closed),
        }
    }

    /// Tells the client that the server has no room for the call. [`Link::hang_up`] is to follow once its channel is open.
    pub(crate) fn turn_away(&mut self, now: Instant) {
        self.text(now, rtvi::error(NO_CAPACITY, true));
    }

    /// Whether it was hung up and has no last words left, or the client closed it after that.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.hung_up.is_some_and(|at| {
            now >= at + LAST_WORDS
                || match &self.wire {
                    Wire::Rtc { connection, .. } => connection.is_closed(),
                    Wire::Loop { .. } => true,
                }
        })
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
