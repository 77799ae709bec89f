//! Calls of which there are only offers yet. They hold neither a place nor models: those are asked for when a client has connected, and
//! until they come the call's connections are drained and what they tell is kept.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use conversation::call_config::ConversationId;
use conversation::input::Command;
use conversation::output::CommandOutcome;

use crate::connection::Connection;
use crate::engine::PresenceGuard;
use crate::messages::NewCall;
use crate::transport::TransportEvent;
use crate::transport::webrtc::{Protocol, Transmit};

/// Commands kept for a call that has not begun.
pub(crate) const MAX_EARLY_COMMANDS: usize = 64;
/// What connections may tell before the call has its models, which takes milliseconds.
const MAX_EARLY_EVENTS: usize = 256;
/// How long a client that finds no room may take to open its data channel, by which it is told.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// How a call stands that has not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PendingState {
    /// Something is still to come.
    Waiting,
    /// A client has connected: place and models are to be asked for.
    Connected,
    /// No connection is left.
    Finished,
}

/// A call that has not begun.
pub(super) struct PendingCall {
    pub(super) conversation: ConversationId,
    early_commands: Vec<Command>,
    setup_request: Box<dyn Fn() + Send>,
    presence: PresenceGuard,
    connections: Vec<Connection>,
    next_connection: u32,
    events: Vec<(u32, TransportEvent)>,
    /// Place and models have been asked for.
    setup_requested: bool,
    /// Links that are told that there is no room, and since when.
    rejected: Vec<(u32, Instant)>,
    dropped_connections: Vec<u32>,
    offer_timeout: Duration,
    /// When it needs time next.
    pub(super) next_deadline: Option<Instant>,
}

/// What a call that begins takes over.
#[derive(Default)]
pub(crate) struct CallHandover {
    pub(crate) connections: Vec<Connection>,
    pub(crate) next_connection: u32,
    pub(crate) presence: PresenceGuard,
    /// Given before it began.
    pub(crate) early_commands: Vec<Command>,
}

impl PendingCall {
    /// A call whose offers have so long to connect.
    pub(super) fn new(conversation: ConversationId, arrival: NewCall, offer: Duration) -> Self {
        let NewCall { id: _, early_commands: commands, presence, request_setup: open } = arrival;
        Self {
            conversation,
            early_commands: commands,
            setup_request: open,
            presence,
            connections: Vec::with_capacity(1),
            next_connection: 0,
            events: Vec::new(),
            setup_requested: false,
            rejected: Vec::new(),
            dropped_connections: Vec::new(),
            offer_timeout: offer,
            next_deadline: None,
        }
    }

    /// Takes a connection; returns its number. At most `most` are kept: the oldest makes room.
    pub(super) fn add_connection(&mut self, max: usize, make: impl FnOnce(u32) -> Connection) -> u32 {
        while self.connections.len() >= max {
            let oldest = self
                .connections
                .iter()
                .min_by_key(|l| (l.connected_at.is_some(), l.number))
                .map(|l| l.number);
            let Some(oldest) = oldest else { break };
            self.drop_connection(oldest);
        }
        let number = self.next_connection;
        self.next_connection += 1;
        self.connections.push(make(number));
        number
    }

    /// Numbers of its connections.
    pub(super) fn connection_numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.connections.iter().map(|connection| connection.number)
    }

    /// The connection of this name.
    pub(super) fn connection_by_id(&mut self, id: &str) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.id() == id)
    }

    /// Numbers of the connections that are gone since last asked.
    pub(super) fn take_dropped_connections(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.dropped_connections.drain(..)
    }

    fn drop_connection(&mut self, number: u32) {
        self.connections.retain(|connection| connection.number != number);
        self.events.retain(|(of, _)| *of != number);
        self.rejected.retain(|(of, _)| *of != number);
        self.dropped_connections.push(number);
    }

    /// Drops the connection of an offer that makes room for a newer one.
    pub(super) fn evict_offer(&mut self, offer: u64) {
        if let Some(number) = self
            .connections
            .iter()
            .find(|connection| connection.is_offer(offer))
            .map(|connection| connection.number)
        {
            self.drop_connection(number);
        }
    }

    /// A datagram for one of its connections.
    pub(super) fn receive_datagram(
        &mut self,
        now: Instant,
        number: u32,
        protocol: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
        datagram: &[u8],
    ) -> bool {
        let connection = self.connections.iter_mut().find(|connection| connection.number == number);
        connection.is_some_and(|connection| connection.receive(now, protocol, source, destination, datagram))
    }

    /// A command from outside. `None` = the call is over by it.
    pub(super) fn handle_command(&mut self, command: Command) -> Option<CommandOutcome> {
        if matches!(command, Command::End | Command::Leave | Command::Stop { .. }) {
            return None;
        }
        if self.early_commands.len() < MAX_EARLY_COMMANDS {
            self.early_commands.push(command);
        }
        Some(CommandOutcome::Accepted)
    }

    /// A client closes one of the connections by itself. False if there is no such connection.
    pub(super) fn hang_up(&mut self, now: Instant, id: &str) -> bool {
        let Some(connection) = self.connection_by_id(id) else { return false };
        let number = connection.number;
        if connection.connected_at.is_some() {
            connection.hang_up(now);
            self.events.retain(|(of, _)| *of != number);
        } else {
            self.drop_connection(number);
        }
        true
    }

    /// Drains its connections, and drops those whose time is over.
    pub(super) fn poll_connections(
        &mut self,
        now: Instant,
        transmit: &mut dyn FnMut(Transmit),
    ) -> PendingState {
        let mut full = Vec::new();
        for connection in &mut self.connections {
            while connection.is_due(now)
                && let Some(event) = connection.poll(now, transmit)
            {
                if self.events.len() < MAX_EARLY_EVENTS {
                    self.events.push((connection.number, event));
                } else {
                    full.push(connection.number);
                    break;
                }
            }
        }
        // A client that tells so much before it can have been answered is not one of ours.
        for number in full {
            self.drop_connection(number);
        }
        self.close_rejected(now, transmit);
        let limit = self.offer_timeout;
        let late = |connection: &Connection| {
            let pending = connection.connected_at.is_none()
                && now.saturating_duration_since(connection.offered_at) >= limit;
            pending || connection.closed_at.is_some() || connection.is_finished(now)
        };
        let late: Vec<u32> = self
            .connections
            .iter()
            .filter(|connection| late(connection))
            .map(|connection| connection.number)
            .collect();
        for number in late {
            self.drop_connection(number);
        }
        self.next_deadline =
            self.connections.iter().filter_map(|connection| self.connection_deadline(connection)).min();
        if self.connections.is_empty() {
            return PendingState::Finished;
        }
        let is_waiting = |connection: &Connection| {
            connection.is_up() && !self.rejected.iter().any(|(of, _)| *of == connection.number)
        };
        if !self.setup_requested && self.connections.iter().any(is_waiting) {
            PendingState::Connected
        } else {
            PendingState::Waiting
        }
    }

    fn connection_deadline(&self, connection: &Connection) -> Option<Instant> {
        let offered = connection.connected_at.is_none().then(|| connection.offered_at + self.offer_timeout);
        let rejected_until = self
            .rejected
            .iter()
            .find(|(of, _)| *of == connection.number)
            .map(|(_, at)| *at + REJECTION_TIMEOUT);
        [connection.next_deadline(), offered, rejected_until].into_iter().flatten().min()
    }

    /// Asks for a place and models.
    pub(super) fn request_setup(&mut self) {
        self.setup_requested = true;
        (self.setup_request)();
    }

    /// There is no room: whoever has connected is told so.
    pub(super) fn reject(&mut self, now: Instant) {
        self.setup_requested = false;
        for connection in self.connections.iter_mut().filter(|connection| connection.is_up()) {
            if !self.rejected.iter().any(|(of, _)| *of == connection.number) {
                connection.send_capacity_error(now);
                self.rejected.push((connection.number, now));
            }
        }
    }

    /// Hangs up who has been told that there is no room, or cannot be told.
    fn close_rejected(&mut self, now: Instant, transmit: &mut dyn FnMut(Transmit)) {
        for (number, since) in &self.rejected {
            let channel_open = self
                .events
                .iter()
                .any(|(of, event)| of == number && matches!(event, TransportEvent::ChannelOpen));
            if (channel_open || now.saturating_duration_since(*since) >= REJECTION_TIMEOUT)
                && let Some(connection) =
                    self.connections.iter_mut().find(|connection| connection.number == *number)
            {
                connection.hang_up(now);
                while connection.is_due(now) && connection.poll(now, transmit).is_some() {}
            }
        }
    }

    /// What a call that begins takes over, and what its connections have told.
    pub(super) fn into_handover(self) -> (CallHandover, Vec<(u32, TransportEvent)>) {
        let Self {
            early_commands: commands,
            presence,
            connections: links,
            next_connection: next_link,
            events,
            ..
        } = self;
        (
            CallHandover {
                connections: links,
                next_connection: next_link,
                presence,
                early_commands: commands,
            },
            events,
        )
    }
}
