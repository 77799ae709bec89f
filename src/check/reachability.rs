//! Whether calls from other machines can connect, as far as the configuration and the addresses of
//! this machine tell.

use std::net::{IpAddr, Ipv4Addr};

use crate::config::Config;
use crate::listen::ListenAddress;

use super::{CheckResult, check_result};

/// What a server without a public address serves.
const LOCAL_ONLY: &str = "from this machine only; for a proxy, set server.public_url";

/// `hosts`: addresses of this machine, without loopback.
pub(super) fn check(config: &Config, hosts: &[IpAddr]) -> CheckResult {
    let faults = faults(config, hosts);
    let (ready, detail) = match faults.as_slice() {
        [] if is_local(config) => (true, LOCAL_ONLY.to_owned()),
        [] => {
            let own: &[IpAddr] = &config.media.public_ip;
            let addresses = if own.is_empty() { hosts } else { own };
            let names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            (true, format!("media at {}", names.join(", ")))
        }
        faults => (false, faults.join("; also ")),
    };
    check_result("reachability", "net", ready, false, detail)
}

/// Whether only this machine opens pages.
fn is_local(config: &Config) -> bool {
    config.server.public_url.is_none() && is_loopback(config.server.listen)
}

fn is_loopback(address: ListenAddress) -> bool {
    matches!(address, ListenAddress::One(address) if address.ip().is_loopback())
}

/// Why callers on other machines cannot connect or speak, each with what to set.
fn faults(config: &Config, hosts: &[IpAddr]) -> Vec<String> {
    if is_local(config) {
        return Vec::new();
    }
    let listen = config.server.listen;
    let (host, https_fault) = if let Some(public_url) = &config.server.public_url {
        // The configuration has checked it.
        let Ok(url) = url::Url::parse(public_url) else { return Vec::new() };
        let host = host_address(&url);
        if host.is_some_and(|ip| ip.is_loopback()) {
            return Vec::new();
        }
        let fault = "server.public_url is not https: a browser on another machine gives the page \
                     no microphone";
        (host, (url.scheme() == "http").then(|| fault.to_owned()))
    } else {
        let fault = format!(
            "the server listens on {listen} without https: a browser on another machine gives the \
             page no microphone; set server.public_url, behind a proxy that terminates TLS"
        );
        (listen_host(listen), Some(fault))
    };
    https_fault.into_iter().chain(media_fault(config, host, hosts)).collect()
}

/// The address in a URL, if it has no name of a host.
fn host_address(url: &url::Url) -> Option<IpAddr> {
    match url.host()? {
        url::Host::Ipv4(ip) => Some(IpAddr::V4(ip)),
        url::Host::Ipv6(ip) => Some(IpAddr::V6(ip)),
        url::Host::Domain("localhost") => Some(Ipv4Addr::LOCALHOST.into()),
        url::Host::Domain(_) => None,
    }
}

/// The address at which the server listens, if it is one only.
fn listen_host(listen: ListenAddress) -> Option<IpAddr> {
    match listen {
        ListenAddress::One(address) if !address.ip().is_unspecified() => Some(address.ip()),
        _ => None,
    }
}

/// Why media do not arrive from other networks. `host`: the address of the pages, if it is known. A
/// private one is opened from its own network only.
fn media_fault(config: &Config, host: Option<IpAddr>, hosts: &[IpAddr]) -> Option<String> {
    let is_reachable = !config.media.public_ip.is_empty()
        || !config.media.ice_servers.is_empty()
        || host.is_some_and(is_private)
        || hosts.iter().any(|ip| !is_private(*ip));
    (!is_reachable).then(|| {
        let all: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let addresses = match all.as_slice() {
            [] => "this machine has no address for media".to_owned(),
            all => format!("all addresses of this machine are private ({})", all.join(", ")),
        };
        format!(
            "{addresses}: calls from other networks cannot connect; set media.public_ip to the \
             address of the machine or its router, and forward media.udp_ports and media.tcp_port"
        )
    })
}

/// Whether an address is reached only from its own network.
fn is_private(ip: IpAddr) -> bool {
    match ip {
        // 100.64.0.0/10 is that of a carrier's NAT.
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            let is_carrier = a == 100 && b & 0xc0 == 64;
            ip.is_private() || ip.is_loopback() || ip.is_link_local() || is_carrier
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(
        listen: &str,
        public_url: &str,
        public_ip: &[&str],
        hosts: &[&str],
    ) -> (bool, String) {
        let addresses = |all: &[&str]| all.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<_>>();
        let mut config = Config::default();
        config.server.listen = listen.parse().unwrap();
        config.server.public_url = Some(public_url.to_owned()).filter(|url| !url.is_empty());
        config.media.public_ip = addresses(public_ip);
        let result = check(&config, &addresses(hosts));
        assert!(!result.required, "{}", result.detail);
        (result.ready, result.detail)
    }

    #[test]
    fn calls_from_other_machines_need_https_and_an_address_that_they_reach() {
        let url = "https://talk.example.com";
        let lan = ["192.168.1.5", "100.64.0.9"];
        let no_microphone = "a browser on another machine gives the page no microphone";
        for (listen, public_url, public_ip, hosts, expected) in [
            ("8080", "", &[][..], &lan[..], Ok(LOCAL_ONLY)),
            (":8080", "", &[], &lan, Err("the server listens on :8080 without https: ")),
            ("192.168.1.5:8080", "", &[], &lan, Err("the server listens on 192.168.1.5:8080 ")),
            ("8080", "http://talk.example.com", &[], &lan, Err(no_microphone)),
            ("8080", "http://localhost:8080", &[], &lan, Ok("media at 192.168.1.5, 100.64.0.9")),
            (
                "8080",
                url,
                &[],
                &["172.17.0.2"],
                Err("all addresses of this machine are private (172.17.0.2): "),
            ),
            ("8080", url, &[], &[], Err("this machine has no address for media: ")),
            ("8080", url, &["203.0.113.7"], &lan, Ok("media at 203.0.113.7")),
            ("8080", url, &[], &["10.0.0.4", "203.0.113.7"], Ok("media at 10.0.0.4, 203.0.113.7")),
            ("8080", "https://192.168.1.5", &[], &["192.168.1.5"], Ok("media at 192.168.1.5")),
        ] {
            let (ready, detail) = report(listen, public_url, public_ip, hosts);
            match expected {
                Ok(text) => assert!(ready && detail == text, "{detail}"),
                Err(part) => assert!(!ready && detail.contains(part), "{detail}"),
            }
        }
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let lan = ["172.17.0.2"];
        let private = "; also all addresses of this machine are private (172.17.0.2): ";
        for (listen, public_url) in
            [("0.0.0.0:8080", ""), (":8080", ""), ("8080", "http://talk.example.com")]
        {
            let (ready, detail) = report(listen, public_url, &[], &lan);
            let parts = ["no microphone", private, "set media.public_ip"];
            assert!(!ready && parts.iter().all(|part| detail.contains(part)), "{detail}");
            let (ready, detail) = report(listen, public_url, &["203.0.113.7"], &lan);
            assert!(!ready && !detail.contains("; also "), "{detail}");
        }
        // Pages at a private address are opened from its network, where media arrive.
        for (listen, public_url) in [("172.17.0.2:8080", ""), ("8080", "http://172.17.0.2")] {
            let (ready, detail) = report(listen, public_url, &[], &lan);
            assert!(!ready && !detail.contains("; also "), "{detail}");
        }
    }
}
