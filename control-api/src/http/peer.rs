//! The client address of a request, also behind proxies, and what counts as one address.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap};

use crate::config::Network;
use crate::error::ApiError;
use crate::state::AppState;
use crate::state::rate_limit::RateLimit;

/// The client address of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl FromRequestParts<Arc<AppState>> for Peer {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<AppState>,
    ) -> Result<Self, Self::Rejection> {
        Ok(resolve_peer(&parts.extensions, &parts.headers, &state.config.trusted_proxies))
    }
}

/// The connection's address. If that is a proxy's, the last address in `X-Forwarded-For` that is
/// not a proxy. Proxies are the addresses in `proxies` and every process on this machine.
pub(crate) fn resolve_peer(
    extensions: &Extensions,
    headers: &HeaderMap,
    proxies: &[Network],
) -> Peer {
    let direct = extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map_or(IpAddr::from([0, 0, 0, 0]), |c| c.0.ip())
        .to_canonical();
    let is_proxy =
        |address: IpAddr| address.is_loopback() || proxies.iter().any(|p| p.contains(address));
    if !is_proxy(direct) {
        return Peer(direct);
    }
    let forwarded =
        headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let named: Vec<&str> = forwarded.flat_map(|value| value.split(',')).collect();
    let mut client = direct;
    for name in named.iter().rev() {
        // Entries to the left of an invalid one are not trustworthy.
        let Ok(address) = name.trim().parse::<IpAddr>() else { break };
        client = address.to_canonical();
        if !is_proxy(client) {
            break;
        }
    }
    // A remote proxy must not claim a client on this machine.
    Peer(if client.is_loopback() && !direct.is_loopback() { direct } else { client })
}

/// The key under which connections of `address` are counted; `None` for this machine and for
/// proxies, whose connections belong to many clients.
pub(crate) fn connection_limit_key(address: IpAddr, proxies: &[Network]) -> Option<IpAddr> {
    let address = address.to_canonical();
    let is_shared = address.is_loopback() || proxies.iter().any(|p| p.contains(address));
    (!is_shared).then(|| Peer(address).subscriber_network())
}

impl Peer {
    /// The network that limits count as one: an IPv4 address, or an IPv6 /64, which any subscriber
    /// owns as a whole.
    pub(crate) fn subscriber_network(self) -> IpAddr {
        match self.0 {
            IpAddr::V4(_) => self.0,
            IpAddr::V6(address) => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
            }
        }
    }
}

impl AppState {
    /// Whether limits by address do not apply: to clients on this machine, unless a proxy on it may
    /// forward requests of others.
    pub(crate) fn is_rate_limit_exempt(&self, peer: Peer) -> bool {
        peer.0.is_loopback() && self.config.public_url.is_none()
    }

    /// Charges one request of an address to a rate limit, unless it is exempt.
    pub(crate) fn check_rate_limit(
        &self,
        limit: &RateLimit<IpAddr>,
        peer: Peer,
    ) -> Result<(), ApiError> {
        if self.is_rate_limit_exempt(peer) {
            return Ok(());
        }
        limit.check(peer.subscriber_network(), Instant::now()).map_err(ApiError::RateLimited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(direct: &str, forwarded: &[&str], proxies: &[&str]) -> String {
        let mut extensions = Extensions::new();
        extensions.insert(ConnectInfo(SocketAddr::new(direct.parse().unwrap(), 1)));
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", value.parse().unwrap());
        }
        let proxies: Vec<Network> = proxies.iter().map(|text| text.parse().unwrap()).collect();
        resolve_peer(&extensions, &headers, &proxies).0.to_string()
    }

    #[test]
    fn only_proxies_speak_for_others() {
        assert_eq!(peer("192.0.2.1", &["203.0.113.9"], &[]), "192.0.2.1");
        assert_eq!(peer("127.0.0.1", &["203.0.113.9"], &[]), "203.0.113.9");
        assert_eq!(peer("10.1.2.3", &["203.0.113.9"], &["10.0.0.0/8"]), "203.0.113.9");
        assert_eq!(peer("10.1.2.3", &["203.0.113.9"], &["10.1.2.4"]), "10.1.2.3");
        assert_eq!(peer("::ffff:10.1.2.3", &["203.0.113.9"], &["10.1.2.3"]), "203.0.113.9");
        assert_eq!(peer("fd00::1", &["2001:db8::7"], &["fd00::/8"]), "2001:db8::7");
        assert_eq!(peer("127.0.0.1", &[], &[]), "127.0.0.1");
    }

    #[test]
    fn forwarded_addresses_before_the_trusted_proxies_are_ignored() {
        // The client claims to be 198.51.100.1. The outer proxy appended the address of its peer,
        // and the inner one appended the outer one's.
        assert_eq!(
            peer("10.0.0.2", &["198.51.100.1, 203.0.113.9, 10.0.0.1"], &["10.0.0.0/8"]),
            "203.0.113.9"
        );
        assert_eq!(
            peer("10.0.0.2", &["198.51.100.1", "203.0.113.9"], &["10.0.0.0/8"]),
            "203.0.113.9"
        );
        assert_eq!(peer("10.0.0.2", &["198.51.100.1, unknown"], &["10.0.0.0/8"]), "10.0.0.2");
        assert_eq!(
            peer("10.0.0.2", &["127.0.0.1"], &["10.0.0.0/8"]),
            "10.0.0.2",
            "another proxy cannot claim an address of this machine"
        );
    }

    #[test]
    fn a_network_of_ipv6_is_one_subscriber() {
        let subscriber = |text: &str| Peer(text.parse().unwrap()).subscriber_network().to_string();
        assert_eq!(subscriber("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(subscriber("2001:db8:1:2:ffff::1"), "2001:db8:1:2::");
        assert_ne!(subscriber("2001:db8:1:3::1"), subscriber("2001:db8:1:2::1"));
        assert_eq!(subscriber("192.0.2.7"), "192.0.2.7");
    }

    #[test]
    fn connections_of_this_machine_and_of_proxies_are_not_counted() {
        let proxies: Vec<Network> =
            ["10.0.0.0/8", "fd00::/8"].iter().map(|text| text.parse().unwrap()).collect();
        let counted = |text: &str| {
            connection_limit_key(text.parse().unwrap(), &proxies).map(|address| address.to_string())
        };
        for many in
            ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.1.2.3", "::ffff:10.1.2.3", "fd00::1"]
        {
            assert_eq!(counted(many), None, "{many}");
        }
        assert_eq!(counted("::ffff:192.0.2.1").as_deref(), Some("192.0.2.1"));
        assert_eq!(counted("2001:db8:1:2:3::4").as_deref(), Some("2001:db8:1:2::"));
    }
}
