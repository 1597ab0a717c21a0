//! Detects a proxy loop: a sidecar that is its own upstream forwards a request to itself until its
//! limits are reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// Returns true if a connection to `target` reaches a socket that listens on `listen`. `is_ours`
/// recognises the addresses of this host.
pub(crate) fn leads_to(
    target: SocketAddr,
    listen: SocketAddr,
    is_ours: impl FnOnce(IpAddr) -> bool,
) -> bool {
    if target.port() != listen.port() {
        return false;
    }
    let (target, listen) = (target.ip().to_canonical(), listen.ip().to_canonical());
    if listen.is_unspecified() {
        // On Linux `[::]` accepts IPv4 too.
        let accepts = listen.is_ipv6() || target.is_ipv4();
        return accepts && (target.is_unspecified() || is_ours(target));
    }
    // Connecting to the unspecified address means this host.
    let loopback = if target.is_ipv4() {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    } else {
        IpAddr::V6(Ipv6Addr::LOCALHOST)
    };
    target == listen || (target.is_unspecified() && listen == loopback)
}

/// Returns true for an address of this host: a socket can be bound to no other.
pub(crate) fn is_of_this_host(address: IpAddr) -> bool {
    TcpListener::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn every_form_of_an_own_address_is_recognised() {
        for (target, listen, leads) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("127.0.0.2:1", "127.0.0.1:1", false),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("0.0.0.0:1", "0.0.0.0:1", true),
            ("127.0.0.1:1", "0.0.0.0:1", true),
            ("192.0.2.1:1", "0.0.0.0:1", true),
            ("198.51.100.1:1", "0.0.0.0:1", false),
            ("192.0.2.1:1", "127.0.0.1:1", false),
            ("[::1]:1", "0.0.0.0:1", false),
            ("127.0.0.1:1", "[::]:1", true),
            ("[::1]:1", "[::]:1", true),
            ("[::]:1", "[::1]:1", true),
            ("[::]:1", "127.0.0.1:1", false),
            ("[::ffff:127.0.0.1]:1", "127.0.0.1:1", true),
        ] {
            let is_ours =
                |address: IpAddr| address.is_loopback() || address == IpAddr::from([192, 0, 2, 1]);
            let checked = leads_to(target.parse().unwrap(), listen.parse().unwrap(), is_ours);
            assert_eq!(checked, leads, "{target} → {listen}");
        }
    }

    #[test]
    fn this_host_knows_its_addresses() {
        assert!(is_of_this_host([127, 0, 0, 1].into()));
        // TEST-NET-1 is unassigned (RFC 5737).
        assert!(!is_of_this_host([192, 0, 2, 1].into()));
    }
}
