//! The address of the web pages and the API: how it is written, and how it is bound.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::Deserialize;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Number of connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// `server.listen`. A port alone and `localhost:PORT` are the loopback address; `:PORT` is every
/// address of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum ListenAddress {
    /// All addresses of IPv4, and of IPv6 if this machine has it.
    All(u16),
    /// One address; `[::]` includes those of IPv4.
    One(SocketAddr),
}

impl Default for ListenAddress {
    fn default() -> Self {
        Self::One(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(port) => write!(f, ":{port}"),
            Self::One(address) => address.fmt(f),
        }
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    /// # Errors
    /// One sentence that says what to write.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let local = |port: u16| Self::One(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        if let Ok(port) = text.parse() {
            return Ok(local(port));
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self::One(SocketAddr::new(address.ip().to_canonical(), address.port())));
        }
        let without_brackets = text.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = without_brackets.parse::<IpAddr>() {
            let example = SocketAddr::new(ip, 8080);
            return Err(format!("\"{text}\" has no port: write \"{example}\""));
        }
        if text.eq_ignore_ascii_case("localhost") {
            return Err(format!("\"{text}\" has no port: write \"localhost:8080\""));
        }
        match text.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>())) {
            Some(("", Ok(port))) => Ok(Self::All(port)),
            Some((host, Ok(port))) if host.eq_ignore_ascii_case("localhost") => Ok(local(port)),
            Some((_, Ok(port))) => Err(format!(
                "\"{text}\" is not an address of this machine: write \":{port}\" for all of them, or \
                 one such as \"127.0.0.1:{port}\""
            )),
            _ => Err(format!(
                "\"{text}\" is not an address: write a port such as \"8080\", or an address with a \
                 port such as \"127.0.0.1:8080\", \"[::1]:8080\" or \":8080\""
            )),
        }
    }
}

impl ListenAddress {
    pub(crate) fn port(self) -> u16 {
        match self {
            Self::All(port) => port,
            Self::One(address) => address.port(),
        }
    }

    /// Listens, inside of a tokio runtime.
    ///
    /// # Errors
    /// The system's error: the port is in use, or the address is not one of this machine.
    pub(crate) fn bind(self) -> io::Result<TcpListener> {
        match self {
            Self::One(address) => listen(address),
            Self::All(port) => listen((Ipv6Addr::UNSPECIFIED, port).into()).or_else(|error| {
                // A kernel without IPv6, or with IPv6 switched off.
                let has_no_ipv6 = error.kind() == io::ErrorKind::AddrNotAvailable
                    || error.raw_os_error() == Some(libc::EAFNOSUPPORT);
                if has_no_ipv6 { listen((Ipv4Addr::UNSPECIFIED, port).into()) } else { Err(error) }
            }),
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // Independent of the system's default. An address other than `::` is of one family anyway.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// The address of a listener for clients on this machine: an unspecified address cannot be opened
/// everywhere.
pub(crate) fn local_link(listening: SocketAddr) -> String {
    let ip = match listening.ip() {
        ip if !ip.is_unspecified() => ip,
        // A listener of both families has this address, too.
        _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    format!("http://{}", SocketAddr::new(ip, listening.port()))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    fn read(text: &str) -> Result<String, String> {
        text.parse::<ListenAddress>().map(|address| address.to_string())
    }

    #[test]
    fn a_port_alone_is_the_loopback_address_and_a_colon_means_all_addresses() {
        for (text, expected) in [
            ("8080", "127.0.0.1:8080"),
            ("0", "127.0.0.1:0"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("Localhost:8080", "127.0.0.1:8080"),
            (":8080", ":8080"),
            ("0.0.0.0:8080", "0.0.0.0:8080"),
            ("[::]:8080", "[::]:8080"),
            ("[::1]:8080", "[::1]:8080"),
            ("[::ffff:127.0.0.1]:8080", "127.0.0.1:8080"),
            (" 127.0.0.1:80 ", "127.0.0.1:80"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_incomplete_address_is_refused_with_what_to_write() {
        for (text, expected) in [
            ("0.0.0.0", "\"0.0.0.0\" has no port: write \"0.0.0.0:8080\""),
            ("::", "\"::\" has no port: write \"[::]:8080\""),
            ("[::1]", "\"[::1]\" has no port: write \"[::1]:8080\""),
            ("localhost", "\"localhost\" has no port: write \"localhost:8080\""),
            (
                "talk.example.com:80",
                "\"talk.example.com:80\" is not an address of this machine: write \":80\" for all \
                 of them, or one such as \"127.0.0.1:80\"",
            ),
        ] {
            assert_eq!(read(text).unwrap_err(), expected);
        }
        for text in ["", "here", "99999", ":", ":99999", "127.0.0.1:", "1.2.3.4.5:80x"] {
            assert!(read(text).unwrap_err().contains("is not an address: write a port"), "{text}");
        }
    }

    #[tokio::test]
    async fn all_addresses_are_those_of_both_families() {
        for address in [ListenAddress::All(0), "[::]:0".parse().unwrap()] {
            let listener = address.bind().unwrap();
            let port = listener.local_addr().unwrap().port();
            TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (_, peer) = listener.accept().await.unwrap();
            assert!(peer.ip().to_canonical().is_loopback(), "{peer}");
            TcpStream::connect(("::1", port)).await.unwrap();
        }
        let only = "[::1]:0".parse::<ListenAddress>().unwrap().bind().unwrap();
        TcpStream::connect(only.local_addr().unwrap()).await.unwrap();
    }

    #[test]
    fn the_link_of_an_unspecified_address_is_the_loopback_address() {
        for (listening, expected) in [
            ("0.0.0.0:8080", "http://127.0.0.1:8080"),
            ("[::]:8080", "http://127.0.0.1:8080"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("192.0.2.7:80", "http://192.0.2.7:80"),
        ] {
            assert_eq!(local_link(listening.parse().unwrap()), expected);
        }
    }
}
