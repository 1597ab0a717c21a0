//! The `Host` field: whom the request is for, as far as anybody behind routes by it.

use contract::rejection::Rejection;

/// RFC 9110 §7.2: what routes a request is a host and perhaps a port, and nothing else.
pub(crate) fn check(host: Option<&[u8]>) -> Result<(), Rejection> {
    match host {
        None | Some(b"") => Err(Rejection::HostMissing),
        Some(host) if host.iter().all(|&byte| is_of_a_host(byte)) => Ok(()),
        Some(_) => Err(Rejection::RequestMalformed),
    }
}

/// `uri-host` with `port` (RFC 3986 §3.2): no user, no path, no blank.
const fn is_of_a_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':' | b'[' | b']' | b'%')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(host: &str) -> Result<(), Rejection> {
        check(Some(host.as_bytes()))
    }

    #[test]
    fn a_host_is_a_host_and_a_port() {
        for host in ["a", "a.example:8080", "10.0.0.1", "[::1]:80", "a_b"] {
            assert_eq!(judged(host), Ok(()), "{host}");
        }
        for host in ["a b", "a/../b", "u@a", "a?b", "a#b", "a,b", "a\\b"] {
            assert_eq!(judged(host), Err(Rejection::RequestMalformed), "{host}");
        }
    }

    #[test]
    fn a_request_without_one_is_for_nobody() {
        assert_eq!(judged(""), Err(Rejection::HostMissing));
        assert_eq!(check(None), Err(Rejection::HostMissing));
    }
}
