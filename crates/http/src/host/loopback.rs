//! Hosts that are this machine itself.

use std::net::IpAddr;

use http::uri::Authority;
use http::{HeaderMap, header};

/// Returns true if requests to this host of a URL stay on this machine. A name other than
/// `localhost` (RFC 6761 §6.3) may resolve to anything.
#[must_use]
pub fn is_loopback_host(host: &str) -> bool {
    match host.trim_matches(['[', ']']).parse() {
        Ok(address) => is_loopback(address),
        Err(_) => host
            .strip_suffix('.')
            .unwrap_or(host)
            .eq_ignore_ascii_case("localhost"),
    }
}

/// Returns true for an address that only this machine reaches, in IPv6's form of it (RFC 4291
/// §2.5.5.2) too.
#[must_use]
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Returns true if the Host field names this machine. An attacker's page may let its own name lead
/// here (DNS rebinding): its browser is a loopback peer, but sends that name.
#[must_use]
pub fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else {
        return false;
    };
    match host.to_str().unwrap_or_default().parse::<Authority>() {
        Ok(authority) => is_loopback_host(authority.host()),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_localhost_and_its_addresses_in_any_form() {
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost", true),
            ("localhost.", true),
            ("127.0.0.1", true),
            ("127.8.9.10", true),
            ("::1", true),
            ("[::1]", true),
            ("::ffff:127.0.0.1", true),
            ("[::ffff:7f00:1]", true),
            ("", false),
            (".", false),
            ("localhost..", false),
            ("localhost.example.org", false),
            ("127.0.0.1.example.org", false),
            ("0.0.0.0", false),
            ("[::]", false),
            ("128.0.0.1", false),
            ("[::ffff:10.0.0.1]", false),
            ("[2001:db8::1]", false),
        ] {
            assert_eq!(is_loopback_host(host), expected, "{host}");
        }
    }
}
