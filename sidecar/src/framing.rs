//! Refuses what two HTTP parsers could read differently: the seed of every request smuggling.
//!
//! It reads the header block as it arrived. Pingora has already refused what it cannot parse, but
//! tidies up the rest (drops `Content-Length` beside `Transfer-Encoding`, folds `3, 3` into `3`,
//! takes a bare LF for a line end), and the service behind must not guess what was there.

use contract::rejection::Rejection;
use http::{HeaderMap, Method, Version, header};
use memchr::{memchr, memchr_iter};

use crate::host;
use crate::request_head::MAX_HEAD_BYTES;
use crate::user_header::cgi_equal;

/// Checks one request head. `raw` is the header block with its final empty line.
pub(crate) fn check(
    method: &Method,
    version: Version,
    headers: &HeaderMap,
    raw: &[u8],
) -> Result<(), Rejection> {
    if raw.len() > MAX_HEAD_BYTES {
        return Err(Rejection::RequestHeaderTooLarge);
    }
    if has_bare_line_feed(raw) || nominates_framing(headers) {
        return Err(Rejection::RequestFraming);
    }
    check_body_framing(version, raw)?;
    host::check(headers.get(header::HOST).map(|host| host.as_bytes()))?;
    // Last, because the connection lives on: TRACE would echo the token, CONNECT asks for another
    // kind of proxy and its target is no path.
    if matches!(*method, Method::TRACE | Method::CONNECT) {
        return Err(Rejection::MethodNotAllowed);
    }
    Ok(())
}

/// Whether `Connection` asks for a field to be removed on the way that says where the message ends
/// or whom it is for: the service would read another one than was judged.
fn nominates_framing(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::CONNECTION)
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .any(|name| {
            let names = |field: &header::HeaderName| {
                name.trim_ascii()
                    .eq_ignore_ascii_case(field.as_str().as_bytes())
            };
            NEVER_NOMINATED.iter().any(names)
        })
}

const NEVER_NOMINATED: [header::HeaderName; 3] = [
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::HOST,
];

/// Whether a body follows the head. Call it on a head that passed [`check`].
pub(crate) fn announces_body(headers: &HeaderMap) -> bool {
    headers.contains_key(header::TRANSFER_ENCODING)
        || headers
            .get(header::CONTENT_LENGTH)
            .is_some_and(|length| length.as_bytes().iter().any(|&digit| digit != b'0'))
}

fn has_bare_line_feed(raw: &[u8]) -> bool {
    memchr_iter(b'\n', raw).any(|at| !matches!(raw.get(..at), Some([.., b'\r'])))
}

/// At most one field says how long the body is, in the only spelling everybody agrees on.
fn check_body_framing(version: Version, raw: &[u8]) -> Result<(), Rejection> {
    let mut already_framed = false;
    for (name, value) in fields(raw) {
        let Some(framing) = Framing::named(name) else {
            continue;
        };
        if already_framed || !framing.is_plain(name, value, version) {
            return Err(Rejection::RequestFraming);
        }
        already_framed = true;
    }
    Ok(())
}

/// Name and trimmed value of each header line, after the request line.
fn fields(raw: &[u8]) -> impl Iterator<Item = (&str, &[u8])> {
    lines(raw.trim_ascii_start()).skip(1).filter_map(|line| {
        let (name, value) = line.split_at(memchr(b':', line)?);
        Some((
            std::str::from_utf8(name).ok()?,
            value.get(1..)?.trim_ascii(),
        ))
    })
}

/// What stands between the line feeds.
fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(block);
    std::iter::from_fn(move || {
        let block = rest?;
        let (line, tail) = match memchr(b'\n', block) {
            Some(end) => (block.get(..end)?, block.get(end + 1..)),
            None => (block, None),
        };
        rest = tail;
        Some(line)
    })
}

#[derive(Clone, Copy)]
enum Framing {
    ContentLength,
    TransferEncoding,
}

impl Framing {
    /// Finds look-alikes too: `Content_Length` is `CONTENT_LENGTH` for whoever speaks CGI.
    fn named(name: &str) -> Option<Self> {
        [Self::ContentLength, Self::TransferEncoding]
            .into_iter()
            .find(|framing| cgi_equal(name, framing.name()))
    }

    fn name(self) -> &'static str {
        match self {
            Self::ContentLength => "content-length",
            Self::TransferEncoding => "transfer-encoding",
        }
    }

    fn is_plain(self, name: &str, value: &[u8], version: Version) -> bool {
        name.eq_ignore_ascii_case(self.name())
            && match self {
                Self::ContentLength => !value.is_empty() && value.iter().all(u8::is_ascii_digit),
                // Pingora would forward `gzip, chunked` as `chunked`; HTTP/1.0 knows neither.
                Self::TransferEncoding => {
                    value.eq_ignore_ascii_case(b"chunked") && version == Version::HTTP_11
                }
            }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn judged(raw: &str) -> Result<(), Rejection> {
        let mut headers = HeaderMap::new();
        if raw.contains("Host:") {
            headers.insert(header::HOST, HeaderValue::from_static("a"));
        }
        let version = if raw.contains("HTTP/1.0") {
            Version::HTTP_10
        } else {
            Version::HTTP_11
        };
        check(&Method::POST, version, &headers, raw.as_bytes())
    }

    fn with(fields: &str) -> String {
        format!("POST /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
    }

    #[test]
    fn one_plain_framing_field_is_fine_and_so_is_none() {
        for fields in [
            "",
            "Content-Length: 0\r\n",
            "content-length:3 \r\n",
            "Transfer-Encoding: chunked\r\n",
            "TRANSFER-ENCODING: Chunked\r\n",
            "Content-Type: a:b\r\nX-Content-Length: 3, 3\r\n",
        ] {
            assert_eq!(judged(&with(fields)), Ok(()), "{fields:?}");
        }
        assert_eq!(judged("\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n"), Ok(()));
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        for fields in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
            "Content-Length: 3\r\nContent-Length: 3\r\n",
            "Content-Length: 3, 3\r\n",
            "Content-Length: +3\r\n",
            "Content-Length: 0x3\r\n",
            "Content-Length:\r\n",
            "Content_Length: 3\r\n",
            "content.length: 3\r\n",
            "Transfer_Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: \x0bchunked\r\n",
            "X: a\nY: b\r\n",
            "X: a\n",
        ] {
            assert_eq!(
                judged(&with(fields)),
                Err(Rejection::RequestFraming),
                "{fields:?}"
            );
        }
        let one_dot_zero = "POST /a HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(judged(one_dot_zero), Err(Rejection::RequestFraming));
        assert_eq!(
            judged("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
            Err(Rejection::RequestFraming)
        );
    }

    #[test]
    fn a_length_of_zero_announces_no_body() {
        for (field, announced) in [
            (None, false),
            (Some((header::CONTENT_LENGTH, "0")), false),
            (Some((header::CONTENT_LENGTH, "00")), false),
            (Some((header::CONTENT_LENGTH, "10")), true),
            (Some((header::TRANSFER_ENCODING, "chunked")), true),
        ] {
            let headers = field
                .map(|(name, value)| (name, HeaderValue::from_static(value)))
                .into_iter()
                .collect();
            assert_eq!(announces_body(&headers), announced, "{headers:?}");
        }
    }

    #[test]
    fn a_request_names_its_host() {
        for raw in ["GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"] {
            assert_eq!(judged(raw), Err(Rejection::HostMissing), "{raw:?}");
        }
    }

    fn nominating(names: &'static str) -> Result<(), Rejection> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("a"));
        headers.insert(header::CONNECTION, HeaderValue::from_static(names));
        check(
            &Method::GET,
            Version::HTTP_11,
            &headers,
            b"GET / HTTP/1.1\r\n\r\n",
        )
    }

    #[test]
    fn what_frames_a_message_belongs_to_no_connection() {
        for names in [
            "close",
            "keep-alive, Upgrade",
            "x-hop",
            "x-content-length",
            "",
        ] {
            assert_eq!(nominating(names), Ok(()), "{names}");
        }
        for names in [
            "content-length",
            "keep-alive, Content-Length",
            "Transfer-Encoding,close",
            "host",
        ] {
            let judged = nominating(names);
            assert_eq!(judged, Err(Rejection::RequestFraming), "{names}");
        }
    }

    #[test]
    fn a_header_block_has_a_limit() {
        for (value, judged_as) in [
            (MAX_HEAD_BYTES / 2, Ok(())),
            (MAX_HEAD_BYTES, Err(Rejection::RequestHeaderTooLarge)),
        ] {
            let field = format!("X: {}\r\n", "a".repeat(value));
            assert_eq!(judged(&with(&field)), judged_as);
        }
    }

    #[test]
    fn trace_and_connect_are_never_allowed() {
        let headers = [(header::HOST, HeaderValue::from_static("a"))]
            .into_iter()
            .collect();
        for method in [Method::TRACE, Method::CONNECT] {
            let checked = |raw: &[u8]| check(&method, Version::HTTP_11, &headers, raw);
            assert_eq!(checked(b"\r\n"), Err(Rejection::MethodNotAllowed));
            assert_eq!(
                checked(b"T / HTTP/1.1\r\nContent_Length: 3\r\n\r\n"),
                Err(Rejection::RequestFraming)
            );
        }
    }
}
