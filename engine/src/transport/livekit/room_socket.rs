//! The UDP socket of one participant. Each has its own, because a LiveKit server can distinguish
//! sessions by our address alone.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsRawFd;

use mio::event::Source;
use mio::{Interest, Registry, Token};
use str0m::net::Transmit;

use crate::transport::ffi;

/// Requested size of the system's buffers, in bytes: a second of several voices, or a key frame.
const BUFFER_BYTES: usize = 256 * 1024;

/// Buffers for one read of a [`RoomSocket`]; all sockets of a thread share them.
pub struct ReceiveBuffers(ffi::ReceiveBatch);

impl Default for ReceiveBuffers {
    fn default() -> Self {
        Self(ffi::ReceiveBatch::new())
    }
}

/// A nonblocking UDP socket with the addresses that it is reached at.
pub struct RoomSocket {
    inner: mio::net::UdpSocket,
    candidates: Vec<SocketAddr>,
    queue: Vec<Transmit>,
    dropped: u64,
}

impl RoomSocket {
    /// A socket on a free port. `addresses`: those of this host that the server may use.
    ///
    /// # Errors
    /// There is no address, or no port is free.
    pub fn bind(addresses: &[Ipv4Addr]) -> io::Result<Self> {
        if addresses.is_empty() {
            let why = "this host has no IPv4 address for media";
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, why));
        }
        let is_local = addresses.iter().all(Ipv4Addr::is_loopback);
        let ip = if is_local { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
        socket.set_nonblocking(true)?;
        // The kernel may grant less, which is no error.
        let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
        let _ = socket.set_send_buffer_size(BUFFER_BYTES);
        socket.bind(&SocketAddr::V4(SocketAddrV4::new(ip, 0)).into())?;
        let socket: std::net::UdpSocket = socket.into();
        ffi::enable_pktinfo(socket.as_raw_fd())?;
        let port = socket.local_addr()?.port();
        let candidates = addresses.iter().map(|ip| SocketAddr::from((*ip, port))).collect();
        let inner = mio::net::UdpSocket::from_std(socket);
        Ok(Self { inner, candidates, queue: Vec::with_capacity(8), dropped: 0 })
    }

    /// The addresses to announce to the server.
    #[must_use]
    pub fn candidates(&self) -> &[SocketAddr] {
        &self.candidates
    }

    /// Reads at most 32 datagrams and calls `take(source, destination, datagram)`. Returns whether
    /// there may be more: readiness is edge-triggered.
    ///
    /// # Errors
    /// The system's errors, except that of an empty socket.
    pub fn receive(
        &mut self,
        buffers: &mut ReceiveBuffers,
        mut take: impl FnMut(SocketAddr, SocketAddr, &[u8]),
    ) -> io::Result<bool> {
        let socket = self.inner.as_raw_fd();
        let batch = &mut buffers.0;
        let count = match self.inner.try_io(|| batch.receive(socket)) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        };
        for (datagram, source, local) in batch.datagrams() {
            if datagram.is_empty() {
                continue;
            }
            let is_local = |candidate: &&SocketAddr| candidate.ip() == local;
            let destination = self.candidates.iter().find(is_local).unwrap_or(&self.candidates[0]);
            take(SocketAddr::V4(source), *destination, datagram);
        }
        Ok(count == ffi::MAX_BATCH_DATAGRAMS)
    }

    /// Queues a datagram; [`RoomSocket::flush`] sends it.
    pub fn send(&mut self, datagram: Transmit) {
        self.queue.push(datagram);
    }

    /// Sends the queued datagrams. Those that the system does not accept at once are dropped and
    /// counted: live media does not wait.
    pub fn flush(&mut self) {
        let mut rest = &self.queue[..];
        while !rest.is_empty() {
            let outgoing = rest.iter().map(|datagram| ffi::OutgoingDatagram {
                data: &datagram.contents,
                source: self.source_of(datagram.source),
                destination: ffi::to_ipv4(datagram.destination)
                    .unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
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

    fn source_of(&self, source: SocketAddr) -> Ipv4Addr {
        match source {
            SocketAddr::V4(v4) if self.candidates.contains(&source) => *v4.ip(),
            _ => Ipv4Addr::UNSPECIFIED,
        }
    }

    /// Number of datagrams that the system did not accept, since the last call of this method.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}

impl Source for RoomSocket {
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
    fn datagrams_go_both_ways_with_their_local_address() {
        let mut socket = RoomSocket::bind(&[Ipv4Addr::LOCALHOST]).unwrap();
        let local = socket.candidates()[0];
        let probe = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for n in 0..40_u8 {
            probe.send_to(&[n], local).unwrap();
        }
        let (mut buffers, mut got) = (ReceiveBuffers::default(), Vec::new());
        while got.len() < 40 {
            let take = |source, destination, datagram: &[u8]| {
                assert_eq!((source, destination), (probe.local_addr().unwrap(), local));
                got.push(datagram[0]);
            };
            socket.receive(&mut buffers, take).unwrap();
        }
        assert_eq!(got, (0..40).collect::<Vec<_>>());
        socket.send(Transmit {
            proto: str0m::net::Protocol::Udp,
            source: local,
            destination: probe.local_addr().unwrap(),
            contents: vec![7].into(),
        });
        socket.flush();
        let mut back = [0; 4];
        assert_eq!(probe.recv_from(&mut back).unwrap(), (1, local));
        assert_eq!((back[0], socket.take_dropped()), (7, 0));
    }
}
