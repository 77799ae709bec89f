//! A media thread: its socket, its inbox, its tick, its calls.
//!
//! [`Shard::step`] does all that is due at a given instant and never waits; [`Shard::run`] calls it with the clock, and sleeps in
//! between until a datagram, a message or a deadline. A test calls `step` with instants of its own.

mod contain;
mod datagrams;
mod early;
mod life;
mod offers;
pub(crate) mod pending;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use conversation::call_config::ConversationId;
use crossbeam_channel::Receiver;
use mio::{Interest, Poll, Token, Waker};
use models::Sink;
use models::contain::contained;
use smallvec::SmallVec;

use self::pending::Pending;
use crate::edge::{self, Sender};
use crate::graph::{self, CallKey, Kit, Message};
use crate::hear::vad::{State, WINDOW};
use crate::host::Shared;
use crate::meter::{Meter, Stats};
use crate::node::{Fate, Node};
use crate::thread;
use crate::transport::socket::{Demux, Socket};
use crate::transport::tcp;
use crate::transport::webrtc::{LocalCandidate, Protocol, Transmit};

/// Time between two ticks.
pub const TICK: Duration = Duration::from_millis(10);
/// Messages taken in one step, so that a flood of them does not starve the tick.
const MESSAGES: usize = 1_024;
/// Connections of one call at once: the one that carries it, and offers that try to take over.
const LINKS: usize = 4;
/// Windows judged in one go.
const BATCH: usize = 16;

const SOCKET: Token = Token(0);
const WAKER: Token = Token(1);

/// A connection of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slot {
    call: CallKey,
    link: u32,
}

/// How others reach a media thread.
#[derive(Clone)]
pub struct Inbox {
    /// Offers, commands, hang-ups.
    pub requests: Sender<Message>,
    /// News of models and tools.
    pub news: Sender<Message>,
    /// Datagrams by TCP.
    pub tcp: Sender<Message>,
}

impl Inbox {
    fn open(waker: Option<Arc<Waker>>) -> (Self, Receiver<Message>) {
        let (requests, receiver) = edge::open(&graph::REQUESTS, waker);
        (Self { news: requests.by(&graph::NEWS), tcp: requests.by(&graph::TCP), requests }, receiver)
    }

    /// A sink for one call's news.
    #[must_use]
    pub fn sink(&self, key: CallKey) -> Sink<crate::graph::News> {
        let news = self.news.clone();
        // An edge that stays full counts what it drops; nobody here could do more.
        Sink::new(move |item| drop(news.send(Message::News(key, item))))
    }
}

/// A media thread's state.
pub struct Shard {
    poll: Option<Poll>,
    socket: Option<Socket>,
    tcp: Option<(tcp::Outlet, Vec<LocalCandidate>)>,
    candidates: Vec<LocalCandidate>,
    demux: Demux<Slot>,
    messages: Receiver<Message>,
    inbox: Inbox,
    shared: Arc<Shared>,
    meter: Meter,
    kit: Option<Kit>,
    nodes: BTreeMap<CallKey, Box<Node>>,
    /// Calls of which there are only offers yet.
    pending: BTreeMap<CallKey, Box<Pending>>,
    by_conversation: HashMap<ConversationId, CallKey>,
    next_tick: Instant,
    /// Calls that something happened to.
    touched: Vec<CallKey>,
    /// Nothing is due before this, but for the tick: the least of the calls' own.
    due: Option<Instant>,
    probabilities: Vec<f32>,
    running: bool,
    /// Datagrams wait for the tick, which judges their sound anyway, instead of waking the thread one by one: every call is past its
    /// handshakes. A wake-up for each would cost an idle call a third more.
    settled: bool,
    /// The socket was not empty after the last step.
    unread: bool,
    /// What calls that broke while the socket was read say at last.
    last_words: Vec<Transmit>,
    /// Calls that broke and of which the ledger does not know it yet.
    untold: Vec<ConversationId>,
}

impl Shard {
    /// A thread's state without a network, for calls by loop-back: a test steps it.
    #[must_use]
    pub fn bare(shared: Arc<Shared>, now: Instant) -> (Self, Inbox, Arc<Stats>) {
        let (inbox, messages) = Inbox::open(None);
        Self::with(None, None, None, inbox, messages, shared, now)
    }

    /// A thread's state with its own socket.
    ///
    /// # Errors
    /// The poll cannot be set up.
    pub fn new(
        mut socket: Socket,
        tcp: Option<(tcp::Outlet, Vec<LocalCandidate>)>,
        shared: Arc<Shared>,
        now: Instant,
    ) -> io::Result<(Self, Inbox, Arc<Stats>)> {
        let poll = Poll::new()?;
        poll.registry().register(&mut socket, SOCKET, Interest::READABLE)?;
        let (inbox, messages) = Inbox::open(Some(Arc::new(Waker::new(poll.registry(), WAKER)?)));
        Ok(Self::with(Some(poll), Some(socket), tcp, inbox, messages, shared, now))
    }

    fn with(
        poll: Option<Poll>,
        socket: Option<Socket>,
        tcp: Option<(tcp::Outlet, Vec<LocalCandidate>)>,
        inbox: Inbox,
        messages: Receiver<Message>,
        shared: Arc<Shared>,
        now: Instant,
    ) -> (Self, Inbox, Arc<Stats>) {
        let stats = Arc::new(Stats::new(shared.most_load));
        let mut candidates = socket.as_ref().map(|s| s.candidates().to_vec()).unwrap_or_default();
        candidates.extend(tcp.iter().flat_map(|(_, c)| c.iter().copied()));
        let shard = Self {
            poll,
            socket,
            tcp,
            candidates,
            demux: Demux::new(),
            messages,
            inbox: inbox.clone(),
            shared,
            meter: Meter::new(Arc::clone(&stats)),
            kit: None,
            nodes: BTreeMap::new(),
            pending: BTreeMap::new(),
            by_conversation: HashMap::new(),
            next_tick: now,
            touched: Vec::with_capacity(64),
            due: None,
            probabilities: Vec::with_capacity(64),
            running: true,
            settled: false,
            unread: false,
            last_words: Vec::new(),
            untold: Vec::new(),
        };
        (shard, inbox, stats)
    }

    /// When [`Shard::step`] is due at the latest; `None` = something must come first.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        let tick = (!self.nodes.is_empty()).then_some(self.next_tick);
        [tick, self.due].into_iter().flatten().min()
    }

    /// Calls held, connecting and closing ones included.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.nodes.len() + self.pending.len()
    }

    /// Does what is due at `now`, in no time. Whether more is waiting to be read.
    pub fn step(&mut self, now: Instant) -> bool {
        let more = self.work(now);
        self.meter.close(Duration::ZERO);
        more
    }

    fn work(&mut self, now: Instant) -> bool {
        let mut more = self.read_messages(now);
        let tick = !self.nodes.is_empty() && now >= self.next_tick;
        // What did not fit into the last step is read at once: it would be lost to what comes until the next tick.
        if tick || !self.settled || self.unread {
            self.unread = self.read_socket(now);
            more |= self.unread;
        }
        if tick {
            self.tick(now);
        }
        if tick {
            self.touched.clear();
            self.touched.extend(self.nodes.keys());
        } else if self.due.is_some_and(|due| now >= due) {
            let due = |at: Option<Instant>| at.is_some_and(|due| now >= due);
            self.touched.extend(self.nodes.iter().filter(|(_, node)| due(node.due)).map(|(key, _)| *key));
        }
        if self.due.is_some_and(|due| now >= due) {
            let due = |pending: &Pending| pending.due.is_some_and(|due| now >= due);
            self.touched.extend(self.pending.iter().filter(|(_, one)| due(one)).map(|(key, _)| *key));
        }
        // What was due may be gone.
        if !self.touched.is_empty() || self.due.is_some_and(|due| now >= due) {
            let mut touched = std::mem::take(&mut self.touched);
            for key in touched.drain(..) {
                self.serve(now, key, tick);
            }
            thread::serves(None);
            self.touched = touched;
            let due = self.nodes.values().filter_map(|node| node.due);
            self.due = due.chain(self.pending.values().filter_map(|pending| pending.due)).min();
            let settled = self.pending.is_empty() && self.nodes.values().all(|node| node.settled);
            self.settled = settled && !self.nodes.is_empty();
        }
        if let Some(socket) = &mut self.socket {
            socket.flush();
            self.meter.stats().unsent.store(socket.dropped(), Relaxed);
        }
        more
    }

    fn read_messages(&mut self, now: Instant) -> bool {
        for _ in 0..MESSAGES {
            let Ok(message) = self.messages.try_recv() else { return false };
            self.message(now, message);
            thread::serves(None);
        }
        true
    }

    fn message(&mut self, now: Instant, message: Message) {
        match message {
            Message::Ready(kit) => self.kit = Some(*kit),
            Message::Offer(offer) => {
                thread::serves(Some(offer.conversation));
                self.offer(now, *offer);
            }
            Message::Opened(key, opening) => self.opened(now, key, opening),
            Message::Evict { conversation, offer } => {
                if let Some(key) = self.by_conversation.get(&conversation).copied() {
                    self.evict(now, key, offer);
                }
            }
            Message::Loopback(call) => {
                thread::serves(Some(call.opening.call.id));
                self.begin_loopback(now, *call);
            }
            Message::Command { conversation, command, reply } => {
                self.command(now, conversation, command, reply);
            }
            Message::HangUp { conversation, connection, reply } => {
                let key = self.by_conversation.get(&conversation).copied();
                let found = key.is_some_and(|key| self.hang_up(now, key, &connection));
                // Whoever asked may have gone meanwhile.
                let _ = reply.send(found);
            }
            Message::News(key, news) => {
                self.within(now, key, |node| node.news(now, news));
                self.touch(key);
            }
            Message::Tcp(datagram) => {
                let tcp::Datagram { source, destination, mut contents } = *datagram;
                self.datagram(now, Protocol::Tcp, source, destination, &mut contents);
            }
            Message::Stop { exit_message } => {
                let reason = conversation::event::EndReason::EndedByApi;
                let keys: Vec<_> = self.nodes.keys().copied().collect();
                for key in keys {
                    let stop = conversation::input::Command::Stop { reason, exit_message };
                    self.within(now, key, |node| node.command(now, stop, None));
                    self.touch(key);
                }
                for key in self.pending.keys().copied().collect::<Vec<_>>() {
                    self.give_up(key);
                }
            }
            Message::Quit => self.running = false,
        }
    }

    fn touch(&mut self, key: CallKey) {
        if self.touched.last() != Some(&key) {
            self.touched.push(key);
        }
    }

    /// Every 10 ms: sound in, windows judged together, sound out.
    fn tick(&mut self, now: Instant) {
        let late = now.saturating_duration_since(self.next_tick);
        self.meter.tick(late, self.nodes.len());
        let missed = late.as_micros() / TICK.as_micros();
        self.next_tick += TICK * (u32::try_from(missed).unwrap_or(u32::MAX - 1) + 1);
        self.each(now, |node, meter| {
            node.hear(now);
            meter.excess(node.take_excess());
        });
        while self.judge(now) {}
    }

    /// Judges one window of every call that has one; whether any had.
    fn judge(&mut self, now: Instant) -> bool {
        let Some(kit) = &mut self.kit else { return false };
        self.probabilities.clear();
        let mut nodes = self.nodes.values_mut().peekable();
        while nodes.peek().is_some() {
            let mut states: SmallVec<[&mut State; BATCH]> = SmallVec::new();
            let mut windows: SmallVec<[&[f32; WINDOW]; BATCH]> = SmallVec::new();
            for node in nodes.by_ref() {
                let hearing = node.hearing();
                if let Some((window, _)) = hearing.ready.front() {
                    states.push(&mut hearing.state);
                    windows.push(window);
                }
                if states.len() == BATCH {
                    break;
                }
            }
            let from = self.probabilities.len();
            self.probabilities.resize(from + states.len(), 0.0);
            kit.judge.judge(&mut states, &windows, &mut self.probabilities[from..]);
        }
        let probabilities = std::mem::take(&mut self.probabilities);
        let mut judged = probabilities.iter();
        self.each(now, |node, _| {
            if node.waits_for_judgement()
                && let Some(p) = judged.next()
            {
                node.judged(now, *p);
            }
        });
        self.meter.stats().windows.fetch_add(probabilities.len() as u64, Relaxed);
        let any = !probabilities.is_empty();
        self.probabilities = probabilities;
        any
    }

    /// Lets one call do what is due.
    fn serve(&mut self, now: Instant, key: CallKey, tick: bool) {
        let Some(node) = self.nodes.get_mut(&key) else { return self.serve_pending(now, key) };
        thread::serves(Some(node.call.id));
        let (socket, tcp, meter, next_tick) = (&mut self.socket, &self.tcp, &mut self.meter, self.next_tick);
        let served = contained(|| {
            if tick {
                node.look_at_the_clock(now);
                node.speak(now, meter);
            }
            let mut transmit = |datagram| transmit(socket, tcp, datagram);
            node.set_tick(next_tick);
            node.drive(now, &mut transmit);
            let fate = node.clocks(now);
            node.drive(now, &mut transmit);
            node.due = node.deadline(now);
            node.settled = node.is_settled(now);
            fate
        });
        let Some(fate) = served else { return self.broke(now, key) };
        for link in node.dropped_links() {
            self.demux.remove(&Slot { call: key, link });
        }
        if fate == Fate::Over {
            self.forget(key);
        }
    }

    /// A call is over: nothing leads to it any more.
    fn forget(&mut self, key: CallKey) -> Option<Box<Node>> {
        let node = self.nodes.remove(&key)?;
        self.meter.stats().ended.fetch_add(1, Relaxed);
        for link in node.links() {
            self.demux.remove(&Slot { call: key, link });
        }
        self.by_conversation.remove(&node.call.id);
        if self.nodes.is_empty() {
            self.meter.rest();
        }
        Some(node)
    }
}

/// Sends a datagram by the way that its connection has.
fn transmit(
    socket: &mut Option<Socket>,
    tcp: &Option<(tcp::Outlet, Vec<LocalCandidate>)>,
    datagram: Transmit,
) {
    match (datagram.proto, socket, tcp) {
        (Protocol::Udp, Some(socket), _) => socket.send(datagram),
        (Protocol::Tcp, _, Some((outlet, _))) => {
            outlet.send(datagram.destination, datagram.contents.to_vec())
        }
        _ => {}
    }
}
