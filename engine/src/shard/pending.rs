//! Calls of which there are only offers yet. They hold neither a place nor models: those are asked for when a client has connected, and
//! until they come the call's connections are drained and what they tell is kept.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use conversation::call_config::ConversationId;
use conversation::input::Command;
use conversation::output::CommandOutcome;

use crate::graph::Arrival;
use crate::host::Presence;
use crate::link::Link;
use crate::transport::Event;
use crate::transport::webrtc::{Protocol, Transmit};

/// Commands kept for a call that has not begun.
pub(crate) const EARLY: usize = 64;
/// What connections may tell before the call has its models, which takes milliseconds.
const EVENTS: usize = 256;
/// How long a client that finds no room may take to open its data channel, by which it is told.
const TELLING: Duration = Duration::from_secs(10);

/// How a call stands that has not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// Something is still to come.
    Waits,
    /// A client has connected: place and models are to be asked for.
    Connected,
    /// No connection is left.
    Over,
}

/// A call that has not begun.
pub(super) struct Pending {
    pub(super) conversation: ConversationId,
    commands: Vec<Command>,
    open: Box<dyn Fn() + Send>,
    presence: Presence,
    links: Vec<Link>,
    next_link: u32,
    events: Vec<(u32, Event)>,
    /// Place and models have been asked for.
    opening: bool,
    /// Links that are told that there is no room, and since when.
    refused: Vec<(u32, Instant)>,
    dropped: Vec<u32>,
    offer: Duration,
    /// When it needs time next.
    pub(super) due: Option<Instant>,
}

/// What a call that begins takes over.
#[derive(Default)]
pub(crate) struct Waited {
    pub(crate) links: Vec<Link>,
    pub(crate) next_link: u32,
    pub(crate) presence: Presence,
    /// Given before it began.
    pub(crate) commands: Vec<Command>,
}

impl Pending {
    /// A call whose offers have so long to connect.
    pub(super) fn new(conversation: ConversationId, arrival: Arrival, offer: Duration) -> Self {
        let Arrival { key: _, commands, presence, open } = arrival;
        Self {
            conversation,
            commands,
            open,
            presence,
            links: Vec::with_capacity(1),
            next_link: 0,
            events: Vec::new(),
            opening: false,
            refused: Vec::new(),
            dropped: Vec::new(),
            offer,
            due: None,
        }
    }

    /// Takes a connection; returns its number. At most `most` are kept: the oldest makes room.
    pub(super) fn link(&mut self, most: usize, make: impl FnOnce(u32) -> Link) -> u32 {
        while self.links.len() >= most {
            let oldest =
                self.links.iter().min_by_key(|l| (l.connected.is_some(), l.number)).map(|l| l.number);
            let Some(oldest) = oldest else { break };
            self.drop_link(oldest);
        }
        let number = self.next_link;
        self.next_link += 1;
        self.links.push(make(number));
        number
    }

    /// Numbers of its connections.
    pub(super) fn links(&self) -> impl Iterator<Item = u32> + '_ {
        self.links.iter().map(|link| link.number)
    }

    /// The connection of this name.
    pub(super) fn link_named(&mut self, id: &str) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.id() == id)
    }

    /// Numbers of the connections that are gone since last asked.
    pub(super) fn dropped_links(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.dropped.drain(..)
    }

    fn drop_link(&mut self, number: u32) {
        self.links.retain(|link| link.number != number);
        self.events.retain(|(of, _)| *of != number);
        self.refused.retain(|(of, _)| *of != number);
        self.dropped.push(number);
    }

    /// Drops the connection of an offer that makes room for a newer one.
    pub(super) fn evict(&mut self, offer: u64) {
        if let Some(number) = self.links.iter().find(|link| link.is_offer(offer)).map(|link| link.number) {
            self.drop_link(number);
        }
    }

    /// A datagram for one of its connections.
    pub(super) fn datagram(
        &mut self,
        now: Instant,
        number: u32,
        protocol: Protocol,
        source: SocketAddr,
        destination: SocketAddr,
        datagram: &[u8],
    ) -> bool {
        let link = self.links.iter_mut().find(|link| link.number == number);
        link.is_some_and(|link| link.receive(now, protocol, source, destination, datagram))
    }

    /// A command from outside. `None` = the call is over by it.
    pub(super) fn command(&mut self, command: Command) -> Option<CommandOutcome> {
        if matches!(command, Command::End | Command::Leave | Command::Stop { .. }) {
            return None;
        }
        if self.commands.len() < EARLY {
            self.commands.push(command);
        }
        Some(CommandOutcome::Accepted)
    }

    /// A client closes one of the connections by itself. False if there is no such connection.
    pub(super) fn hang_up(&mut self, now: Instant, id: &str) -> bool {
        let Some(link) = self.link_named(id) else { return false };
        let number = link.number;
        if link.connected.is_some() {
            link.hang_up(now);
            self.events.retain(|(of, _)| *of != number);
        } else {
            self.drop_link(number);
        }
        true
    }

    /// Drains its connections, and drops those whose time is over.
    pub(super) fn serve(&mut self, now: Instant, transmit: &mut dyn FnMut(Transmit)) -> Stand {
        let mut full = Vec::new();
        for link in &mut self.links {
            while link.is_due(now)
                && let Some(event) = link.poll(now, transmit)
            {
                if self.events.len() < EVENTS {
                    self.events.push((link.number, event));
                } else {
                    full.push(link.number);
                    break;
                }
            }
        }
        // A client that tells so much before it can have been answered is not one of ours.
        for number in full {
            self.drop_link(number);
        }
        self.finish_refused(now, transmit);
        let limit = self.offer;
        let late = |link: &Link| {
            let pending = link.connected.is_none() && now.saturating_duration_since(link.offered) >= limit;
            pending || link.closed.is_some() || link.is_over(now)
        };
        let late: Vec<u32> = self.links.iter().filter(|link| late(link)).map(|link| link.number).collect();
        for number in late {
            self.drop_link(number);
        }
        self.due = self.links.iter().filter_map(|link| self.deadline(link)).min();
        if self.links.is_empty() {
            return Stand::Over;
        }
        let waits = |link: &Link| link.is_up() && !self.refused.iter().any(|(of, _)| *of == link.number);
        if !self.opening && self.links.iter().any(waits) { Stand::Connected } else { Stand::Waits }
    }

    fn deadline(&self, link: &Link) -> Option<Instant> {
        let offered = link.connected.is_none().then(|| link.offered + self.offer);
        let told = self.refused.iter().find(|(of, _)| *of == link.number).map(|(_, at)| *at + TELLING);
        [link.deadline(), offered, told].into_iter().flatten().min()
    }

    /// Asks for a place and models.
    pub(super) fn ask(&mut self) {
        self.opening = true;
        (self.open)();
    }

    /// There is no room: whoever has connected is told so.
    pub(super) fn refuse(&mut self, now: Instant) {
        self.opening = false;
        for link in self.links.iter_mut().filter(|link| link.is_up()) {
            if !self.refused.iter().any(|(of, _)| *of == link.number) {
                link.turn_away(now);
                self.refused.push((link.number, now));
            }
        }
    }

    /// Hangs up who has been told that there is no room, or cannot be told.
    fn finish_refused(&mut self, now: Instant, transmit: &mut dyn FnMut(Transmit)) {
        for (number, since) in &self.refused {
            let told =
                self.events.iter().any(|(of, event)| of == number && matches!(event, Event::ChannelOpen));
            if (told || now.saturating_duration_since(*since) >= TELLING)
                && let Some(link) = self.links.iter_mut().find(|link| link.number == *number)
            {
                link.hang_up(now);
                while link.is_due(now) && link.poll(now, transmit).is_some() {}
            }
        }
    }

    /// What a call that begins takes over, and what its connections have told.
    pub(super) fn begin(self) -> (Waited, Vec<(u32, Event)>) {
        let Self { commands, presence, links, next_link, events, .. } = self;
        (Waited { links, next_link, presence, commands }, events)
    }
}
