//! Classification of the addresses to which a request may go.
//!
//! The ranges are those of the IANA special-purpose registries (RFC 6890 and its updates). IPv6
//! forms that carry an IPv4 address (mapped, compatible, NAT64, 6to4, Teredo, ISATAP) also count as
//! that address, because a gateway would unpack them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Class of an address for outgoing requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressClass {
    /// On the public internet.
    Public,
    /// This machine, its networks, or a range that is not routed: allowed only by the operator.
    Private,
    /// A cloud's metadata service, which hands out credentials: never allowed.
    Metadata,
}

/// Class of `address`.
#[must_use]
pub fn classify(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(v4) => classify_v4(v4),
        IpAddr::V6(v6) => classify_v6(v6),
    }
}

/// Metadata services by IPv4: AWS and most others, ECS tasks, EKS, Alibaba, Oracle, Azure's agent.
const METADATA_V4: [Ipv4Addr; 6] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];

/// Metadata services by IPv6: AWS, EKS, Google.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    if METADATA_V4.contains(&address) {
        return AddressClass::Metadata;
    }
    let private = match address.octets() {
        [0 | 10 | 127 | 224.., ..] => true, // this network, private, loopback, multicast, reserved
        [100, b, ..] => b & 0xc0 == 64,     // carrier-grade NAT
        [169, 254, ..] => true,             // link-local
        [172, b, ..] => b & 0xf0 == 16,     // private
        [192, 168, ..] => true,             // private
        [192, 0, 0 | 2, _] => true,         // protocol assignments, documentation
        [192, 88, 99, _] => true,           // 6to4 relays
        [198, 18 | 19, ..] => true,         // benchmarks
        [198, 51, 100, _] => true,          // documentation
        [203, 0, 113, _] => true,           // documentation
        _ => false,
    };
    if private { AddressClass::Private } else { AddressClass::Public }
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    if METADATA_V6.contains(&address) {
        return AddressClass::Metadata;
    }
    let inner = embedded_ipv4(address).map(classify_v4);
    if inner == Some(AddressClass::Metadata) {
        return AddressClass::Metadata;
    }
    let s = address.segments();
    let outer = match s {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => AddressClass::Public, // NAT64: what it carries decides
        [0x2001, 0x0db8, ..] => AddressClass::Private,          // documentation
        [0x2001, b, ..] if b < 0x200 => AddressClass::Private,  // protocol assignments, Teredo
        [0x3fff, b, ..] if b < 0x1000 => AddressClass::Private, // documentation
        [0x2002, ..] => AddressClass::Public,                   // 6to4: what it carries decides
        [a, ..] if a & 0xe000 == 0x2000 => AddressClass::Public, // global unicast
        [0, 0, 0, 0, 0, 0xffff, ..] => AddressClass::Public,    // mapped: what it carries decides
        // Loopback, unspecified, unique local, link-local, site-local, multicast, unassigned.
        _ => AddressClass::Private,
    };
    inner.map_or(outer, |inner| inner.max(outer))
}

/// The IPv4 address that an IPv6 address carries, if it has one of these forms.
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = address.segments();
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match s {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => v4(high, low), // compatible, mapped
        [0, 0, 0, 0, 0xffff, 0, high, low] => v4(high, low),     // translated (RFC 2765)
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),  // NAT64
        [0x64, 0xff9b, 1, _, _, _, high, low] => v4(high, low),  // NAT64 of a local network, /96
        [0x2002, high, low, ..] => v4(high, low),                // 6to4
        [0x2001, 0, _, _, _, _, high, low] => v4(!high, !low),   // Teredo
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => v4(high, low), // ISATAP
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class_of(text: &str) -> AddressClass {
        classify(text.parse().unwrap())
    }

    #[test]
    fn public_addresses_are_public() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.32.0.1",
            "192.1.1.1",
            "223.255.255.255",
        ] {
            assert_eq!(class_of(text), AddressClass::Public, "{text}");
        }
        for text in [
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:0808:0808::1",
            "2a00:1450::1",
        ] {
            assert_eq!(class_of(text), AddressClass::Public, "{text}");
        }
    }

    #[test]
    fn special_ipv4_ranges_are_private() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.1.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "192.0.0.1",
            "192.0.2.5",
            "192.88.99.1",
            "198.18.0.1",
            "198.19.255.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
        ] {
            assert_eq!(class_of(text), AddressClass::Private, "{text}");
        }
    }

    #[test]
    fn special_ipv6_ranges_are_private() {
        for text in [
            "::",
            "::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd12:3456::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "3fff::1",
            "100::1",
            "64:ff9b:1::1",
            "4000::1",
            "5f00::1",
        ] {
            assert_eq!(class_of(text), AddressClass::Private, "{text}");
        }
    }

    #[test]
    fn ipv6_forms_of_private_ipv4_addresses_are_private() {
        for text in [
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::192.168.0.1",
            "2002:7f00:0001::1",
            "2002:0a00:0001::",
            "2001:0:1:2:3:4:80ff:fffe",
            "2a00::5efe:10.0.0.1",
            "2a00::200:5efe:127.0.0.1",
            "::ffff:0:127.0.0.1",
        ] {
            assert_eq!(class_of(text), AddressClass::Private, "{text}");
        }
    }

    #[test]
    fn metadata_services_are_recognized_in_every_form() {
        for text in [
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "64:ff9b:1::169.254.169.254",
        ] {
            assert_eq!(class_of(text), AddressClass::Metadata, "{text}");
        }
    }
}
