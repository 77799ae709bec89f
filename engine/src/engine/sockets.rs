//! The sockets of all media threads.

use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use crate::transport::socket::{Socket, SocketConfig};
use crate::transport::tcp;
use crate::transport::webrtc::LocalCandidate;

/// Where clients send media.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaAddresses {
    /// The addresses that clients get, without ports.
    pub addresses: Vec<IpAddr>,
    /// The UDP port of each media thread.
    pub udp_ports: Vec<u16>,
    /// The port of ICE-TCP.
    pub tcp_port: Option<u16>,
    /// Whether only clients on this machine reach them.
    pub loopback_only: bool,
}

impl MediaAddresses {
    pub(super) fn of(sockets: &[Socket], tcp: &[LocalCandidate], loopback_only: bool) -> Self {
        let of_first = sockets.first().map_or(&[][..], Socket::candidates);
        let ports = sockets.iter().filter_map(|socket| socket.candidates().first());
        Self {
            addresses: of_first.iter().map(|candidate| candidate.address.ip()).collect(),
            udp_ports: ports.map(|candidate| candidate.address.port()).collect(),
            tcp_port: tcp.first().map(|candidate| candidate.address.port()),
            loopback_only,
        }
    }
}

/// A socket for each of `threads` media threads, or for as many as the range has ports.
///
/// # Errors
/// Another program uses ports of the range, or the system's error.
pub(super) fn bind_all(config: &SocketConfig, threads: usize) -> io::Result<Vec<Socket>> {
    let count = match &config.ports {
        Some(ports) if ports.len() < threads => {
            tracing::info!(
                udp_ports = describe(ports),
                media_threads = ports.len(),
                "media.udp_ports has fewer ports than {threads} media threads need; there are as \
                 many media threads as ports"
            );
            ports.len()
        }
        _ => threads,
    };
    let mut sockets = Vec::with_capacity(count);
    while sockets.len() < count {
        match (Socket::bind(config), &config.ports) {
            (Ok(socket), _) => sockets.push(socket),
            (Err(error), Some(ports)) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(io::Error::new(error.kind(), in_use(ports, sockets.len(), count)));
            }
            (Err(error), _) => return Err(error),
        }
    }
    Ok(sockets)
}

/// The server of ICE-TCP.
///
/// # Errors
/// Another program uses the port, or the system's error.
pub(super) fn bind_tcp(port: u16, hosts: &[IpAddr], public: &[IpAddr]) -> io::Result<tcp::Server> {
    tcp::Server::bind(port, hosts, public).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => io::Error::new(
            error.kind(),
            format!(
                "another program uses TCP port {port}: stop it, or choose another media.tcp_port"
            ),
        ),
        _ => error,
    })
}

fn in_use(ports: &RangeInclusive<u16>, free: usize, needed: usize) -> String {
    let named = describe(ports);
    let others = "choose other ports (media.udp_ports)";
    match free {
        0 => format!("other programs use UDP port {named}: stop them, or {others}"),
        _ => format!(
            "other programs use UDP ports of {named}; {free} of {} can be used, and each of {needed} \
             media threads needs one: stop the programs, {others}, or set media.threads to {free}",
            ports.len()
        ),
    }
}

fn describe(ports: &RangeInclusive<u16>) -> String {
    match (ports.start(), ports.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;

    fn config(ports: RangeInclusive<u16>) -> SocketConfig {
        SocketConfig {
            host_addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            ports: Some(ports),
            ..SocketConfig::default()
        }
    }

    /// The first result of `attempt` with a range of `count` ports, whose first `taken` ports are in
    /// use. Another program may take a port of a range meanwhile, so further ranges are tried.
    fn with_range<T>(
        count: u16,
        taken: u16,
        attempt: impl Fn(RangeInclusive<u16>) -> Option<T>,
    ) -> T {
        let with_next = |_| {
            let first = UdpSocket::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
            let last = first.checked_add(count - 1)?;
            let bind = |port| UdpSocket::bind(("127.0.0.1", port));
            let all: Result<Vec<UdpSocket>, _> = (first..=last).map(bind).collect();
            let mut used = all.ok()?;
            used.truncate(usize::from(taken));
            attempt(first..=last)
        };
        (0..1000).find_map(with_next).unwrap()
    }

    #[test]
    fn there_are_as_many_sockets_as_ports_if_these_are_fewer_than_the_threads() {
        let (addresses, port) = with_range(1, 0, |ports| {
            let sockets = bind_all(&config(ports.clone()), 4).ok()?;
            Some((MediaAddresses::of(&sockets, &[], false), *ports.start()))
        });
        let expected = MediaAddresses {
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            udp_ports: vec![port],
            tcp_port: None,
            loopback_only: false,
        };
        assert_eq!(addresses, expected);
    }

    #[test]
    fn ports_that_another_program_uses_are_skipped_while_enough_are_left() {
        let (found, first) = with_range(3, 1, |ports| {
            let sockets = bind_all(&config(ports.clone()), 2).ok()?;
            Some((MediaAddresses::of(&sockets, &[], false).udp_ports, *ports.start()))
        });
        assert_eq!(found, [first + 1, first + 2]);
    }

    #[test]
    fn too_few_free_ports_are_an_error_that_says_what_to_do() {
        let refusal = |ports: RangeInclusive<u16>| {
            let error = bind_all(&config(ports.clone()), 2).err()?.to_string();
            Some(error.replace(&describe(&ports), "PORTS"))
        };
        assert_eq!(
            with_range(3, 2, refusal),
            "other programs use UDP ports of PORTS; 1 of 3 can be used, and each of 2 media threads \
             needs one: stop the programs, choose other ports (media.udp_ports), or set \
             media.threads to 1"
        );
        assert_eq!(
            with_range(1, 1, refusal),
            "other programs use UDP port PORTS: stop them, or choose other ports (media.udp_ports)"
        );
    }
}
