//! The UDP socket of a media thread, and the demultiplexer that maps a datagram to its call.
//!
//! All calls of a thread share one port. IPv4 only: browsers on IPv6-only networks reach the server
//! through their NAT64 or TURN.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use mio::event::Source;
use mio::{Interest, Registry, Token};
use smallvec::SmallVec;
use str0m::net::{Protocol, Transmit};

use super::ffi;
use super::webrtc::LocalCandidate;

/// Requested size of the system's socket buffers, bytes: room for a key frame to every call of a
/// thread at once.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// Maximum number of batches per read, so that one flooded socket does not starve the thread.
const MAX_BATCHES_PER_READ: usize = 8;

/// Where to listen.
#[derive(Clone, Debug, Default)]
pub struct SocketConfig {
    /// Addresses of this host, as [`host_addresses`] finds them; IPv6 addresses are ignored.
    pub host_addresses: Vec<IpAddr>,
    /// Public addresses of a NAT in front of the server. If there are any, clients get them instead
    /// of the host's.
    pub public_addresses: Vec<IpAddr>,
    /// Port range; `None` takes any free port.
    pub ports: Option<RangeInclusive<u16>>,
}

/// Addresses of this host that a client may use. With `loopback`, 127.0.0.1 is included, for
/// clients on the same machine.
#[must_use]
pub fn host_addresses(loopback: bool) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = ffi::interface_addresses()
        .inspect_err(
            |error| tracing::warn!(%error, "cannot list the network interfaces of this host"),
        )
        .unwrap_or_default();
    found.retain(|address| match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local() && !v4.is_unspecified(),
        IpAddr::V6(_) => false,
    });
    found.sort_unstable();
    found.dedup();
    if loopback {
        found.insert(0, IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    found
}

/// A nonblocking UDP socket that reports the local address of every datagram.
pub struct Socket {
    inner: mio::net::UdpSocket,
    port: u16,
    host_addresses: Vec<Ipv4Addr>,
    candidates: Vec<LocalCandidate>,
    batch: ffi::ReceiveBatch,
    queue: Vec<Transmit>,
    dropped: u64,
    /// See [`Socket::injector`].
    injected: Option<Receiver<InjectedDatagram>>,
}

/// A datagram that bypasses the kernel: its source and its bytes.
pub type InjectedDatagram = (SocketAddr, Vec<u8>);

impl Socket {
    /// Binds to the first free port of the range. It binds to all interfaces, or to loopback only
    /// if no other address is configured.
    ///
    /// # Errors
    ///
    /// No port is free, or there is no IPv4 address to announce.
    pub fn bind(config: &SocketConfig) -> io::Result<Self> {
        let v4 = |list: &[IpAddr]| -> Vec<Ipv4Addr> {
            list.iter()
                .filter_map(|ip| if let IpAddr::V4(ip) = ip { Some(*ip) } else { None })
                .collect()
        };
        let (host_addresses, public_addresses) =
            (v4(&config.host_addresses), v4(&config.public_addresses));
        let advertised =
            if public_addresses.is_empty() { &host_addresses } else { &public_addresses };
        if advertised.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                "this host has no IPv4 address for media",
            ));
        }
        let local = public_addresses.is_empty() && host_addresses.iter().all(Ipv4Addr::is_loopback);
        let ip = if local { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        let mut last_error = io::Error::new(io::ErrorKind::AddrInUse, "no free port for media");
        for port in config.ports.clone().unwrap_or(0..=0) {
            match Self::open_socket(SocketAddrV4::new(ip, port)) {
                Ok(socket) => {
                    let port = socket.local_addr()?.port();
                    ffi::enable_pktinfo(socket.as_raw_fd())?;
                    let candidates = advertised
                        .iter()
                        .map(|ip| LocalCandidate {
                            address: SocketAddr::from((*ip, port)),
                            protocol: Protocol::Udp,
                        })
                        .collect();
                    let inner = mio::net::UdpSocket::from_std(socket);
                    let (batch, queue) = (ffi::ReceiveBatch::new(), Vec::with_capacity(64));
                    return Ok(Self {
                        inner,
                        port,
                        host_addresses,
                        candidates,
                        batch,
                        queue,
                        dropped: 0,
                        injected: None,
                    });
                }
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    fn open_socket(address: SocketAddrV4) -> io::Result<std::net::UdpSocket> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
        socket.set_nonblocking(true)?;
        // The kernel may grant less, which is no error. More than its limit (net.core.rmem_max)
        // requires CAP_NET_ADMIN.
        if !ffi::force_receive_buffer(socket.as_raw_fd(), SOCKET_BUFFER_BYTES) {
            let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
        }
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
        socket.bind(&SocketAddr::V4(address).into())?;
        Ok(socket.into())
    }

    /// The candidates to announce to clients.
    #[must_use]
    pub fn candidates(&self) -> &[LocalCandidate] {
        &self.candidates
    }

    /// Size of the kernel's receive buffer, bytes. It includes the kernel's own overhead: some 800
    /// bytes per small datagram.
    ///
    /// # Errors
    /// The system's error.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        socket2::SockRef::from(&self.inner).recv_buffer_size()
    }

    /// Returns a sender whose datagrams are received before those in the kernel's buffer. It is for
    /// flood tests, because a stock kernel's buffer holds only part of a flood. Sending does not
    /// wake the thread.
    #[must_use]
    pub fn injector(&mut self) -> Sender<InjectedDatagram> {
        let (sender, receiver) = unbounded();
        self.injected = Some(receiver);
        sender
    }

    /// Number of datagrams that the system did not accept.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Reads the available datagrams and calls `take(source, destination, datagram)`. `destination`
    /// is the candidate that the client used. Returns the number of datagrams, and whether there
    /// may be more: readiness is edge-triggered, so it is reported again only after the socket was
    /// empty.
    ///
    /// # Errors
    ///
    /// The system's errors, except that of an empty socket.
    pub fn receive(
        &mut self,
        mut take: impl FnMut(SocketAddr, SocketAddr, &mut [u8]),
    ) -> io::Result<(usize, bool)> {
        let mut total = 0;
        for _ in 0..MAX_BATCHES_PER_READ {
            let (count, more) = self.receive_batch(&mut take)?;
            total += count;
            if !more {
                return Ok((total, false));
            }
        }
        Ok((total, true))
    }

    /// Like [`Socket::receive`], but reads at most 32 datagrams, with one system call.
    ///
    /// # Errors
    ///
    /// As [`Socket::receive`].
    pub fn receive_batch(
        &mut self,
        mut take: impl FnMut(SocketAddr, SocketAddr, &mut [u8]),
    ) -> io::Result<(usize, bool)> {
        if let Some(injected) = self.injected.as_ref().filter(|injected| !injected.is_empty()) {
            let mut count = 0;
            for (source, mut datagram) in injected.try_iter().take(ffi::MAX_BATCH_DATAGRAMS) {
                take(source, self.candidates[0].address, &mut datagram);
                count += 1;
            }
            return Ok((count, true));
        }
        let socket = self.inner.as_raw_fd();
        let batch = &mut self.batch;
        let count = match self.inner.try_io(|| batch.receive(socket)) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok((0, false)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok((0, true)),
            Err(error) => return Err(error),
        };
        let (candidates, port) = (&self.candidates, self.port);
        for (datagram, source, local) in self.batch.datagrams() {
            if datagram.is_empty() {
                continue;
            }
            let destination = SocketAddr::from((local, port));
            let is_candidate = candidates.iter().any(|candidate| candidate.address == destination);
            let destination = if is_candidate { destination } else { candidates[0].address };
            take(SocketAddr::V4(source), destination, datagram);
        }
        // A short batch means that the socket was empty; readiness will be reported again.
        Ok((count, count == ffi::MAX_BATCH_DATAGRAMS))
    }

    /// Queues a datagram; [`Socket::flush`] sends it. Only UDP datagrams are queued; IPv6
    /// destinations are not supported.
    pub fn send(&mut self, datagram: Transmit) {
        if datagram.proto == Protocol::Udp {
            self.queue.push(datagram);
        }
    }

    /// Sends the queued datagrams. Those that the system does not accept at once are dropped and
    /// counted: live media does not wait.
    pub fn flush(&mut self) {
        let mut rest = &self.queue[..];
        while !rest.is_empty() {
            let outgoing = rest.iter().map(|datagram| {
                let source = match datagram.source.ip() {
                    IpAddr::V4(ip) if self.host_addresses.contains(&ip) => ip,
                    _ => Ipv4Addr::UNSPECIFIED,
                };
                let destination = ffi::to_ipv4(datagram.destination)
                    .unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
                ffi::OutgoingDatagram { data: &datagram.contents, source, destination }
            });
            match ffi::send_batch(self.inner.as_raw_fd(), outgoing) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.dropped += rest.len() as u64;
                    break;
                }
                // This datagram cannot be sent (no route, for example); the others may.
                Err(_) => {
                    self.dropped += 1;
                    rest = &rest[1..];
                }
            }
        }
        self.queue.clear();
    }
}

impl Source for Socket {
    fn register(
        &mut self,
        registry: &Registry,
        token: Token,
        interests: Interest,
    ) -> io::Result<()> {
        self.inner.register(registry, token, interests)
    }

    fn reregister(
        &mut self,
        registry: &Registry,
        token: Token,
        interests: Interest,
    ) -> io::Result<()> {
        self.inner.reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.inner.deregister(registry)
    }
}

/// Maximum number of addresses that lead to one connection. A client has one per network interface
/// and per NAT on its way.
const MAX_ADDRESSES_PER_CONNECTION: usize = 8;
/// Maximum number of addresses that a connection learns in its life. str0m forgets none and
/// searches them at each check. A client that changes networks this often must connect again.
const MAX_LEARNED_ADDRESSES: u32 = 256;

/// Maps datagrams to connections. STUN checks are mapped by user name. All others are mapped by
/// source address, which is known only after a check with a valid MESSAGE-INTEGRITY.
pub struct Demux<K> {
    by_ufrag: HashMap<String, K>,
    by_address: HashMap<SocketAddr, AddressRoute<K>>,
    by_connection: HashMap<K, ConnectionRoutes>,
    rate_limiter: AddressRateLimiter,
}

/// The connection that an address leads to.
struct AddressRoute<K> {
    connection: K,
    /// When the last datagram arrived that is no check. A client sends these only from the address
    /// that it has selected.
    media_at: Option<Instant>,
}

/// All that leads to one connection.
#[derive(Default)]
struct ConnectionRoutes {
    ufrags: SmallVec<[String; 1]>,
    /// In the order in which they were learned.
    addresses: SmallVec<[SocketAddr; MAX_ADDRESSES_PER_CONNECTION]>,
    learned_count: u32,
}

impl<K: Copy + Eq + Hash> Default for Demux<K> {
    fn default() -> Self {
        Self {
            by_ufrag: HashMap::new(),
            by_address: HashMap::new(),
            by_connection: HashMap::new(),
            rate_limiter: AddressRateLimiter::new(100.0, 200.0),
        }
    }
}

impl<K: Copy + Eq + Hash> Demux<K> {
    /// A demultiplexer without connections.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps a connection's STUN user name to `connection`. Earlier user names of the connection
    /// stay valid.
    pub fn insert(&mut self, ufrag: &str, connection: K) {
        if self.by_ufrag.insert(ufrag.to_owned(), connection) != Some(connection) {
            self.by_connection.entry(connection).or_default().ufrags.push(ufrag.to_owned());
        }
    }

    /// Removes all user names and addresses of `connection`.
    pub fn remove(&mut self, connection: &K) {
        let Some(routes) = self.by_connection.remove(connection) else { return };
        for ufrag in &routes.ufrags {
            if self.by_ufrag.get(ufrag) == Some(connection) {
                self.by_ufrag.remove(ufrag);
            }
        }
        for address in &routes.addresses {
            self.by_address.remove(address);
        }
    }

    /// Maps `source` to `connection` after an authenticated check
    /// ([`super::webrtc::PeerConnection::receive`] returned true). A connection has at most eight
    /// addresses. A further one replaces the address from which media has not arrived for the
    /// longest time, so the selected one stays.
    pub fn learn_address(&mut self, source: SocketAddr, connection: K) {
        let previous_connection = self.by_address.get(&source).map(|route| route.connection);
        if previous_connection == Some(connection) {
            return;
        }
        if let Some(previous_connection) = previous_connection
            && let Some(previous) = self.by_connection.get_mut(&previous_connection)
        {
            previous.addresses.retain(|address| *address != source);
        }
        let routes = self.by_connection.entry(connection).or_default();
        if routes.addresses.len() >= MAX_ADDRESSES_PER_CONNECTION {
            let media_at = |address: &SocketAddr| {
                self.by_address.get(address).and_then(|route| route.media_at)
            };
            let oldest =
                (0..routes.addresses.len()).min_by_key(|at| media_at(&routes.addresses[*at]));
            if let Some(at) = oldest {
                self.by_address.remove(&routes.addresses.remove(at));
            }
        }
        routes.addresses.push(source);
        routes.learned_count += 1;
        self.by_address.insert(source, AddressRoute { connection, media_at: None });
    }

    /// Whether the connection may learn a further address.
    fn may_learn(&self, connection: &K) -> bool {
        self.by_connection
            .get(connection)
            .is_none_or(|routes| routes.learned_count < MAX_LEARNED_ADDRESSES)
    }

    /// The connection that the datagram belongs to.
    ///
    /// From an unknown address, only one kind of datagram costs more than a failed look-up: a check
    /// with a connection's user name, because its MESSAGE-INTEGRITY is computed. These checks are
    /// rate limited by IP address; loopback is exempt. All other datagrams are dropped after one or
    /// two look-ups and leave no state. A rate limit for them would cost one more look-up each, and
    /// memory for each forged address.
    ///
    /// The connection limits the datagrams from its own addresses.
    pub fn route(&mut self, now: Instant, source: SocketAddr, datagram: &[u8]) -> Option<K> {
        let known = self.by_address.get_mut(&source);
        let Some(ufrag) = stun_ufrag(datagram) else {
            let route = known?;
            route.media_at = Some(now);
            return Some(route.connection);
        };
        let known = known.map(|route| route.connection);
        let connection = self.by_ufrag.get(ufrag).copied()?;
        if known != Some(connection) && !self.may_learn(&connection) {
            return None;
        }
        let free = known.is_some() || source.ip().is_loopback();
        (free || self.rate_limiter.admit(now, source.ip())).then_some(connection)
    }
}

/// The receiver's part of the user name, if the datagram looks like a STUN message.
#[must_use]
pub fn stun_ufrag(datagram: &[u8]) -> Option<&str> {
    let magic = datagram.get(4..8)? == [0x21, 0x12, 0xa4, 0x42];
    if !magic || datagram[0] > 1 {
        return None;
    }
    let mut rest = datagram.get(20..)?;
    while let [a, b, c, d, tail @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*c, *d]));
        if [*a, *b] == [0, 6] {
            return std::str::from_utf8(tail.get(..length)?).ok()?.split(':').next();
        }
        rest = tail.get(length.next_multiple_of(4)..)?;
    }
    None
}

/// Rate limit per address: token buckets for a bounded number of addresses.
pub struct AddressRateLimiter {
    rate: f64,
    burst: f64,
    buckets: HashMap<IpAddr, (f64, Instant)>,
}

/// Maximum number of addresses with a bucket. Over that, those with a full bucket are removed; if
/// none is full, all are removed.
const MAX_ADDRESSES: usize = 10_000;

impl AddressRateLimiter {
    /// `rate`: tokens per second; `burst`: capacity of a bucket.
    #[must_use]
    pub fn new(rate: f64, burst: f64) -> Self {
        Self { rate, burst, buckets: HashMap::new() }
    }

    /// Takes a token of `address`; false if there is none.
    pub fn admit(&mut self, now: Instant, address: IpAddr) -> bool {
        let (rate, burst) = (self.rate, self.burst);
        let filled = |(tokens, since): (f64, Instant)| {
            (tokens + now.saturating_duration_since(since).as_secs_f64() * rate).min(burst)
        };
        if self.buckets.len() >= MAX_ADDRESSES && !self.buckets.contains_key(&address) {
            self.buckets.retain(|_, bucket| filled(*bucket) < burst);
            if self.buckets.len() >= MAX_ADDRESSES {
                self.buckets.clear();
            }
        }
        let bucket = self.buckets.entry(address).or_insert((burst, now));
        let tokens = filled(*bucket);
        let admitted = tokens >= 1.0;
        *bucket = (if admitted { tokens - 1.0 } else { tokens }, now);
        admitted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stun_check(user: &str) -> Vec<u8> {
        let mut datagram =
            vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        datagram.extend([0x80, 0x22, 0, 3, 1, 2, 3, 0]);
        datagram.extend([0, 6, 0, user.len() as u8]);
        datagram.extend(user.bytes());
        datagram.resize(datagram.len().next_multiple_of(4), 0);
        datagram
    }

    fn client(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    #[test]
    fn a_check_is_routed_by_name_and_media_only_from_an_address_that_was_learnt() {
        let (mut demux, now) = (Demux::new(), crate::clock::now());
        demux.insert("abc", 1);
        demux.insert("xyz", 2);
        assert_eq!(demux.route(now, client(1), &stun_check("xyz:remote")), Some(2));
        assert_eq!(demux.route(now, client(1), &stun_check("nobody:remote")), None);
        assert_eq!(demux.route(now, client(1), &[0x80, 111, 0, 0]), None);
        demux.learn_address(client(1), 2);
        assert_eq!(demux.route(now, client(1), &[0x80, 111, 0, 0]), Some(2));
        // The same browser address may move to another call.
        assert_eq!(demux.route(now, client(1), &stun_check("abc:remote")), Some(1));
        demux.remove(&2);
        assert_eq!(demux.route(now, client(1), &[0x80, 111, 0, 0]), None);
        assert_eq!(demux.route(now, client(1), &stun_check("xyz:remote")), None);
    }

    #[test]
    fn a_flood_of_checks_from_one_address_is_cut_off_and_others_are_not() {
        let (mut demux, now) = (Demux::new(), crate::clock::now());
        demux.insert("abc", 1);
        let routed = (0..1000)
            .filter(|n| demux.route(now, client(*n), &stun_check("abc:r")).is_some())
            .count();
        assert_eq!(routed, 200);
        assert_eq!(
            demux.route(now, SocketAddr::from(([192, 0, 2, 2], 1)), &stun_check("abc:r")),
            Some(1)
        );
        demux.learn_address(client(5), 1);
        assert_eq!(demux.route(now, client(5), &stun_check("abc:r")), Some(1));
        assert_eq!(
            demux.route(now + Duration::from_secs(1), client(6), &stun_check("abc:r")),
            Some(1)
        );
    }

    #[test]
    fn a_connection_has_eight_addresses_and_the_selected_one_stays() {
        let (mut demux, now) = (Demux::new(), crate::clock::now());
        let media = [0x80, 111, 0, 0];
        demux.insert("abc", 1);
        demux.insert("xyz", 2);
        demux.learn_address(client(900), 2);
        // The second address is selected: media arrives from it.
        demux.learn_address(client(0), 1);
        demux.learn_address(client(1), 1);
        assert_eq!(demux.route(now, client(1), &media), Some(1));
        for port in 2..100 {
            demux.learn_address(client(port), 1);
        }
        let left: Vec<u16> =
            (0..100).filter(|port| demux.route(now, client(*port), &media).is_some()).collect();
        assert_eq!(left, [1, 93, 94, 95, 96, 97, 98, 99]);
        assert_eq!(demux.by_address.len(), 9, "and the one of the other call");
        // An address that moves to another call leaves its place.
        demux.learn_address(client(99), 2);
        demux.learn_address(client(100), 1);
        assert_eq!(demux.route(now, client(93), &media), Some(1), "no connection was evicted");
        demux.remove(&1);
        let of_others: Vec<_> = demux.by_address.keys().map(SocketAddr::port).collect();
        assert_eq!(
            (of_others.len(), demux.by_connection.len(), demux.by_ufrag.len()),
            (2, 1, 1),
            "{of_others:?}"
        );
    }

    #[test]
    fn a_connection_learns_a_bounded_number_of_addresses_in_its_life() {
        let (mut demux, now) = (Demux::new(), crate::clock::now());
        demux.insert("abc", 1);
        demux.insert("xyz", 2);
        let mut routed = 0;
        for n in 0..1_000_u16 {
            let source = SocketAddr::from(([198, 51, (n / 250) as u8, (n % 250) as u8], 1));
            if demux.route(now, source, &stun_check("abc:r")).is_some() {
                demux.learn_address(source, 1);
                routed += 1;
            }
        }
        assert_eq!(routed, 256);
        let last = SocketAddr::from(([198, 51, 1, 5], 1));
        assert_eq!(
            demux.route(now, last, &stun_check("abc:r")),
            Some(1),
            "a known address continues"
        );
        assert_eq!(demux.route(now, client(1), &stun_check("abc:r")), None);
        assert_eq!(demux.route(now, client(1), &stun_check("xyz:r")), Some(2), "others learn");
    }

    #[test]
    fn packets_without_a_known_user_name_leave_no_state() {
        let (mut demux, now) = (Demux::new(), crate::clock::now());
        demux.insert("abc", 1);
        for n in 0..1000 {
            let source = SocketAddr::from(([198, 51, (n / 250) as u8, (n % 250) as u8], n));
            for datagram in [&stun_check("nobody:r")[..], &[0x80, 111, 0, 0], &[22, 254, 253], &[]]
            {
                assert_eq!(demux.route(now, source, datagram), None);
            }
        }
        assert!(demux.rate_limiter.buckets.is_empty() && demux.by_address.is_empty());
    }

    #[test]
    fn user_names_are_found_in_checks_only() {
        assert_eq!(stun_ufrag(&stun_check("abc:def")), Some("abc"));
        assert_eq!(stun_ufrag(&stun_check("abc")), Some("abc"));
        assert_eq!(stun_ufrag(&[]), None);
        let mut cut = stun_check("abcdef:ghi");
        cut.truncate(36);
        assert_eq!(stun_ufrag(&cut), None);
        let mut media = stun_check("abc:def");
        media[0] = 0x80;
        assert_eq!(stun_ufrag(&media), None);
    }

    #[test]
    fn the_limiter_remembers_a_bounded_number_of_addresses() {
        let (mut limits, now) = (AddressRateLimiter::new(1.0, 2.0), crate::clock::now());
        for n in 0..30_000_u32 {
            assert!(limits.admit(now, IpAddr::V4(Ipv4Addr::from(n))));
        }
        assert!(limits.buckets.len() <= MAX_ADDRESSES);
    }

    #[test]
    fn datagrams_go_round_with_the_local_address_that_they_came_to() {
        let config = SocketConfig {
            host_addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            ..SocketConfig::default()
        };
        let mut a = Socket::bind(&config).unwrap();
        let mut b = Socket::bind(&config).unwrap();
        let (from, to) = (a.candidates()[0].address, b.candidates()[0].address);
        for n in 0..70_u8 {
            a.send(Transmit {
                proto: Protocol::Udp,
                source: from,
                destination: to,
                contents: vec![n; 40].into(),
            });
        }
        a.flush();
        assert_eq!(a.dropped(), 0);
        let mut got = Vec::new();
        let (count, more) = b
            .receive(|source, destination, data| {
                assert_eq!((source, destination, data.len()), (from, to, 40));
                got.push(data[0]);
            })
            .unwrap();
        assert_eq!((count, more), (70, false));
        assert_eq!(got, (0..70).collect::<Vec<_>>());
    }

    #[test]
    fn behind_a_nat_clients_are_told_the_public_address_and_datagrams_count_as_sent_to_it() {
        let public = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
        let config = SocketConfig {
            host_addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            public_addresses: vec![public],
            ports: None,
        };
        let mut a = Socket::bind(&config).unwrap();
        assert_eq!(a.candidates().iter().map(|c| c.address.ip()).collect::<Vec<_>>(), [public]);
        let port = a.candidates()[0].address.port();
        let probe = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        probe.send_to(&[9], ("127.0.0.1", port)).unwrap();
        let mut to = None;
        a.receive(|_, destination, _| to = Some(destination)).unwrap();
        assert_eq!(to, Some(SocketAddr::new(public, port)));
        // The answer may be sent from that address, though it is not an interface of this host.
        let contents = vec![7].into();
        let (source, destination) = (SocketAddr::new(public, port), probe.local_addr().unwrap());
        a.send(Transmit { proto: Protocol::Udp, source, destination, contents });
        a.flush();
        let mut back = [0; 4];
        assert_eq!(probe.recv(&mut back).unwrap(), 1);
        assert_eq!(back[0], 7);
    }

    #[test]
    fn ports_come_from_the_range_until_it_is_used_up() {
        let of = |ports| SocketConfig {
            host_addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            public_addresses: vec![],
            ports,
        };
        // Another program may take a free port before it is bound here.
        let (config, first, free) = (0..100)
            .find_map(|_| {
                let free =
                    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
                let config = of(Some(free..=free));
                Socket::bind(&config).ok().map(|first| (config, first, free))
            })
            .unwrap();
        assert_eq!(first.candidates()[0].address.port(), free);
        assert!(Socket::bind(&config).is_err());
    }
}
