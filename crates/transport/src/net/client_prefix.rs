//! Address prefixes that count as one client, or as one network.

use std::net::IpAddr;

/// An address prefix. Canonical: an IPv4-mapped IPv6 address equals its IPv4 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientPrefix(u128);

impl ClientPrefix {
    /// Returns the IPv4 address, or the IPv6 /64, because a client can choose any address within its link.
    pub fn client(address: IpAddr) -> Self {
        Self::within(address, 32, 64)
    }

    /// Returns the prefix that one attacker can easily own: an IPv4 /24, the smallest prefix that is routed,
    /// or the IPv6 /48 of a site (RFC 6177).
    pub fn network(address: IpAddr) -> Self {
        Self::within(address, 24, 48)
    }

    fn within(address: IpAddr, ipv4_bits: u32, ipv6_bits: u32) -> Self {
        let (bits, prefix) = match address.to_canonical() {
            IpAddr::V4(address) => (address.to_ipv6_mapped().to_bits(), 96 + ipv4_bits),
            IpAddr::V6(address) => (address.to_bits(), ipv6_bits),
        };
        Self(bits & (u128::MAX << (128 - prefix)))
    }

    /// Returns bytes that differ for different prefixes.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_client_is_an_address_or_a_64_and_a_network_a_24_or_a_48() {
        for (one, other, same_client, same_network) in [
            ("192.0.2.1", "192.0.2.1", true, true),
            ("192.0.2.1", "::ffff:192.0.2.1", true, true),
            ("192.0.2.1", "192.0.2.2", false, true),
            ("192.0.2.1", "192.0.3.1", false, false),
            ("192.0.2.1", "192.0.2.128", false, true),
            ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true, true),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", false, true),
            ("2001:db8:0:1::1", "2001:db8:1:1::1", false, false),
            ("192.0.2.1", "c000:201::", false, false),
            ("0.0.0.0", "::", false, false),
        ] {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            let clients = (ClientPrefix::client(one), ClientPrefix::client(other));
            let networks = (ClientPrefix::network(one), ClientPrefix::network(other));
            assert_eq!(clients.0 == clients.1, same_client, "{one} {other}");
            assert_eq!(networks.0 == networks.1, same_network, "{one} {other}");
            let bytes = (clients.0.to_bytes(), clients.1.to_bytes());
            assert_eq!(bytes.0 == bytes.1, same_client, "{one} {other}");
        }
    }
}
