//! A media thread: its socket, inbox, tick and calls.
//!
//! [`MediaThread::step`] does all work that is due at a given instant and never waits.
//! [`MediaThread::run`] calls the same step with the clock's time. Between steps it sleeps until a
//! datagram, a message or a deadline. A test calls `step` with its own instants.

mod datagrams;
mod offers;
mod panic_isolation;
mod pending_calls;
mod read_budget;
mod rooms;
mod run_loop;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use conversation::id::ConversationId;
use crossbeam_channel::Receiver;
use engine_api::HangUp;
use mio::{Interest, Poll, Token, Waker};
use models::Sink;
use models::panic_isolation::catch_panic;
use smallvec::SmallVec;

use crate::call::pending_call::PendingCall;
use crate::call::{Call, Lifecycle};
use crate::channel::{self, Sender};
use crate::clock::TICK_INTERVAL;
use crate::context::EngineContext;
use crate::hear::vad::{NetworkState, WINDOW};
use crate::messages::{CallId, Message, ThreadResources};
use crate::stats::{StepMeter, ThreadStats};
use crate::thread;
use crate::transport::demux::Demux;
use crate::transport::socket::Socket;
use crate::transport::tcp;
use crate::transport::webrtc::{LocalCandidate, Protocol, Transmit};
use read_budget::{MESSAGES, ReadBudget};
use rooms::RoomSockets;

/// Limit of connections per call: the one that carries it, and offers that try to take over.
const MAX_CONNECTIONS_PER_CALL: usize = 4;
/// Number of windows in one batch of the VAD.
const VAD_BATCH_SIZE: usize = 16;

const SOCKET_TOKEN: Token = Token(0);
const WAKER_TOKEN: Token = Token(1);
const ROOMS_TOKEN: Token = Token(2);

/// Identifies a connection of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ConnectionRef {
    call: CallId,
    connection: u32,
}

/// The senders to a media thread.
#[derive(Clone)]
pub struct Inbox {
    /// Offers, commands, hang-ups.
    pub requests: Sender<Message>,
    /// Events of models and tools.
    pub stage_events: Sender<Message>,
    /// Datagrams received by TCP, in a queue of their own.
    pub tcp: Sender<tcp::Datagram>,
}

/// The receiving ends of an [`Inbox`].
type Receivers = (Receiver<Message>, Receiver<tcp::Datagram>);

impl Inbox {
    fn new(waker: Option<Arc<Waker>>) -> (Self, Receivers) {
        let (requests, messages) = channel::open(&channel::REQUESTS, waker.clone());
        let (tcp, tcp_datagrams) = channel::open(&channel::TCP, waker);
        let stage_events = requests.with_channel(&channel::STAGE_EVENTS);
        (Self { requests, stage_events, tcp }, (messages, tcp_datagrams))
    }

    /// A sink for the stage events of one call.
    #[must_use]
    pub fn stage_event_sink(&self, key: CallId) -> Sink<crate::messages::StageEvent> {
        let stage_events = self.stage_events.clone();
        // The channel counts what it drops when it stays full; nothing more can be done here.
        Sink::new(move |event| drop(stage_events.send(Message::StageEvent(key, event))))
    }
}

/// The state of a media thread.
pub struct MediaThread {
    poll: Option<Poll>,
    socket: Option<Socket>,
    rooms: RoomSockets,
    tcp: Option<tcp::IceTcp>,
    candidates: Vec<LocalCandidate>,
    demux: Demux<ConnectionRef>,
    messages: Receiver<Message>,
    tcp_datagrams: Receiver<tcp::Datagram>,
    inbox: Inbox,
    context: Arc<EngineContext>,
    meter: StepMeter,
    resources: Option<ThreadResources>,
    calls: BTreeMap<CallId, Box<Call>>,
    /// Calls that consist only of offers so far.
    pending_calls: BTreeMap<CallId, Box<PendingCall>>,
    by_conversation: HashMap<ConversationId, CallId>,
    next_tick: Instant,
    /// Calls to serve in this step because of a message, a datagram or a deadline.
    touched: Vec<CallId>,
    /// Earliest deadline of all calls, pending ones included. Excludes the tick.
    next_deadline: Option<Instant>,
    probabilities: Vec<f32>,
    running: bool,
    /// Whether the socket is read only on ticks instead of on each datagram. True when every call
    /// is past its handshakes: audio is processed on the tick anyway. A wake-up for each datagram
    /// would cost an idle call a third more CPU time.
    reads_socket_on_tick: bool,
    /// The socket was not empty after the last step.
    socket_unread: bool,
    /// Last datagrams of calls that failed while the socket was being read.
    final_datagrams: Vec<Transmit>,
    /// Failed calls that the event sink has not recorded yet.
    unreported_failures: Vec<ConversationId>,
}

impl MediaThread {
    /// A media thread without a network, for loopback calls: a test steps it.
    #[must_use]
    pub fn without_network(
        context: Arc<EngineContext>,
        now: Instant,
    ) -> (Self, Inbox, Arc<ThreadStats>) {
        let (inbox, receivers) = Inbox::new(None);
        Self::from_parts(None, None, None, inbox, receivers, context, now)
    }

    /// A media thread with its own socket.
    ///
    /// # Errors
    /// The poll cannot be set up.
    pub fn new(
        mut socket: Socket,
        tcp: Option<tcp::IceTcp>,
        context: Arc<EngineContext>,
        now: Instant,
    ) -> io::Result<(Self, Inbox, Arc<ThreadStats>)> {
        let poll = Poll::new()?;
        poll.registry().register(&mut socket, SOCKET_TOKEN, Interest::READABLE)?;
        let (inbox, receivers) =
            Inbox::new(Some(Arc::new(Waker::new(poll.registry(), WAKER_TOKEN)?)));
        Ok(Self::from_parts(Some(poll), Some(socket), tcp, inbox, receivers, context, now))
    }

    fn from_parts(
        poll: Option<Poll>,
        socket: Option<Socket>,
        tcp: Option<tcp::IceTcp>,
        inbox: Inbox,
        (messages, tcp_datagrams): Receivers,
        context: Arc<EngineContext>,
        now: Instant,
    ) -> (Self, Inbox, Arc<ThreadStats>) {
        let stats = Arc::new(ThreadStats::new(context.max_load));
        let mut candidates = socket.as_ref().map(|s| s.candidates().to_vec()).unwrap_or_default();
        candidates.extend(tcp.iter().flat_map(|(_, c)| c.iter().copied()));
        let media_thread = Self {
            poll,
            socket,
            rooms: RoomSockets::default(),
            tcp,
            candidates,
            demux: Demux::new(),
            messages,
            tcp_datagrams,
            inbox: inbox.clone(),
            context,
            meter: StepMeter::new(Arc::clone(&stats)),
            resources: None,
            calls: BTreeMap::new(),
            pending_calls: BTreeMap::new(),
            by_conversation: HashMap::new(),
            next_tick: now,
            touched: Vec::with_capacity(64),
            next_deadline: None,
            probabilities: Vec::with_capacity(64),
            running: true,
            reads_socket_on_tick: false,
            socket_unread: false,
            final_datagrams: Vec::new(),
            unreported_failures: Vec::new(),
        };
        (media_thread, inbox, stats)
    }

    /// The latest time at which [`MediaThread::step`] is due; `None` = only a message or datagram
    /// makes it due.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        let tick = (!self.calls.is_empty()).then_some(self.next_tick);
        [tick, self.next_deadline].into_iter().flatten().min()
    }

    /// Number of calls on this thread, pending and closing ones included.
    #[must_use]
    pub fn call_count(&self) -> usize {
        self.calls.len() + self.pending_calls.len()
    }

    /// Does the work that is due at `now`; the step counts as taking no time. Returns whether more
    /// input waits to be read.
    pub fn step(&mut self, now: Instant) -> bool {
        self.step_with_clock(now, &|| now)
    }

    /// Like [`MediaThread::step`], but the step ends its reading of input by this clock.
    pub fn step_with_clock(&mut self, now: Instant, clock: &dyn Fn() -> Instant) -> bool {
        let more = self.run_step(now, clock);
        self.meter.end_step(Duration::ZERO);
        more
    }

    /// One step. `clock` only limits how long it reads input; all work is done for `now`.
    fn run_step(&mut self, now: Instant, clock: &dyn Fn() -> Instant) -> bool {
        let budget = ReadBudget::new(now, clock);
        let mut more = self.read_messages(now, &budget);
        more |= self.read_tcp(now, &budget);
        let tick = !self.calls.is_empty() && now >= self.next_tick;
        // Datagrams that exceeded the last step's limit are read at once. They could be lost if
        // more arrive before the next tick.
        if tick || !self.reads_socket_on_tick || self.socket_unread {
            self.socket_unread = self.read_socket(now, &budget);
            self.socket_unread |= self.read_room_sockets(now, &budget);
            more |= self.socket_unread;
        }
        if tick {
            self.tick(now);
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|deadline| now >= deadline);
        if tick {
            // A tick serves all calls, and the pending ones that were touched.
            self.touched.retain(|key| self.pending_calls.contains_key(key));
            self.touched.extend(self.calls.keys());
        } else if is_due(self.next_deadline) {
            let due_calls = self.calls.iter().filter(|(_, call)| is_due(call.cached_deadline));
            self.touched.extend(due_calls.map(|(key, _)| *key));
        }
        if is_due(self.next_deadline) {
            let due_calls =
                self.pending_calls.iter().filter(|(_, call)| is_due(call.next_deadline));
            self.touched.extend(due_calls.map(|(key, _)| *key));
        }
        // The call that was due may be gone; `next_deadline` must then be computed again.
        if !self.touched.is_empty() || is_due(self.next_deadline) {
            let mut touched = std::mem::take(&mut self.touched);
            // The datagrams of several calls alternate; each call is served once.
            touched.sort_unstable();
            touched.dedup();
            for key in touched.drain(..) {
                self.serve_call(now, key, tick);
            }
            thread::set_current_call(None);
            self.touched = touched;
            let deadlines = self.calls.values().filter_map(|call| call.cached_deadline);
            let pending_deadlines =
                self.pending_calls.values().filter_map(|pending| pending.next_deadline);
            self.next_deadline = deadlines.chain(pending_deadlines).min();
            let settled = self.pending_calls.is_empty()
                && self.calls.values().all(|call| call.past_handshake);
            self.reads_socket_on_tick = settled && !self.calls.is_empty();
        }
        if let Some(socket) = &mut self.socket {
            socket.flush();
            self.meter.stats().send_dropped_datagrams.store(socket.dropped(), Relaxed);
        }
        more
    }

    /// Handles the messages of the inbox, in order. An offer is the last message of its step: an
    /// SDP of 64 KiB takes more than a tick to read, and several would silence the other calls.
    /// Returns whether there are more messages.
    fn read_messages(&mut self, now: Instant, budget: &ReadBudget<'_>) -> bool {
        let mut count = 0;
        while budget.admits(MESSAGES, count) {
            let Ok(message) = self.messages.try_recv() else { return false };
            count += 1;
            let is_offer = matches!(message, Message::Offer(_));
            self.handle_message(now, message);
            thread::set_current_call(None);
            if is_offer {
                break;
            }
        }
        !self.messages.is_empty()
    }

    fn handle_message(&mut self, now: Instant, message: Message) {
        match message {
            Message::Ready(resources) => self.resources = Some(*resources),
            Message::Offer(offer) => {
                thread::set_current_call(Some(offer.conversation));
                self.handle_offer(now, *offer);
            }
            Message::CallSetup(key, setup) => self.start_call(now, key, setup),
            Message::EvictOffer { conversation, number: offer } => {
                if let Some(key) = self.by_conversation.get(&conversation).copied() {
                    self.evict_offer(now, key, offer);
                }
            }
            Message::Loopback(call) => {
                thread::set_current_call(Some(call.setup.config.id));
                self.start_loopback_call(now, *call);
            }
            Message::Line(request) => {
                thread::set_current_call(Some(request.conversation));
                self.open_line(now, *request);
            }
            Message::Room(request) => {
                thread::set_current_call(Some(request.conversation));
                self.open_room(now, *request);
            }
            Message::RoomSignal { conversation, connection, signal } => {
                self.handle_room_signal(now, conversation, &connection, signal);
            }
            Message::Command { conversation, command, reply } => {
                self.handle_command(now, conversation, command, reply);
            }
            Message::HangUp { conversation, connection, reply } => {
                let key = self.by_conversation.get(&conversation).copied();
                let closed =
                    key.map_or(HangUp::NotFound, |key| self.hang_up(now, key, &connection));
                // The requester may have stopped waiting.
                let _ = reply.send(closed);
            }
            Message::StageEvent(key, event) => {
                if let Some(pending) = self.pending_calls.get_mut(&key) {
                    return pending.store_stage_event(event);
                }
                self.with_call(now, key, |call| call.handle_stage_event(now, event));
                self.touch(key);
            }
            Message::Stop { exit_message } => {
                let reason = conversation::event::EndReason::EndedByApi;
                let keys: Vec<_> = self.calls.keys().copied().collect();
                for key in keys {
                    let stop = conversation::input::Command::Stop { reason, exit_message };
                    self.with_call(now, key, |call| call.handle_command(now, stop, None));
                    self.touch(key);
                }
                for key in self.pending_calls.keys().copied().collect::<Vec<_>>() {
                    self.drop_pending_call(key);
                }
            }
            Message::Quit => self.running = false,
        }
    }

    fn touch(&mut self, key: CallId) {
        if self.touched.last() != Some(&key) {
            self.touched.push(key);
        }
    }

    /// Runs every 10 ms: takes audio in, and runs the VAD on the windows of all calls.
    /// [`MediaThread::serve_call`] then sends audio.
    fn tick(&mut self, now: Instant) {
        let late = now.saturating_duration_since(self.next_tick);
        self.meter.record_tick(late, self.calls.len());
        let missed = late.as_micros() / TICK_INTERVAL.as_micros();
        self.next_tick += TICK_INTERVAL * (u32::try_from(missed).unwrap_or(u32::MAX - 1) + 1);
        self.for_each_call(now, |call, meter| {
            call.receive_audio(now);
            meter.record_excess_packets(call.take_excess_packets());
        });
        while self.run_vad(now) {}
    }

    /// Runs the VAD on one window of each call that has one. Returns whether any call had one.
    fn run_vad(&mut self, now: Instant) -> bool {
        let Some(resources) = &mut self.resources else { return false };
        self.probabilities.clear();
        let mut calls = self.calls.values_mut().peekable();
        while calls.peek().is_some() {
            let mut states: SmallVec<[&mut NetworkState; VAD_BATCH_SIZE]> = SmallVec::new();
            let mut windows: SmallVec<[&[f32; WINDOW]; VAD_BATCH_SIZE]> = SmallVec::new();
            for call in calls.by_ref() {
                let audio_input = call.audio_input();
                if let Some((window, _)) = audio_input.pending_windows.front() {
                    states.push(&mut audio_input.network_state);
                    windows.push(window);
                }
                if states.len() == VAD_BATCH_SIZE {
                    break;
                }
            }
            let from = self.probabilities.len();
            self.probabilities.resize(from + states.len(), 0.0);
            resources.vad.infer(&mut states, &windows, &mut self.probabilities[from..]);
        }
        let probabilities = std::mem::take(&mut self.probabilities);
        let mut results = probabilities.iter();
        self.for_each_call(now, |call, _| {
            if call.has_vad_window()
                && let Some(p) = results.next()
            {
                call.on_probability(now, *p);
            }
        });
        self.meter.stats().vad_windows.fetch_add(probabilities.len() as u64, Relaxed);
        let any = !probabilities.is_empty();
        self.probabilities = probabilities;
        any
    }

    /// Does the work of one call that is due.
    fn serve_call(&mut self, now: Instant, key: CallId, tick: bool) {
        let Some(call) = self.calls.get_mut(&key) else { return self.serve_pending_call(now, key) };
        thread::set_current_call(Some(call.config.id));
        let (socket, tcp, meter, next_tick) =
            (&mut self.socket, &self.tcp, &mut self.meter, self.next_tick);
        let served = catch_panic(|| {
            if tick {
                call.tick_conversation(now);
                call.send_media(now, meter);
            }
            let mut transmit = |datagram| transmit(socket, tcp, datagram);
            call.set_next_tick(next_tick);
            call.poll_connections(now, &mut transmit);
            let lifecycle = call.check_deadlines(now);
            call.poll_connections(now, &mut transmit);
            call.cached_deadline = call.next_deadline(now);
            call.past_handshake = call.is_past_handshake(now);
            lifecycle
        });
        let Some(lifecycle) = served else { return self.fail_call(now, key) };
        for connection in call.take_dropped_connections() {
            self.demux.remove(&ConnectionRef { call: key, connection });
        }
        if lifecycle == Lifecycle::Finished {
            self.remove_call(key);
        }
    }

    /// Removes a call, with all routes that lead to it.
    fn remove_call(&mut self, key: CallId) -> Option<Box<Call>> {
        let call = self.calls.remove(&key)?;
        self.meter.stats().ended_calls.fetch_add(1, Relaxed);
        for connection in call.connection_numbers() {
            self.demux.remove(&ConnectionRef { call: key, connection });
        }
        self.by_conversation.remove(&call.config.id);
        if self.calls.is_empty() {
            self.meter.reset();
        }
        Some(call)
    }
}

/// Sends a datagram by the connection's protocol, UDP or TCP.
fn transmit(socket: &mut Option<Socket>, tcp: &Option<tcp::IceTcp>, datagram: Transmit) {
    match (datagram.proto, socket, tcp) {
        (Protocol::Udp, Some(socket), _) => socket.send(datagram),
        (Protocol::Tcp, _, Some((tcp_sender, _))) => {
            tcp_sender.send(datagram.destination, datagram.contents.to_vec())
        }
        _ => {}
    }
}
