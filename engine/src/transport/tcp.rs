//! ICE-TCP (passive) on one port, for networks without UDP. Datagrams are framed by RFC 4571: two
//! bytes of length, then the datagram.
//!
//! The server runs on its own thread. The first frame of a connection must be a STUN check. Its
//! user name determines the call, hence the media thread that receives the datagrams. Nothing is
//! trusted here: the media thread verifies each datagram, as with UDP.
//!
//! Connections take turns. A turn reads a bounded number of bytes and frames; what is left waits
//! until every other connection that has something had its turn. A connection that sends frames
//! faster than the rate limit is not read for a while: TCP then slows its sender down.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use models::thread_health::ThreadHealth;
use str0m::net::Protocol;

use super::tcp_framing::{Decoded, MAX_FRAME_BYTES};
use super::webrtc::LocalCandidate;
use super::{MAX_DATAGRAM_BURST, MAX_DATAGRAMS_PER_SECOND};
use crate::token_bucket::TokenBucket;

pub use super::tcp_framing::FrameDecoder;

/// Maximum size of the send queue for a slow client, bytes. Over that, datagrams are dropped,
/// because media is live.
const MAX_SEND_QUEUE_BYTES: usize = 256 * 1024;
/// Maximum number of connections in total, and per address (loopback exempt).
const MAX_TCP_CONNECTIONS: usize = 2048;
const MAX_CONNECTIONS_PER_ADDRESS: usize = 32;
/// A connection is closed if nothing arrives for this long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Capacity of the queue of datagrams from the media threads.
const OUTGOING_QUEUE_LEN: usize = 8192;
/// Maximum number of bytes, and of frames, that are read from a connection in one turn.
const MAX_BYTES_PER_TURN: usize = 16 * 1024;
const MAX_FRAMES_PER_TURN: usize = 64;
/// Maximum number of datagrams that are sent between two turns.
const MAX_SENT_PER_TURN: usize = 256;
/// Maximum number of connections that are accepted between two rounds of turns.
const MAX_ACCEPTED_PER_ROUND: usize = 64;
/// Interval at which a connection over its rate limit is tried again.
const RATE_LIMIT_PAUSE: Duration = Duration::from_millis(10);

const LISTENER_TOKEN: Token = Token(0);
const WAKER_TOKEN: Token = Token(1);

/// Limits for pending connections, which have not sent a check yet. Anyone can open them. A new one
/// over the limit evicts the oldest pending one, so that silent connections cannot block clients
/// that send.
#[derive(Clone, Copy, Debug)]
struct PendingLimits {
    /// Time within which the first check must be complete.
    first_check_timeout: Duration,
    /// Maximum number of pending connections in total.
    max_pending: usize,
    /// Maximum number of pending connections per address, loopback included.
    max_pending_per_address: usize,
}

const PENDING_LIMITS: PendingLimits = PendingLimits {
    first_check_timeout: Duration::from_secs(5),
    max_pending: 256,
    max_pending_per_address: 16,
};

/// A datagram received over TCP.
#[derive(Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The client's end of the connection.
    pub source: SocketAddr,
    /// The local candidate that the client connected to.
    pub destination: SocketAddr,
    /// The payload, as it would arrive over UDP.
    pub contents: Vec<u8>,
}

/// ICE-TCP for a media thread: where its datagrams go, and the server's candidates.
pub type IceTcp = (DatagramSender, Vec<LocalCandidate>);

/// Sends datagrams from the media threads to TCP clients.
#[derive(Clone)]
pub struct DatagramSender {
    queue: Sender<Option<(SocketAddr, Vec<u8>)>>,
    waker: Arc<Waker>,
    /// The one thread of the server.
    health: Arc<ThreadHealth>,
}

impl DatagramSender {
    /// Sends a datagram over the connection from `destination`. It is dropped if there is no such
    /// connection or the queue is full. Never blocks.
    pub fn send(&self, destination: SocketAddr, contents: Vec<u8>) {
        if self.queue.try_send(Some((destination, contents))).is_ok() {
            drop(self.waker.wake());
        }
    }

    /// Whether the server's thread has failed and does not serve again yet.
    #[must_use]
    pub fn health(&self) -> &ThreadHealth {
        &self.health
    }

    /// Whether clients can connect.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        !self.health.is_failed(0)
    }

    /// Stops [`Server::run`].
    pub fn stop(&self) {
        drop(self.queue.send(None));
        drop(self.waker.wake());
    }
}

struct TcpConnection {
    stream: TcpStream,
    source: SocketAddr,
    decoder: FrameDecoder,
    /// Rate limit of its frames.
    frame_bucket: TokenBucket,
    /// Whether it waits for a turn, in [`Server::ready`] or [`Server::rate_limited`].
    is_queued: bool,
    outgoing: Vec<u8>,
    opened_at: Instant,
    last_heard: Instant,
}

/// What a turn of a connection leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Nothing: the system reports its next bytes.
    Drained,
    /// There may be more bytes or frames.
    Unread,
    /// There are more frames, but it is over its rate limit.
    RateLimited,
    /// The connection must be closed.
    Closed,
}

/// The listener and its connections.
pub struct Server {
    poll: Poll,
    listener: TcpListener,
    candidates: Vec<LocalCandidate>,
    datagram_sender: DatagramSender,
    outgoing: Receiver<Option<(SocketAddr, Vec<u8>)>>,
    connections: HashMap<Token, TcpConnection>,
    tokens: HashMap<SocketAddr, Token>,
    next_token: usize,
    limits: PendingLimits,
    /// Connections that wait for a turn; some may be closed by now.
    ready: VecDeque<Token>,
    /// Connections over their rate limit; some may be closed by now.
    rate_limited: Vec<Token>,
    /// When those over their rate limit were last tried again.
    last_resume: Option<Instant>,
    /// Whether connections wait to be accepted.
    may_accept: bool,
    /// When expired connections were last closed.
    last_sweep: Option<Instant>,
}

impl Server {
    /// Listens on `port` (0 = any). It announces the addresses of `public`, or those of `hosts` if
    /// `public` is empty.
    ///
    /// # Errors
    ///
    /// The port is in use.
    pub fn bind(port: u16, hosts: &[IpAddr], public: &[IpAddr]) -> io::Result<Self> {
        let local = public.is_empty() && hosts.iter().all(IpAddr::is_loopback);
        let ip: IpAddr = if local { [127, 0, 0, 1].into() } else { [0, 0, 0, 0].into() };
        let mut listener = TcpListener::bind(SocketAddr::new(ip, port))?;
        let port = listener.local_addr()?.port();
        let advertised = if public.is_empty() { hosts } else { public };
        let candidates = advertised
            .iter()
            .filter(|ip| ip.is_ipv4())
            .map(|ip| LocalCandidate {
                address: SocketAddr::new(*ip, port),
                protocol: Protocol::Tcp,
            })
            .collect();
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER_TOKEN, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER_TOKEN)?);
        let (sender, queue) = crossbeam_channel::bounded(OUTGOING_QUEUE_LEN);
        let health = Arc::new(ThreadHealth::new(1));
        let datagram_sender = DatagramSender { queue: sender, waker, health };
        Ok(Self {
            poll,
            listener,
            candidates,
            datagram_sender,
            outgoing: queue,
            connections: HashMap::new(),
            tokens: HashMap::new(),
            next_token: 2,
            limits: PENDING_LIMITS,
            ready: VecDeque::new(),
            rate_limited: Vec::new(),
            last_resume: None,
            may_accept: false,
            last_sweep: None,
        })
    }

    /// The candidates to announce to clients.
    #[must_use]
    pub fn candidates(&self) -> &[LocalCandidate] {
        &self.candidates
    }

    /// A sender of datagrams to the clients of this server.
    #[must_use]
    pub fn datagram_sender(&self) -> DatagramSender {
        self.datagram_sender.clone()
    }

    /// Runs until [`DatagramSender::stop`]. `deliver(ufrag, datagram)` passes a datagram to the
    /// call with that user name. If it returns false, there is no such call and the connection is
    /// closed.
    ///
    /// # Errors
    ///
    /// The system's error from polling.
    pub fn run(
        &mut self,
        now: impl Fn() -> Instant,
        mut deliver: impl FnMut(&str, Datagram) -> bool,
    ) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        // After a panic, the system does not report again what was not read.
        self.may_accept = true;
        self.rate_limited.clear();
        self.ready = self.connections.keys().copied().collect();
        self.connections.values_mut().for_each(|connection| connection.is_queued = true);
        // The first round polls, so it shows whether the server works.
        let mut serves = self.run_round(&mut events, &now, &mut deliver)?;
        self.datagram_sender.health.set_working(0);
        while serves {
            serves = self.run_round(&mut events, &now, &mut deliver)?;
        }
        Ok(())
    }

    /// Discards datagrams to clients for `delay`, while the server does not run. Otherwise they
    /// would fill their queue and be sent too late. Returns false if the server must stop.
    pub fn discard_outgoing(&self, now: impl Fn() -> Instant, delay: Duration) -> bool {
        let end = now() + delay;
        while now() < end {
            match self.outgoing.recv_deadline(end) {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
        true
    }

    /// Waits until there is something to do, and gives each connection that has something one turn.
    /// Datagrams are sent after each turn. False if the server must stop.
    fn run_round(
        &mut self,
        events: &mut Events,
        now: &impl Fn() -> Instant,
        deliver: &mut impl FnMut(&str, Datagram) -> bool,
    ) -> io::Result<bool> {
        let sweep_interval = if self.connections.is_empty() {
            IDLE_TIMEOUT / 4
        } else {
            self.limits.first_check_timeout / 4
        };
        let wait = if self.may_accept || !self.ready.is_empty() || !self.outgoing.is_empty() {
            Duration::ZERO
        } else if !self.rate_limited.is_empty() {
            RATE_LIMIT_PAUSE
        } else {
            sweep_interval
        };
        match self.poll.poll(events, Some(wait)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            other => other?,
        }
        let at = now();
        for event in &*events {
            match event.token() {
                LISTENER_TOKEN => self.may_accept = true,
                WAKER_TOKEN => {}
                token => self.queue_turn(token),
            }
        }
        if self.may_accept {
            self.accept(at);
        }
        // Not in each round: there may be many rounds in the time of one frame.
        if at.saturating_duration_since(*self.last_resume.get_or_insert(at)) >= RATE_LIMIT_PAUSE {
            self.last_resume = Some(at);
            self.ready.extend(self.rate_limited.drain(..));
        }
        for _ in 0..self.ready.len() {
            if let Some(token) = self.ready.pop_front() {
                self.take_turn(token, at, deliver);
            }
            if !self.send_outgoing() {
                return Ok(false);
            }
        }
        if !self.send_outgoing() {
            return Ok(false);
        }
        if at.saturating_duration_since(*self.last_sweep.get_or_insert(at)) >= sweep_interval {
            self.close_expired(at);
        }
        Ok(true)
    }

    /// Sends datagrams of the media threads. False if the server must stop.
    fn send_outgoing(&mut self) -> bool {
        for _ in 0..MAX_SENT_PER_TURN {
            match self.outgoing.try_recv() {
                Ok(Some((destination, contents))) => self.send(destination, &contents),
                Ok(None) => return false,
                Err(_) => break,
            }
        }
        true
    }

    fn close_expired(&mut self, now: Instant) {
        self.last_sweep = Some(now);
        let limits = self.limits;
        let is_expired = |c: &TcpConnection| {
            now.saturating_duration_since(c.last_heard) > IDLE_TIMEOUT
                || (c.decoder.ufrag().is_none()
                    && now.saturating_duration_since(c.opened_at) > limits.first_check_timeout)
        };
        let expired: Vec<Token> = self
            .connections
            .iter()
            .filter(|(_, c)| is_expired(c))
            .map(|(token, _)| *token)
            .collect();
        expired.into_iter().for_each(|token| self.close(token));
    }

    /// Makes room for one more pending connection.
    fn evict_oldest_pending(&mut self, source: IpAddr) {
        let pending = || self.connections.iter().filter(|(_, c)| c.decoder.ufrag().is_none());
        let pending_of_source = || pending().filter(move |(_, c)| c.source.ip() == source);
        // Tokens increase with every connection, so the smallest one is the oldest.
        let oldest = if pending_of_source().count() >= self.limits.max_pending_per_address {
            pending_of_source().map(|(token, _)| *token).min()
        } else if pending().count() >= self.limits.max_pending {
            pending().map(|(token, _)| *token).min()
        } else {
            None
        };
        if let Some(token) = oldest {
            self.close(token);
        }
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..MAX_ACCEPTED_PER_ROUND {
            // Errors other than "would block" (too many open files, for example) are retried on the
            // next event.
            let Ok((mut stream, source)) = self.listener.accept() else {
                self.may_accept = false;
                return;
            };
            self.evict_oldest_pending(source.ip());
            let same = self.connections.values().filter(|c| c.source.ip() == source.ip()).count();
            let over_limit = same >= MAX_CONNECTIONS_PER_ADDRESS && !source.ip().is_loopback();
            if over_limit || self.connections.len() >= MAX_TCP_CONNECTIONS || !source.is_ipv4() {
                continue;
            }
            let token = Token(self.next_token);
            self.next_token += 1;
            let _ = stream.set_nodelay(true);
            if self
                .poll
                .registry()
                .register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)
                .is_ok()
            {
                let connection = TcpConnection {
                    stream,
                    source,
                    decoder: FrameDecoder::default(),
                    frame_bucket: TokenBucket::new(
                        MAX_DATAGRAMS_PER_SECOND,
                        MAX_DATAGRAM_BURST,
                        now,
                    ),
                    is_queued: false,
                    outgoing: Vec::new(),
                    opened_at: now,
                    last_heard: now,
                };
                self.connections.insert(token, connection);
                self.tokens.insert(source, token);
            }
        }
    }

    /// Queues a connection for its turn, unless it waits for one.
    fn queue_turn(&mut self, token: Token) {
        if let Some(connection) = self.connections.get_mut(&token)
            && !std::mem::replace(&mut connection.is_queued, true)
        {
            self.ready.push_back(token);
        }
    }

    fn take_turn(
        &mut self,
        token: Token,
        now: Instant,
        deliver: &mut impl FnMut(&str, Datagram) -> bool,
    ) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let local = connection.stream.local_addr().ok();
        let known = |address: &SocketAddr| self.candidates.iter().any(|c| c.address == *address);
        let destination = local.filter(known).or(self.candidates.first().map(|c| c.address));
        let turn = destination.map_or(Turn::Closed, |to| connection.read(now, to, deliver));
        match turn {
            Turn::Closed => self.close(token),
            _ if !connection.write() => self.close(token),
            Turn::Drained => connection.is_queued = false,
            Turn::Unread => self.ready.push_back(token),
            Turn::RateLimited => self.rate_limited.push(token),
        }
    }

    fn send(&mut self, destination: SocketAddr, contents: &[u8]) {
        let Some(token) = self.tokens.get(&destination).copied() else { return };
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if contents.len() > MAX_FRAME_BYTES || connection.outgoing.len() > MAX_SEND_QUEUE_BYTES {
            return;
        }
        connection.outgoing.extend((contents.len() as u16).to_be_bytes());
        connection.outgoing.extend(contents);
        if !connection.write() {
            self.close(token);
        }
    }

    fn close(&mut self, token: Token) {
        if let Some(mut connection) = self.connections.remove(&token) {
            self.tokens.remove(&connection.source);
            let _ = self.poll.registry().deregister(&mut connection.stream);
        }
    }
}

impl TcpConnection {
    /// Reads for one turn. Frames that the last turn left come first.
    fn read(
        &mut self,
        now: Instant,
        destination: SocketAddr,
        deliver: &mut impl FnMut(&str, Datagram) -> bool,
    ) -> Turn {
        if !self.decoder.has_frame() {
            let mut buffer = [0; MAX_BYTES_PER_TURN];
            let length = match self.stream.read(&mut buffer) {
                Ok(0) => return Turn::Closed,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Turn::Drained,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Turn::Unread,
                Err(_) => return Turn::Closed,
            };
            self.last_heard = now;
            self.decoder.extend(&buffer[..length]);
        }
        let (source, mut count) = (self.source, 0);
        let frame_bucket = &mut self.frame_bucket;
        let admit = || {
            let admits = count < MAX_FRAMES_PER_TURN && frame_bucket.try_take(now);
            count += usize::from(admits);
            admits
        };
        let decoded = self.decoder.decode(admit, |ufrag, contents| {
            deliver(ufrag, Datagram { source, destination, contents: contents.to_vec() })
        });
        match decoded {
            Decoded::Invalid => Turn::Closed,
            Decoded::Stopped if count < MAX_FRAMES_PER_TURN => Turn::RateLimited,
            // A read that fills only part of the buffer does not show the end of the stream.
            Decoded::Stopped | Decoded::All => Turn::Unread,
        }
    }

    /// Writes queued bytes; false if the connection is closed.
    fn write(&mut self) -> bool {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(0) => return false,
                Ok(length) => drop(self.outgoing.drain(..length)),
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock
                        || error.kind() == io::ErrorKind::NotConnected =>
                {
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
#[allow(clippy::disallowed_methods)] // the tests join the server's thread for its result
mod tests;
