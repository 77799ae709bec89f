//! ICE-TCP (passive) on one port, for networks without UDP. Datagrams are framed by RFC 4571: two
//! bytes of length, then the datagram.
//!
//! The server runs on its own thread. The first frame of a connection must be a STUN check. Its
//! user name determines the call, hence the media thread that receives the datagrams. Nothing is
//! trusted here: the media thread verifies each datagram, as with UDP.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use str0m::net::Protocol;

use super::socket::stun_ufrag;
use super::webrtc::LocalCandidate;

/// Maximum length of a datagram, bytes.
const MAX_FRAME_BYTES: usize = 2000;
/// Maximum size of the send queue for a slow client, bytes. Over that, datagrams are dropped,
/// because media is live.
const MAX_SEND_QUEUE_BYTES: usize = 256 * 1024;
/// Maximum number of connections in total, and per address (loopback exempt).
const MAX_CONNECTIONS: usize = 2048;
const MAX_CONNECTIONS_PER_ADDRESS: usize = 32;
/// A connection is closed if nothing arrives for this long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Capacity of the queue of datagrams from the media threads.
const OUTGOING_QUEUE_LEN: usize = 8192;

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

/// Sends datagrams from the media threads to TCP clients.
#[derive(Clone)]
pub struct DatagramSender {
    queue: Sender<Option<(SocketAddr, Vec<u8>)>>,
    waker: Arc<Waker>,
}

impl DatagramSender {
    /// Sends a datagram over the connection from `destination`. It is dropped if there is no such
    /// connection or the queue is full. Never blocks.
    pub fn send(&self, destination: SocketAddr, contents: Vec<u8>) {
        if self.queue.try_send(Some((destination, contents))).is_ok() {
            drop(self.waker.wake());
        }
    }

    /// Stops [`Server::run`].
    pub fn stop(&self) {
        drop(self.queue.send(None));
        drop(self.waker.wake());
    }
}

/// Splits a byte stream into frames.
#[derive(Default)]
pub struct FrameDecoder {
    ufrag: Option<String>,
    /// Bytes of an incomplete frame.
    buffer: Vec<u8>,
}

impl FrameDecoder {
    /// The user name of the first check; `None` until that check is complete.
    #[must_use]
    pub fn ufrag(&self) -> Option<&str> {
        self.ufrag.as_deref()
    }

    /// Adds the stream's next bytes. Each complete frame goes to `deliver`, with the user name of
    /// the first check. False if the stream must be closed: a frame is longer than 2,000 bytes, the
    /// first one is no STUN check, or `deliver` returned false.
    pub fn push(&mut self, bytes: &[u8], mut deliver: impl FnMut(&str, &[u8]) -> bool) -> bool {
        self.buffer.extend(bytes);
        let mut rest = &self.buffer[..];
        while let [high, low, tail @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if length > MAX_FRAME_BYTES {
                return false;
            }
            let Some(contents) = tail.get(..length) else { break };
            rest = &tail[length..];
            if self.ufrag.is_none() {
                self.ufrag = stun_ufrag(contents).map(str::to_owned);
            }
            let Some(ufrag) = &self.ufrag else { return false };
            if !deliver(ufrag, contents) {
                return false;
            }
        }
        let read = self.buffer.len() - rest.len();
        self.buffer.drain(..read);
        true
    }
}

struct TcpConnection {
    stream: TcpStream,
    source: SocketAddr,
    decoder: FrameDecoder,
    outgoing: Vec<u8>,
    opened_at: Instant,
    last_heard: Instant,
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
            .map(|ip| LocalCandidate { address: SocketAddr::new(*ip, port), protocol: Protocol::Tcp })
            .collect();
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER_TOKEN, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER_TOKEN)?);
        let (sender, queue) = crossbeam_channel::bounded(OUTGOING_QUEUE_LEN);
        let datagram_sender = DatagramSender { queue: sender, waker };
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
        let mut swept = now();
        loop {
            let sweep_interval = if self.connections.is_empty() {
                IDLE_TIMEOUT / 4
            } else {
                self.limits.first_check_timeout / 4
            };
            match self.poll.poll(&mut events, Some(sweep_interval)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            let at = now();
            for event in &events {
                match event.token() {
                    LISTENER_TOKEN => self.accept(at),
                    WAKER_TOKEN => {}
                    token => self.on_ready(token, at, &mut deliver),
                }
            }
            while let Ok(message) = self.outgoing.try_recv() {
                let Some((destination, contents)) = message else { return Ok(()) };
                self.send(destination, &contents);
            }
            if at.saturating_duration_since(swept) >= sweep_interval {
                swept = at;
                let limits = self.limits;
                let is_expired = |c: &TcpConnection| {
                    at.saturating_duration_since(c.last_heard) > IDLE_TIMEOUT
                        || (c.decoder.ufrag().is_none()
                            && at.saturating_duration_since(c.opened_at) > limits.first_check_timeout)
                };
                let is_expired: Vec<Token> =
                    self.connections.iter().filter(|(_, c)| is_expired(c)).map(|(token, _)| *token).collect();
                is_expired.into_iter().for_each(|token| self.close(token));
            }
        }
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
        // Errors other than "would block" (too many open files, for example) are retried on the
        // next event.
        while let Ok((mut stream, source)) = self.listener.accept() {
            self.evict_oldest_pending(source.ip());
            let same = self.connections.values().filter(|c| c.source.ip() == source.ip()).count();
            let over_limit = same >= MAX_CONNECTIONS_PER_ADDRESS && !source.ip().is_loopback();
            if over_limit || self.connections.len() >= MAX_CONNECTIONS || !source.is_ipv4() {
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
                    outgoing: Vec::new(),
                    opened_at: now,
                    last_heard: now,
                };
                self.connections.insert(token, connection);
                self.tokens.insert(source, token);
            }
        }
    }

    fn on_ready(&mut self, token: Token, now: Instant, deliver: &mut impl FnMut(&str, Datagram) -> bool) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let local = connection.stream.local_addr().ok();
        let known = |address: &SocketAddr| self.candidates.iter().any(|c| c.address == *address);
        let destination = local.filter(known).or(self.candidates.first().map(|c| c.address));
        let alive = destination.is_some_and(|to| connection.read(now, to, deliver)) && connection.write();
        if !alive {
            self.close(token);
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
    /// Reads all available bytes; false if the connection is closed.
    fn read(
        &mut self,
        now: Instant,
        destination: SocketAddr,
        deliver: &mut impl FnMut(&str, Datagram) -> bool,
    ) -> bool {
        let mut buffer = [0; 16 * 1024];
        loop {
            let length = match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            self.last_heard = now;
            let source = self.source;
            let go_on = self.decoder.push(&buffer[..length], |ufrag, contents| {
                deliver(ufrag, Datagram { source, destination, contents: contents.to_vec() })
            });
            if !go_on {
                return false;
            }
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
