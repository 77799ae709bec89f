//! The UDP socket of a media thread.
//!
//! All calls of a thread share one port. IPv4 only: browsers on IPv6-only networks reach the server
//! through their NAT64 or TURN.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;

use crossbeam_channel::{Receiver, Sender, unbounded};
use mio::event::Source;
use mio::{Interest, Registry, Token};
use socket2::SockFilter;
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
    /// Whether all clients are on this machine: datagrams of other machines are dropped.
    pub loopback_only: bool,
}

/// A socket filter that accepts what arrives through the loopback interface only. Datagrams of this
/// machine to any of its addresses do. Instructions of classic BPF, see
/// <https://www.kernel.org/doc/html/latest/networking/filter.html>.
const LOOPBACK_FILTER: [SockFilter; 4] = {
    // Loads the type of the interface (SKF_AD_OFF + SKF_AD_HATYPE), and compares it with
    // ARPHRD_LOOPBACK. Returns the number of bytes to keep.
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    [
        SockFilter::new(LOAD, 0, 0, (libc::SKF_AD_OFF + libc::SKF_AD_HATYPE) as u32),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, libc::ARPHRD_LOOPBACK as u32),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
};

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
    /// Binds to the first free port of the range. It binds to all interfaces, or to 127.0.0.1 if no
    /// other address is configured.
    ///
    /// With [`SocketConfig::loopback_only`], a filter of the socket drops what comes from other
    /// machines. If the system refuses the filter, the socket is bound to 127.0.0.1.
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
        let (mut host_addresses, public_addresses) =
            (v4(&config.host_addresses), v4(&config.public_addresses));
        let socket = Self::open_socket()?;
        if config.loopback_only
            && let Err(error) = socket.attach_filter(&LOOPBACK_FILTER)
        {
            tracing::info!(
                %error,
                "the system refuses socket filters; browsers that do not use 127.0.0.1 for calls, \
                 such as Firefox, need media.public_ip"
            );
            host_addresses = vec![Ipv4Addr::LOCALHOST];
        }
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
            match socket.bind(&SocketAddr::from((ip, port)).into()) {
                Ok(()) => {
                    let socket = std::net::UdpSocket::from(socket);
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

    fn open_socket() -> io::Result<socket2::Socket> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
        socket.set_nonblocking(true)?;
        // The kernel may grant less, which is no error. More than its limit (net.core.rmem_max)
        // requires CAP_NET_ADMIN.
        if !ffi::force_receive_buffer(socket.as_raw_fd(), SOCKET_BUFFER_BYTES) {
            let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
        }
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
        Ok(socket)
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

#[cfg(test)]
mod tests {
    use super::*;

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
            ..SocketConfig::default()
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
    fn clients_of_this_machine_use_any_of_its_addresses_while_others_are_shut_out() {
        let hosts = host_addresses(true);
        let config = SocketConfig {
            host_addresses: hosts.clone(),
            loopback_only: true,
            ..SocketConfig::default()
        };
        let mut socket = Socket::bind(&config).unwrap();
        let candidates: Vec<_> = socket.candidates().iter().map(|c| c.address).collect();
        // Without the permission for filters, there is 127.0.0.1 only.
        assert!(candidates.len() == hosts.len() || candidates.len() == 1, "{candidates:?}");
        for to in candidates {
            let probe = std::net::UdpSocket::bind((to.ip(), 0)).unwrap();
            probe.send_to(&[9], to).unwrap();
            let mut seen = None;
            let (count, _) = socket.receive(|_, destination, _| seen = Some(destination)).unwrap();
            assert_eq!((count, seen), (1, Some(to)));
        }
    }

    #[test]
    fn ports_come_from_the_range_until_it_is_used_up() {
        let of = |ports| SocketConfig {
            host_addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            ports,
            ..SocketConfig::default()
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
