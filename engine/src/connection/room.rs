//! A connection to a LiveKit room.

use std::time::Instant;

use conversation::event::EventEnvelope;

use super::{Connection, Transport};
use crate::token_bucket::TokenBucket;
use crate::transport::livekit::room_peer::{RoomPeer, RoomSignal};
use crate::transport::livekit::room_socket::{ReceiveBuffers, RoomSocket};
use crate::transport::{MAX_DATAGRAM_BURST, MAX_DATAGRAMS_PER_SECOND};

impl Connection {
    /// A connection to a LiveKit room.
    pub(crate) fn room(number: u32, peer: Box<RoomPeer>, socket: RoomSocket, now: Instant) -> Self {
        let id = peer.id().to_owned();
        let datagram_bucket = TokenBucket::new(MAX_DATAGRAMS_PER_SECOND, MAX_DATAGRAM_BURST, now);
        Self::new(number, Transport::Room { peer, socket, datagram_bucket }, id, now)
    }

    /// The participant of a LiveKit room, if it is one.
    pub(crate) fn room_peer(&mut self) -> Option<&mut RoomPeer> {
        match &mut self.transport {
            Transport::Room { peer, .. } => Some(peer),
            _ => None,
        }
    }

    /// Reads datagrams of the LiveKit server. Returns whether there may be more, and how many were
    /// dropped: they do not belong to the connection, or came too fast.
    pub(crate) fn read_room_socket(
        &mut self,
        now: Instant,
        buffers: &mut ReceiveBuffers,
    ) -> (bool, u64) {
        let Transport::Room { peer, socket, datagram_bucket } = &mut self.transport else {
            return (false, 0);
        };
        let mut refused = 0;
        let read = socket.receive(buffers, |source, destination, datagram| {
            let is_taken =
                datagram_bucket.try_take(now) && peer.receive(now, source, destination, datagram);
            refused += u64::from(!is_taken);
        });
        // An error means that the server refused a datagram of ours. The socket remains usable.
        (read.unwrap_or(true), refused)
    }

    /// Handles a signal of the LiveKit server.
    pub(crate) fn handle_room_signal(&mut self, now: Instant, signal: RoomSignal) {
        if let Transport::Room { peer, .. } = &mut self.transport {
            peer.handle_signal(now, signal);
        }
    }

    /// Whether the agent is in its room and nobody else is.
    pub(crate) fn waits_for_people(&self) -> bool {
        match &self.transport {
            Transport::Room { peer, .. } => self.connected_at.is_none() && peer.is_in_room(),
            _ => false,
        }
    }

    /// Sends what only clients of a LiveKit room expect of an event. `unix_micros`: the wall clock of
    /// the event.
    pub(crate) fn send_event(&mut self, now: Instant, event: &EventEnvelope, unix_micros: u64) {
        if let Transport::Room { peer, .. } = &mut self.transport {
            peer.send_event(now, event, unix_micros);
        }
    }
}
