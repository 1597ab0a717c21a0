//! The `Host` field and `:authority`, by which servers and proxies route a request.

pub mod host_port;
pub mod loopback;
pub mod normal_url;
pub mod server_url;

use std::net::Ipv6Addr;

use memchr::memchr;

use crate::invalid::InvalidRequest;

/// Checks the host of a request: a host, perhaps with a port, and nothing else (RFC 9110 §7.2). An
/// empty host is only for targets without an authority (RFC 9112 §3.2), unlike `http` targets.
///
/// # Errors
/// [`InvalidRequest::HostMissing`] without a host, [`InvalidRequest::Malformed`] for an invalid one.
pub fn check(host: Option<&[u8]>) -> Result<(), InvalidRequest> {
    match host {
        None | Some(b"") => Err(InvalidRequest::HostMissing),
        Some(host) if is_host_and_port(host) => Ok(()),
        Some(_) => Err(InvalidRequest::Malformed),
    }
}

/// Returns true for `uri-host [ ":" port ]` (RFC 3986 §3.2), restricted to real names and
/// addresses: in brackets IPv6 without a zone, in names none of `!$&'()*+,;=`.
fn is_host_and_port(text: &[u8]) -> bool {
    let Some(bracketed) = text.strip_prefix(b"[") else {
        return match split_at(b':', text) {
            Some((name, port)) => is_name(name) && is_port(port),
            None => is_name(text),
        };
    };
    let Some((address, rest)) = split_at(b']', bracketed) else {
        return false;
    };
    match std::str::from_utf8(address).map(str::parse::<Ipv6Addr>) {
        Ok(Ok(_)) => rest.is_empty() || rest.strip_prefix(b":").is_some_and(is_port),
        _ => false,
    }
}

/// Returns the text before and after the first such byte.
fn split_at(byte: u8, text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (before, rest) = text.split_at(memchr(byte, text)?);
    Some((before, rest.get(1..)?))
}

fn is_name(name: &[u8]) -> bool {
    let mut pieces = name.split(|&byte| byte == b'%');
    // After each `%` stand two digits, then plain bytes again.
    !name.is_empty() && pieces.next().is_some_and(is_plain) && pieces.all(is_escaped)
}

fn is_plain(piece: &[u8]) -> bool {
    piece.iter().all(is_unreserved)
}

fn is_escaped(piece: &[u8]) -> bool {
    match piece.split_at_checked(2) {
        Some((digits, rest)) => digits.iter().all(u8::is_ascii_hexdigit) && is_plain(rest),
        None => false,
    }
}

fn is_unreserved(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(byte)
}

/// Returns true for digits; an empty port is the default one (RFC 9110 §4.2.3).
fn is_port(port: &[u8]) -> bool {
    let number = std::str::from_utf8(port).map(str::parse::<u16>);
    port.is_empty() || port.iter().all(u8::is_ascii_digit) && matches!(number, Ok(Ok(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(host: &str) -> Result<(), InvalidRequest> {
        check(Some(host.as_bytes()))
    }

    #[test]
    fn a_host_is_a_host_and_a_port() {
        let hosts = "a a.example:8080 a.example.:65535 10.0.0.1 [::1] [::1]:80 \
             [2001:DB8::192.0.2.1]:8443 a_b a~b a-b: b%C3%BCcher:080";
        for host in hosts.split(' ') {
            assert_eq!(checked(host), Ok(()), "{host}");
        }
        let hosts = "a b|a/../b|u@a|a?b|a#b|a,b|a\\b|a;b|b\u{fc}cher|:80|:|a:x|a:8 0|a:+80|a:-1|a:65536|\
             a:99999999999|a:80:80|::1|[::1|::1]|[]|[]:80|[::1]80|[::1]:x|[::1]]|[[::1]]|a[::1]|\
             [a]|[10.0.0.1]|[v1.a]|[fe80::1%25eth0]|a%|a%4|a%4g|%";
        for host in hosts.split('|') {
            assert_eq!(checked(host), Err(InvalidRequest::Malformed), "{host}");
        }
    }

    #[test]
    fn a_request_without_one_is_for_no_host() {
        assert_eq!(checked(""), Err(InvalidRequest::HostMissing));
        assert_eq!(check(None), Err(InvalidRequest::HostMissing));
    }
}
