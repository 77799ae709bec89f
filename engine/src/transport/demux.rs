//! The demultiplexer of a media thread: it maps a datagram to its connection, and limits the checks
//! of unknown addresses.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use smallvec::SmallVec;

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
    use std::net::Ipv4Addr;
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
}
