//! Rejects an HTTP/1 head that two parsers could read differently (`wire::http::framing`), that
//! is too large, or that no proxy may forward.

use http::{HeaderMap, Version, header};
use wire::http::framing::{self, is_tchar};
use wire::http::host;
use wire::rejection::Rejection;

use crate::request::header_list::members;
use crate::request::received::ReceivedHead;
use crate::request::target::authority;

/// Checks a request head.
pub(super) fn check(head: &ReceivedHead) -> Result<(), Rejection> {
    let (headers, target) = (&head.headers, head.target());
    if connection_names_end_to_end_header(headers) {
        return Err(Rejection::RequestFraming);
    }
    framing::check(&head.raw)?;
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(Rejection::RequestMalformed),
        // A plain health check: RFC 9112 §3.2 requires the field in HTTP/1.1 alone.
        (None, _) if head.version == Version::HTTP_10 && target.starts_with(b"/") => {}
        (host, None) => host::check(host.map(|host| host.as_bytes()))?,
    }
    match authority(target) {
        Some(authority) => host::check(Some(authority)),
        None => Ok(()),
    }
}

/// Returns true if `Connection` would remove a field that frames or routes the request, or that its
/// decision reads, so that the service reads another request than was authorized, or if it names
/// something that is no field name.
fn connection_names_end_to_end_header(headers: &HeaderMap) -> bool {
    let named = members(headers, &header::CONNECTION).filter(|name| !name.is_empty());
    let is_never = |name: &[u8]| {
        END_TO_END
            .iter()
            .any(|field| name.eq_ignore_ascii_case(field))
    };
    named.enumerate().any(|(index, name)| {
        index >= MAX_CONNECTION_OPTIONS || is_never(name) || !name.iter().copied().all(is_tchar)
    })
}

const END_TO_END: [&[u8]; 11] = [
    b"content-length",
    b"transfer-encoding",
    b"host",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"access-control-request-headers",
    b"access-control-request-method",
    b"destination",
    b"origin",
    b"sec-fetch-site",
];
/// More than any client names.
const MAX_CONNECTION_OPTIONS: usize = 9;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use bytes::BytesMut;

    use super::*;
    use crate::request::{MAX_HEAD_BYTES, received};

    fn checked(raw: &str) -> Result<(), Rejection> {
        let head = received::take(&mut BytesMut::from(raw.as_bytes()))?;
        check(&head.unwrap())
    }

    fn with(fields: &str) -> String {
        format!("POST /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
    }

    #[test]
    fn ambiguous_framing_is_rejected() {
        assert_eq!(checked(&with("Content-Length: 3\r\n")), Ok(()));
        let both = with("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n");
        assert_eq!(checked(&both), Err(Rejection::RequestFraming));
    }

    #[test]
    fn http_1_1_and_absolute_targets_need_a_host() {
        let missing = Err(Rejection::HostMissing);
        for (version, target, expected) in [
            (Version::HTTP_11, "/", missing),
            (Version::HTTP_10, "/", Ok(())),
            (Version::HTTP_10, "http://a/", missing),
        ] {
            let raw = format!("GET {target} {version:?}\r\n\r\n");
            assert_eq!(checked(&raw), expected, "{raw:?}");
        }
    }

    fn with_connection(names: &str) -> Result<(), Rejection> {
        checked(&with(&format!("Connection: {names}\r\n")))
    }

    #[test]
    fn connection_names_no_field_that_frames_routes_or_decides() {
        for names in [
            "close",
            "keep-alive, Upgrade",
            "x-hop",
            "Authorization, Cookie",
            "x-content-length",
            "a,b,,c,d,e,f,g,h,i",
            "",
        ] {
            assert_eq!(with_connection(names), Ok(()), "{names}");
        }
        for names in [
            "content-length",
            "keep-alive, Content-Length",
            "Transfer-Encoding,close",
            "host",
            "close, X-Forwarded-For",
            "x-forwarded-host",
            "X-FORWARDED-PROTO",
            "Origin, Access-Control-Request-Method",
            "destination",
            "Sec-Fetch-Site",
            "\"x-hop\"",
            ":authority",
            "x hop",
            "a,b,c,d,e,f,g,h,i,j",
        ] {
            let checked = with_connection(names);
            assert_eq!(checked, Err(Rejection::RequestFraming), "{names}");
        }
    }

    #[test]
    fn a_header_block_has_a_limit() {
        for (value, expected) in [
            (MAX_HEAD_BYTES / 2, Ok(())),
            (MAX_HEAD_BYTES, Err(Rejection::RequestHeaderTooLarge)),
        ] {
            let field = format!("X: {}\r\n", "a".repeat(value));
            assert_eq!(checked(&with(&field)), expected);
        }
    }
}
