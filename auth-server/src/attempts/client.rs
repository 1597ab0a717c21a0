//! What counts as one client.

use std::net::IpAddr;

/// Who is one client: an IPv4 address, or the IPv6 network a customer or a host gets (RFC 6177),
/// within which an address costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Client {
    V4([u8; 4]),
    V6Network(u64),
}

impl From<IpAddr> for Client {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => Self::V6Network((address.to_bits() >> 64) as u64),
        }
    }
}

impl Client {
    /// Distinct for distinct clients.
    pub(super) fn to_bytes(self) -> [u8; 9] {
        let mut bytes = [0; 9];
        let (kind, rest) = bytes.split_at_mut(1);
        match self {
            Self::V4(address) => rest
                .iter_mut()
                .zip(address)
                .for_each(|(to, from)| *to = from),
            Self::V6Network(network) => {
                kind.fill(6);
                rest.copy_from_slice(&network.to_be_bytes());
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_ipv4_address_or_an_ipv6_network_is_one_client() {
        let client = |address: &str| Client::from(address.parse::<IpAddr>().unwrap());
        for (one, other, same) in [
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
            ("192.0.2.1", "c000:201::", false),
        ] {
            let (one, other) = (client(one), client(other));
            assert_eq!(one == other, same, "{one:?} {other:?}");
            assert_eq!(
                one.to_bytes() == other.to_bytes(),
                same,
                "{one:?} {other:?}"
            );
        }
    }
}
