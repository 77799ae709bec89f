//! Pending calls: calls that consist only of offers so far. A pending call holds neither a slot nor
//! models. They are requested when a client has connected. Until they arrive, the connections are
//! polled and their events are stored.
//!
//! Connections to vendors are opened earlier, at the first authenticated STUN check of a client, at
//! most once. Their events are stored too. They are closed if no client connects.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use conversation::id::ConversationId;
use conversation::input::Command;
use conversation::output::CommandOutcome;
use engine_api::HangUp;
use models::stt;

use crate::connection::{Connection, Reception};
use crate::context::PresenceGuard;
use crate::messages::{NewCall, PrepareCall, StageEvent};
use crate::transport::TransportEvent;
use crate::transport::webrtc::{Protocol, Transmit};

/// Limit of commands stored for a call that has not started.
pub(crate) const MAX_EARLY_COMMANDS: usize = 64;
/// Limit of connection events stored until the call has its models, which takes milliseconds.
const MAX_EARLY_EVENTS: usize = 256;
/// Limit of stage events stored until the call starts. A stream reports its usage every 10 s.
const MAX_EARLY_STAGE_EVENTS: usize = 64;
/// Time that a client without capacity has to open its data channel, over which it gets the error.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that the call setup may take. Without an answer by then it is lost: the inbox of the thread
/// was full, for example.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);

/// State of a pending call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingState {
    /// A connection or the call setup is still awaited.
    Waiting,
    /// A client has passed its first STUN check: the connections to vendors must be opened.
    Checked,
    /// A client has connected: the slot and models must be requested.
    Connected,
    /// No connection is left.
    Finished,
}

/// A call that has not started.
pub(crate) struct PendingCall {
    pub(crate) conversation: ConversationId,
    early_commands: Vec<Command>,
    preparation: Box<dyn PrepareCall>,
    /// Whether the connections to vendors were opened, or are opened with the setup.
    opened_connections: bool,
    presence: PresenceGuard,
    connections: Vec<Connection>,
    next_connection: u32,
    events: Vec<(u32, TransportEvent)>,
    stage_events: Vec<StageEvent>,
    /// When the slot and models were requested, until the answer is there.
    setup_requested_at: Option<Instant>,
    /// Connections that were sent a capacity error, and since when.
    rejected: Vec<(u32, Instant)>,
    dropped_connections: Vec<u32>,
    offer_timeout: Duration,
    /// When the pending call must be served next.
    pub(crate) next_deadline: Option<Instant>,
}

/// What a starting call takes over from the pending call.
#[derive(Default)]
pub(crate) struct CallHandover {
    pub(crate) connections: Vec<Connection>,
    pub(crate) next_connection: u32,
    pub(crate) presence: PresenceGuard,
    /// Commands that arrived before the start.
    pub(crate) early_commands: Vec<Command>,
}

impl PendingCall {
    /// A pending call; `offer` is the time that its offers have to connect.
    pub(crate) fn new(conversation: ConversationId, new_call: NewCall, offer: Duration) -> Self {
        let NewCall { id: _, early_commands, presence, preparation } = new_call;
        Self {
            conversation,
            early_commands,
            preparation,
            opened_connections: false,
            presence,
            connections: Vec::with_capacity(1),
            next_connection: 0,
            events: Vec::new(),
            stage_events: Vec::new(),
            setup_requested_at: None,
            rejected: Vec::new(),
            dropped_connections: Vec::new(),
            offer_timeout: offer,
            next_deadline: None,
        }
    }

    /// Adds a connection and returns its number. At most `max` connections are held: the oldest
    /// pending one is dropped first, then the oldest connected one.
    pub(crate) fn add_connection(
        &mut self,
        max: usize,
        make: impl FnOnce(u32) -> Connection,
    ) -> u32 {
        while self.connections.len() >= max {
            let oldest = self
                .connections
                .iter()
                .min_by_key(|c| (c.connected_at.is_some(), c.number))
                .map(|c| c.number);
            let Some(oldest) = oldest else { break };
            self.drop_connection(oldest);
        }
        let number = self.next_connection;
        self.next_connection += 1;
        self.connections.push(make(number));
        number
    }

    /// Numbers of the call's connections.
    pub(crate) fn connection_numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.connections.iter().map(|connection| connection.number)
    }

    /// The connection with this id.
    pub(crate) fn connection_by_id(&mut self, id: &str) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.id() == id)
    }

    /// Numbers of the connections dropped since the last call of this method.
    pub(crate) fn take_dropped_connections(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.dropped_connections.drain(..)
    }

    fn drop_connection(&mut self, number: u32) {
        self.connections.retain(|connection| connection.number != number);
        self.events.retain(|(of, _)| *of != number);
        self.rejected.retain(|(of, _)| *of != number);
        self.dropped_connections.push(number);
    }

    /// Drops the connection of an offer that was evicted for a newer one.
    pub(crate) fn evict_offer(&mut self, offer: u64) {
        if let Some(number) = self
            .connections
            .iter()
            .find(|connection| connection.is_offer(offer))
            .map(|connection| connection.number)
        {
            self.drop_connection(number);
        }
    }

    /// Passes a datagram to one of the connections.
    pub(crate) fn receive_datagram(
        &mut self,
        now: Instant,
        number: u32,
        protocol: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
        datagram: &[u8],
    ) -> Reception {
        let connection = self.connections.iter_mut().find(|connection| connection.number == number);
        connection.map_or(Reception::Foreign, |connection| {
            connection.receive(now, protocol, source, destination, datagram)
        })
    }

    /// Handles a command from the API. Returns `None` if the command ends the call.
    pub(crate) fn handle_command(&mut self, command: Command) -> Option<CommandOutcome> {
        if matches!(command, Command::End | Command::Leave | Command::Stop { .. }) {
            return None;
        }
        if self.early_commands.len() < MAX_EARLY_COMMANDS {
            self.early_commands.push(command);
        }
        Some(CommandOutcome::Accepted)
    }

    /// The client closes one of its connections.
    pub(crate) fn hang_up(&mut self, now: Instant, id: &str) -> HangUp {
        let Some(connection) = self.connection_by_id(id) else { return HangUp::NotFound };
        let number = connection.number;
        if connection.connected_at.is_some() {
            connection.hang_up(now);
            self.events.retain(|(of, _)| *of != number);
            return HangUp::Closed;
        }
        self.drop_connection(number);
        if self.connections.is_empty() { HangUp::LastOffer } else { HangUp::Closed }
    }

    /// Polls the connections and drops those that have expired.
    pub(crate) fn poll_connections(
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
        // No legitimate client sends so many events before the server could have answered.
        for number in full {
            self.drop_connection(number);
        }
        if self
            .setup_requested_at
            .is_some_and(|at| now.saturating_duration_since(at) >= SETUP_TIMEOUT)
        {
            tracing::error!("the setup of a call was lost: its clients are rejected");
            self.reject(now);
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
        self.next_deadline = self
            .connections
            .iter()
            .filter_map(|connection| self.connection_deadline(connection))
            .chain(self.setup_requested_at.map(|at| at + SETUP_TIMEOUT))
            .min();
        if self.connections.is_empty() {
            return PendingState::Finished;
        }
        let is_waiting = |connection: &Connection| {
            connection.is_up() && !self.rejected.iter().any(|(of, _)| *of == connection.number)
        };
        if self.setup_requested_at.is_none() && self.connections.iter().any(is_waiting) {
            PendingState::Connected
        } else if !self.opened_connections
            && self.connections.iter().any(Connection::has_passed_check)
        {
            PendingState::Checked
        } else {
            PendingState::Waiting
        }
    }

    fn connection_deadline(&self, connection: &Connection) -> Option<Instant> {
        let offered =
            connection.connected_at.is_none().then(|| connection.offered_at + self.offer_timeout);
        let rejected_until = self
            .rejected
            .iter()
            .find(|(of, _)| *of == connection.number)
            .map(|(_, at)| *at + REJECTION_TIMEOUT);
        [connection.next_deadline(), offered, rejected_until].into_iter().flatten().min()
    }

    /// Opens the connections to vendors.
    pub(crate) fn open_connections(&mut self) {
        self.opened_connections = true;
        self.preparation.open_connections();
    }

    /// Stores an event of a model that was opened before the call starts.
    pub(crate) fn store_stage_event(&mut self, event: StageEvent) {
        // The end of a stream that was dropped with a rejected setup is not that of the next one.
        let is_lasting = !matches!(event, StageEvent::SttClosed);
        if is_lasting && self.stage_events.len() < MAX_EARLY_STAGE_EVENTS {
            self.stage_events.push(event);
        }
    }

    /// Requests a slot and models.
    pub(crate) fn request_setup(&mut self, now: Instant) {
        self.opened_connections = true;
        self.setup_requested_at = Some(now);
        let timeout = now + SETUP_TIMEOUT;
        self.next_deadline =
            Some(self.next_deadline.map_or(timeout, |deadline| deadline.min(timeout)));
        self.preparation.request_setup();
    }

    /// Whether the slot and models are requested and neither arrived nor overdue.
    pub(crate) fn awaits_setup(&self) -> bool {
        self.setup_requested_at.is_some()
    }

    /// Sends a capacity error to every client that has connected.
    pub(crate) fn reject(&mut self, now: Instant) {
        self.setup_requested_at = None;
        // What was opened is closed. Only what it used still counts.
        let is_usage = |event: &StageEvent| matches!(event, StageEvent::Stt(stt::Event::Usage(_)));
        self.stage_events.retain(is_usage);
        for connection in self.connections.iter_mut().filter(|connection| connection.is_up()) {
            if !self.rejected.iter().any(|(of, _)| *of == connection.number) {
                connection.send_capacity_error(now);
                self.rejected.push((connection.number, now));
            }
        }
    }

    /// Hangs up connections that got the capacity error, or whose data channel did not open in
    /// time.
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

    /// Splits into what the starting call takes over, and the stored events of its connections and
    /// models.
    pub(crate) fn into_handover(
        self,
    ) -> (CallHandover, Vec<(u32, TransportEvent)>, Vec<StageEvent>) {
        let Self { early_commands, presence, connections, next_connection, .. } = self;
        let handover = CallHandover { connections, next_connection, presence, early_commands };
        (handover, self.events, self.stage_events)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;
    use crate::messages::CallId;
    use crate::transport::loopback::{self, LoopbackOutput};

    /// Counts the requests of setups.
    struct CountingPreparation(Arc<AtomicUsize>);

    impl PrepareCall for CountingPreparation {
        fn open_connections(&mut self) {
            panic!("the setup opens them");
        }

        fn request_setup(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_call_whose_setup_is_lost_rejects_its_clients_and_ends() {
        let start = crate::clock::now();
        let requests = Arc::<AtomicUsize>::default();
        let new_call = NewCall {
            id: CallId(1),
            early_commands: Vec::new(),
            presence: PresenceGuard::default(),
            preparation: Box::new(CountingPreparation(Arc::clone(&requests))),
        };
        let mut pending = PendingCall::new(ConversationId(1), new_call, Duration::from_secs(30));
        let (server, client) = loopback::pair();
        pending.add_connection(2, |number| Connection::loopback(number, server, start));
        assert_eq!(pending.poll_connections(start, &mut |_| {}), PendingState::Connected);
        pending.request_setup(start);
        assert_eq!(pending.next_deadline, Some(start + SETUP_TIMEOUT));
        client.send_event(TransportEvent::ChannelOpen);
        let early = start + SETUP_TIMEOUT - Duration::from_millis(1);
        assert_eq!(pending.poll_connections(early, &mut |_| {}), PendingState::Waiting);
        assert_eq!(pending.next_deadline, Some(start + SETUP_TIMEOUT), "it is served in time");
        assert!(pending.awaits_setup());
        assert!(!client.drain_outputs().any(|output| matches!(output, LoopbackOutput::Text(_))));

        assert_eq!(
            pending.poll_connections(start + SETUP_TIMEOUT, &mut |_| {}),
            PendingState::Finished
        );
        assert!(!pending.awaits_setup(), "a setup that arrives now is dropped");
        let outputs: Vec<_> = client.drain_outputs().collect();
        let has_error = |output: &LoopbackOutput| {
            let LoopbackOutput::Text(text) = output else { return false };
            text.contains("No capacity")
        };
        assert!(outputs.iter().any(has_error), "{outputs:?}");
        assert!(
            outputs.iter().any(|output| matches!(output, LoopbackOutput::Closed)),
            "{outputs:?}"
        );
        assert_eq!(requests.load(Relaxed), 1);
    }
}
