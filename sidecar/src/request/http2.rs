//! Rejects an HTTP/2 head that would become another message on its way to an HTTP/1.1 service
//! (RFC 9113 §8.2.2, §8.3.1, §10.3), with the reason codes of HTTP/1.1.
//!
//! The `h2` crate resets most such streams; these checks do not rely on it.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use wire::http::framing;
use wire::http::host;
use wire::rejection::Rejection;

use crate::request::{MAX_HEAD_BYTES, MAX_HEAD_LINES};

/// Twice [`MAX_HEAD_BYTES`]: past that a client gets an envelope, past this the bare 431 of `h2`,
/// which is not counted.
pub(crate) const LIBRARY_MAX_HEAD_BYTES: u32 = 2 * MAX_HEAD_BYTES as u32;

const CONNECTION_SPECIFIC: [HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Checks a request head. `authority` is its `:authority`, `target` its `:path`.
pub(crate) fn check(
    authority: Option<&[u8]>,
    target: &[u8],
    headers: &HeaderMap,
) -> Result<(), Rejection> {
    if bytes(headers) + target.len() > MAX_HEAD_BYTES || headers.len() > MAX_HEAD_LINES {
        return Err(Rejection::RequestHeaderTooLarge);
    }
    // Before the other fields: `wire::http::framing` accepts `Transfer-Encoding: chunked`.
    if headers
        .keys()
        .any(|name| CONNECTION_SPECIFIC.contains(name))
    {
        return Err(Rejection::RequestFraming);
    }
    check_values(headers)?;
    let fields = headers.iter();
    framing::check_fields(fields.map(|(name, value)| (name.as_str(), value.as_bytes())))?;
    check_host(authority, headers)
}

/// Rejects a value with a blank at an end, which HTTP/1.1 drops and for which a service may end the
/// connection (RFC 9113 §8.2.1).
pub(crate) fn check_values(fields: &HeaderMap) -> Result<(), Rejection> {
    let is_blank = |byte: Option<&u8>| byte.is_some_and(|byte| b" \t".contains(byte));
    let mut values = fields.values().map(HeaderValue::as_bytes);
    match values.any(|value| is_blank(value.first()) || is_blank(value.last())) {
        true => Err(Rejection::RequestMalformed),
        false => Ok(()),
    }
}

/// Checks that the request names one host, in its authority, in a field or alike in both.
fn check_host(authority: Option<&[u8]>, headers: &HeaderMap) -> Result<(), Rejection> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, another) = (hosts.next().map(|host| host.as_bytes()), hosts.next());
    let differs = authority.zip(host).is_some_and(|(name, host)| name != host);
    if differs || another.is_some() {
        return Err(Rejection::RequestMalformed);
    }
    host::check(authority.or(host))
}

/// Returns the size of the fields as HTTP/1.1 would send them.
fn bytes(headers: &HeaderMap) -> usize {
    const COLON_BLANK_CR_LF: usize = 4;
    headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + COLON_BLANK_CR_LF)
        .sum()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn checked(fields: &[(&str, &str)]) -> Result<(), Rejection> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        check(Some(b"a"), b"/", &headers)
    }

    #[test]
    fn a_plain_head_is_fine() {
        for fields in [
            &[][..],
            &[("content-length", "3")],
            &[("te", "trailers"), ("host", "a")],
            &[("x-content-length", "3, 3")],
        ] {
            assert_eq!(checked(fields), Ok(()), "{fields:?}");
        }
    }

    #[test]
    fn connection_fields_and_ambiguous_framing_are_rejected() {
        for fields in [
            &[("connection", "close")][..],
            &[("transfer-encoding", "chunked")],
            &[("upgrade", "websocket")],
            &[("keep-alive", "1")],
            &[("proxy-connection", "close")],
            &[("content_length", "3")],
            &[("transfer_encoding", "chunked")],
            &[("content-length", "3"), ("content-length", "3")],
            &[("content-length", "3, 3")],
            &[("content-length", "+3")],
            &[("content-length", "")],
        ] {
            assert_eq!(
                checked(fields),
                Err(Rejection::RequestFraming),
                "{fields:?}"
            );
        }
    }

    #[test]
    fn a_value_begins_and_ends_without_a_blank() {
        for (value, expected) in [
            ("a b", Ok(())),
            ("", Ok(())),
            (" a", Err(Rejection::RequestMalformed)),
            ("a\t", Err(Rejection::RequestMalformed)),
            (" ", Err(Rejection::RequestMalformed)),
        ] {
            assert_eq!(checked(&[("x", value)]), expected, "{value:?}");
        }
    }

    #[test]
    fn the_authority_or_the_host_field_names_the_host() {
        let mut headers = HeaderMap::new();
        for (authority, expected) in [
            (Some(&b"a/b"[..]), Err(Rejection::RequestMalformed)),
            (Some(b"a:1"), Ok(())),
        ] {
            assert_eq!(check(authority, b"/", &headers), expected);
        }
        assert_eq!(check(None, b"/", &headers), Err(Rejection::HostMissing));
        for (host, expected) in [("a b", Err(Rejection::RequestMalformed)), ("a:1", Ok(()))] {
            headers.insert(header::HOST, HeaderValue::from_static(host));
            assert_eq!(check(None, b"/", &headers), expected);
        }
        assert_eq!(check(Some(b"a:1"), b"/", &headers), Ok(()));
        let different = check(Some(b"A:1"), b"/", &headers);
        assert_eq!(different, Err(Rejection::RequestMalformed));
        headers.append(header::HOST, HeaderValue::from_static("a:1"));
        let two = check(None, b"/", &headers);
        assert_eq!(two, Err(Rejection::RequestMalformed));
    }

    #[test]
    fn the_limits_are_the_same_as_for_http_1() {
        let long = "a".repeat(MAX_HEAD_BYTES);
        let many = [("x", "1"); MAX_HEAD_LINES + 1];
        for fields in [&[("x", &*long)][..], &many] {
            assert_eq!(checked(fields), Err(Rejection::RequestHeaderTooLarge));
        }
        let target = [b'/'; MAX_HEAD_BYTES + 1];
        let checked = check(Some(b"a"), &target, &HeaderMap::new());
        assert_eq!(checked, Err(Rejection::RequestHeaderTooLarge));
    }
}
