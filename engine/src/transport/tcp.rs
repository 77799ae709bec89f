//! ICE-TCP, passive, on one port, for networks without UDP: datagrams in frames of RFC 4571 (two bytes of length, then the datagram).
//!
//! It runs on a thread of its own. The first frame of a connection must be a STUN check; its user name says which call, hence which
//! media thread, the datagrams are handed to. Nothing is trusted here: the media thread verifies, as it does with UDP.

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

/// Longest datagram.
const MAX_FRAME: usize = 2000;
/// Bytes that wait for a slow client; over that, datagrams are dropped: media is live.
const MAX_WAITING: usize = 256 * 1024;
/// Connections in all, and from one address (loopback exempt).
const MAX_CONNECTIONS: usize = 2048;
const MAX_PER_ADDRESS: usize = 32;
/// A connection of which nothing comes is closed after this long.
const MUTE: Duration = Duration::from_secs(30);
/// Datagrams on their way from media threads.
const OUTGOING: usize = 8192;

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);

/// What connections may do that have not sent a check yet: anybody can open them. Whoever is too many takes the place of the oldest of them,
/// so that silence keeps nobody out who talks.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Their first check is complete within this time.
    first_check: Duration,
    /// So many in all.
    strangers: usize,
    /// So many from one address, loopback too.
    per_address: usize,
}

const LIMITS: Limits = Limits { first_check: Duration::from_secs(5), strangers: 256, per_address: 16 };

/// A datagram that came over TCP.
#[derive(Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The client's end of the connection.
    pub source: SocketAddr,
    /// The candidate that it connected to.
    pub destination: SocketAddr,
    /// As if it had come over UDP.
    pub contents: Vec<u8>,
}

/// The way back, for media threads.
#[derive(Clone)]
pub struct Outlet {
    queue: Sender<Option<(SocketAddr, Vec<u8>)>>,
    waker: Arc<Waker>,
}

impl Outlet {
    /// Sends a datagram over the connection from `destination`; dropped if there is none or the queue is full. Never waits.
    pub fn send(&self, destination: SocketAddr, contents: Vec<u8>) {
        if self.queue.try_send(Some((destination, contents))).is_ok() {
            drop(self.waker.wake());
        }
    }

    /// Ends [`Server::run`].
    pub fn stop(&self) {
        drop(self.queue.send(None));
        drop(self.waker.wake());
    }
}

struct Connection {
    stream: TcpStream,
    source: SocketAddr,
    ufrag: Option<String>,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    since: Instant,
    heard: Instant,
}

/// The listener and its connections.
pub struct Server {
    poll: Poll,
    listener: TcpListener,
    candidates: Vec<LocalCandidate>,
    outlet: Outlet,
    queue: Receiver<Option<(SocketAddr, Vec<u8>)>>,
    connections: HashMap<Token, Connection>,
    tokens: HashMap<SocketAddr, Token>,
    next: usize,
    limits: Limits,
}

impl Server {
    /// Listens on `port` (0 = any) and tells `hosts`, or `public` addresses instead if there are any.
    ///
    /// # Errors
    ///
    /// The port is taken.
    pub fn bind(port: u16, hosts: &[IpAddr], public: &[IpAddr]) -> io::Result<Self> {
        let local = public.is_empty() && hosts.iter().all(IpAddr::is_loopback);
        let ip: IpAddr = if local { [127, 0, 0, 1].into() } else { [0, 0, 0, 0].into() };
        let mut listener = TcpListener::bind(SocketAddr::new(ip, port))?;
        let port = listener.local_addr()?.port();
        let told = if public.is_empty() { hosts } else { public };
        let candidates = told
            .iter()
            .filter(|ip| ip.is_ipv4())
            .map(|ip| LocalCandidate { address: SocketAddr::new(*ip, port), protocol: Protocol::Tcp })
            .collect();
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let (sender, queue) = crossbeam_channel::bounded(OUTGOING);
        let outlet = Outlet { queue: sender, waker };
        Ok(Self {
            poll,
            listener,
            candidates,
            outlet,
            queue,
            connections: HashMap::new(),
            tokens: HashMap::new(),
            next: 2,
            limits: LIMITS,
        })
    }

    /// What to tell clients.
    #[must_use]
    pub fn candidates(&self) -> &[LocalCandidate] {
        &self.candidates
    }

    /// The way back.
    #[must_use]
    pub fn outlet(&self) -> Outlet {
        self.outlet.clone()
    }

    /// Runs until [`Outlet::stop`]. `deliver(ufrag, datagram)` hands a datagram to the call of that name and returns false if there
    /// is none: then the connection is closed.
    ///
    /// # Errors
    ///
    /// The system's, from polling.
    pub fn run(
        &mut self,
        now: impl Fn() -> Instant,
        mut deliver: impl FnMut(&str, Datagram) -> bool,
    ) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        let mut swept = now();
        loop {
            let look = if self.connections.is_empty() { MUTE / 4 } else { self.limits.first_check / 4 };
            match self.poll.poll(&mut events, Some(look)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            let at = now();
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(at),
                    WAKER => {}
                    token => self.serve(token, at, &mut deliver),
                }
            }
            while let Ok(message) = self.queue.try_recv() {
                let Some((destination, contents)) = message else { return Ok(()) };
                self.send(destination, &contents);
            }
            if at.saturating_duration_since(swept) >= look {
                swept = at;
                let limits = self.limits;
                let over = |c: &Connection| {
                    at.saturating_duration_since(c.heard) > MUTE
                        || (c.ufrag.is_none() && at.saturating_duration_since(c.since) > limits.first_check)
                };
                let over: Vec<Token> =
                    self.connections.iter().filter(|(_, c)| over(c)).map(|(token, _)| *token).collect();
                over.into_iter().for_each(|token| self.close(token));
            }
        }
    }

    /// Makes room for one more connection that has not sent a check yet.
    fn make_room(&mut self, source: IpAddr) {
        let strangers = || self.connections.iter().filter(|(_, c)| c.ufrag.is_none());
        let same = || strangers().filter(move |(_, c)| c.source.ip() == source);
        // Tokens rise with every connection.
        let oldest = if same().count() >= self.limits.per_address {
            same().map(|(token, _)| *token).min()
        } else if strangers().count() >= self.limits.strangers {
            strangers().map(|(token, _)| *token).min()
        } else {
            None
        };
        if let Some(token) = oldest {
            self.close(token);
        }
    }

    fn accept(&mut self, now: Instant) {
        // An error other than "no more" (too many files, say) is tried again with the next event.
        while let Ok((mut stream, source)) = self.listener.accept() {
            self.make_room(source.ip());
            let same = self.connections.values().filter(|c| c.source.ip() == source.ip()).count();
            let many = same >= MAX_PER_ADDRESS && !source.ip().is_loopback();
            if many || self.connections.len() >= MAX_CONNECTIONS || !source.is_ipv4() {
                continue;
            }
            let token = Token(self.next);
            self.next += 1;
            let _ = stream.set_nodelay(true);
            if self
                .poll
                .registry()
                .register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)
                .is_ok()
            {
                let connection = Connection {
                    stream,
                    source,
                    ufrag: None,
                    incoming: Vec::new(),
                    outgoing: Vec::new(),
                    since: now,
                    heard: now,
                };
                self.connections.insert(token, connection);
                self.tokens.insert(source, token);
            }
        }
    }

    fn serve(&mut self, token: Token, now: Instant, deliver: &mut impl FnMut(&str, Datagram) -> bool) {
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
        if contents.len() > MAX_FRAME || connection.outgoing.len() > MAX_WAITING {
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

impl Connection {
    /// Reads all there is; false if the connection is over.
    fn read(
        &mut self,
        now: Instant,
        destination: SocketAddr,
        deliver: &mut impl FnMut(&str, Datagram) -> bool,
    ) -> bool {
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(length) => self.incoming.extend(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return false,
            }
            self.heard = now;
            let mut rest = &self.incoming[..];
            while let [high, low, tail @ ..] = rest {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                if length > MAX_FRAME {
                    return false;
                }
                let Some(contents) = tail.get(..length) else { break };
                rest = &tail[length..];
                if self.ufrag.is_none() {
                    self.ufrag = stun_ufrag(contents).map(str::to_owned);
                }
                let Some(ufrag) = &self.ufrag else { return false };
                let datagram = Datagram { source: self.source, destination, contents: contents.to_vec() };
                if !deliver(ufrag, datagram) {
                    return false;
                }
            }
            let read = self.incoming.len() - rest.len();
            self.incoming.drain(..read);
        }
    }

    /// Writes what waits; false if the connection is over.
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
#[allow(clippy::disallowed_methods)] // the server's thread gives its result back
mod tests {
    use std::net;

    use super::*;

    fn check(user: &str) -> Vec<u8> {
        let mut datagram = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        datagram.extend([0, 6, 0, user.len() as u8]);
        datagram.extend(user.bytes());
        datagram.resize(datagram.len().next_multiple_of(4), 0);
        datagram
    }

    fn framed(contents: &[u8]) -> Vec<u8> {
        [&(contents.len() as u16).to_be_bytes()[..], contents].concat()
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // its result is wanted back
    fn datagrams_go_both_ways_and_strangers_are_turned_away() {
        let mut server = Server::bind(0, &[[127, 0, 0, 1].into()], &[]).unwrap();
        let address = server.candidates()[0].address;
        let outlet = server.outlet();
        let back = outlet.clone();
        let thread = std::thread::spawn(move || {
            let mut got = Vec::new();
            server
                .run(crate::clock::now, |ufrag, datagram| {
                    if ufrag != "friend" {
                        return false;
                    }
                    back.send(datagram.source, datagram.contents.iter().rev().copied().collect());
                    got.push(datagram);
                    true
                })
                .unwrap();
            got
        });
        let mut friend = net::TcpStream::connect(address).unwrap();
        let first = check("friend:me");
        // Two frames in one segment, the second cut in two.
        let second = vec![7; 300];
        let bytes = [framed(&first), framed(&second)].concat();
        friend.write_all(&bytes[..first.len() + 50]).unwrap();
        friend.write_all(&bytes[first.len() + 50..]).unwrap();
        let mut answer = vec![0; bytes.len()];
        friend.read_exact(&mut answer).unwrap();
        let turned: Vec<u8> = first.iter().rev().copied().collect();
        assert_eq!(answer, [framed(&turned), framed(&second)].concat());

        for rude in [framed(&check("nobody:x")), framed(b"GET / HTTP/1.1"), vec![0xff; 4000]] {
            let mut stranger = net::TcpStream::connect(address).unwrap();
            stranger.write_all(&rude).unwrap();
            let end = stranger.read(&mut [0; 10]);
            assert!(end.is_err() || end.is_ok_and(|length| length == 0));
        }
        outlet.stop();
        let got = thread.join().unwrap();
        assert_eq!(got.len(), 2);
        assert_eq!(
            got[1],
            Datagram { source: friend.local_addr().unwrap(), destination: address, contents: second }
        );
    }

    /// Whether the server closes a connection, waited for.
    fn is_closed(stream: &mut net::TcpStream) -> bool {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        match stream.read(&mut [0; 10]) {
            Ok(length) => length == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    fn is_open(stream: &mut net::TcpStream) -> bool {
        stream.set_nonblocking(true).unwrap();
        let read = stream.read(&mut [0; 10]);
        stream.set_nonblocking(false).unwrap();
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    #[test]
    fn silence_and_half_a_check_are_closed_in_time_and_keep_nobody_out() {
        let mut server = Server::bind(0, &[[127, 0, 0, 1].into()], &[]).unwrap();
        server.limits = Limits { first_check: Duration::from_millis(300), strangers: 4, per_address: 4 };
        let address = server.candidates()[0].address;
        let outlet = server.outlet();
        let back = outlet.clone();
        let thread = std::thread::spawn(move || {
            server.run(crate::clock::now, |_, datagram| {
                back.send(datagram.source, datagram.contents);
                true
            })
        });
        let open = || net::TcpStream::connect(address).unwrap();
        let mut friend = open();
        friend.write_all(&framed(&check("friend:me"))).unwrap();
        let answered = |friend: &mut net::TcpStream| {
            let mut answer = vec![0; framed(&check("friend:me")).len()];
            friend.read_exact(&mut answer).is_ok()
        };
        assert!(answered(&mut friend));
        let mut silent: Vec<_> = (0..12).map(|_| open()).collect();
        assert!(silent[..8].iter_mut().all(is_closed), "the oldest make room for the newer");
        // Who talks comes in all the same.
        let mut another = open();
        another.write_all(&framed(&check("friend:me"))).unwrap();
        assert!(answered(&mut another));
        let mut halting = open();
        halting.write_all(&framed(&check("friend:me"))[..20]).unwrap();
        assert!(silent[8..].iter_mut().all(is_closed), "nothing came in time");
        assert!(is_closed(&mut halting), "no whole check came in time");
        assert!(
            is_open(&mut friend) && is_open(&mut another),
            "who has sent a check may be silent for longer"
        );
        outlet.stop();
        thread.join().unwrap().unwrap();
    }

    /// On a clock that the test moves. Whoever sends a check and has it back twice has seen the server look at that clock.
    #[test]
    fn the_first_check_is_waited_for_for_five_seconds() {
        let mut server = Server::bind(0, &[[127, 0, 0, 1].into()], &[]).unwrap();
        let address = server.candidates()[0].address;
        let outlet = server.outlet();
        let back = outlet.clone();
        let start = crate::clock::now();
        let passed = std::sync::Arc::new(std::sync::Mutex::new(Duration::ZERO));
        let clock = std::sync::Arc::clone(&passed);
        let thread = std::thread::spawn(move || {
            let now = || start + *clock.lock().unwrap();
            server.run(now, |_, datagram| {
                back.send(datagram.source, datagram.contents);
                true
            })
        });
        // They are accepted in turn: once the friend is served, the silent one is known.
        let mut silent = net::TcpStream::connect(address).unwrap();
        let mut friend = net::TcpStream::connect(address).unwrap();
        let mut looks = || {
            for _ in 0..2 {
                friend.write_all(&framed(&check("friend:me"))).unwrap();
                friend.read_exact(&mut vec![0; framed(&check("friend:me")).len()]).unwrap();
            }
        };
        looks();
        // It closes what is late four times in that time, and once more.
        let mut quarter = || {
            *passed.lock().unwrap() += Duration::from_millis(1_250);
            looks();
        };
        for n in 1..=4 {
            quarter();
            assert!(is_open(&mut silent), "after {n} quarters");
        }
        quarter();
        assert!(is_closed(&mut silent), "no check came in time");
        outlet.stop();
        thread.join().unwrap().unwrap();
    }
}
