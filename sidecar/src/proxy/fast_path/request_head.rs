//! The head of a request: parser, and selection of the heads for Pingora.

use std::mem::MaybeUninit;

use bytes::{BufMut, Bytes, BytesMut};
use contract::http::framing::{Body, check_fields};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};
use pingora::http::{IntoCaseHeaderName, RequestHeader};

use crate::downstream::head_limits::MAX_HEAD_LINES;
use crate::telemetry::metrics::Departure;

/// Room for the fields that are added on the way to the service.
const ADDED_FIELDS: usize = 4;

/// A head and its received bytes.
pub(super) struct RequestBlock {
    pub(super) head: Box<RequestHeader>,
    pub(super) raw: Bytes,
    pub(super) body: Body,
    pub(super) keep_alive: bool,
}

/// Takes a head from the front of `received`; returns `None` while it is incomplete.
///
/// # Errors
/// The reason why Pingora has to read it; `received` is unchanged.
pub(super) fn take(received: &mut BytesMut) -> Result<Option<RequestBlock>, Departure> {
    let Some((head, length)) = parse(received).ok_or(Departure::Malformed)? else {
        return Ok(None);
    };
    let keep_alive = check(&head)?;
    let body = body(&head)?;
    Ok(Some(RequestBlock {
        head,
        raw: received.split_to(length).freeze(),
        body,
        keep_alive,
    }))
}

/// Parses a head that was taken before.
pub(super) fn read_again(raw: &[u8]) -> Option<Box<RequestHeader>> {
    parse(raw)?.map(|(head, _)| head)
}

/// Parses a head and its length; returns `Some(None)` for an incomplete one.
fn parse(received: &[u8]) -> Option<Option<(Box<RequestHeader>, usize)>> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_HEAD_LINES];
    let mut parsed = httparse::Request::new(&mut []);
    let status = parsed
        .parse_with_uninit_headers(received, &mut fields)
        .ok()?;
    let httparse::Status::Complete(length) = status else {
        return Some(None);
    };
    // All names and values share one copy.
    let shared = Bytes::copy_from_slice(received.get(..length)?);
    let share = |part: &[u8]| {
        let start = part.as_ptr().addr() - received.as_ptr().addr();
        shared.slice(start..start + part.len())
    };
    let method = parsed.method.unwrap_or_default();
    let target = parsed.path.unwrap_or_default().as_bytes();
    let room = parsed.headers.len() + ADDED_FIELDS;
    let mut head = RequestHeader::build(method, target, Some(room)).ok()?;
    head.set_version(match parsed.version {
        Some(1) => Version::HTTP_11,
        _ => Version::HTTP_10,
    });
    for field in parsed.headers.iter() {
        let name = share(field.name.as_bytes()).into_case_header_name();
        let value = HeaderValue::from_maybe_shared(share(field.value)).ok()?;
        head.append_header(name, value).ok()?;
    }
    Some(Some((Box::new(head), length)))
}

/// Returns true if the client's connection stays open after the response.
fn check(head: &RequestHeader) -> Result<bool, Departure> {
    if matches!(head.method, Method::CONNECT | Method::TRACE) {
        return Err(Departure::Method);
    }
    // An authority is accepted in a single `Host` field only.
    let hosts = head.headers.get_all(header::HOST).iter().count();
    if head.raw_path().first() != Some(&b'/') || hosts > 1 {
        return Err(Departure::Authority);
    }
    if HOP_BY_HOP
        .iter()
        .any(|name| head.headers.contains_key(name))
    {
        return Err(Departure::HopByHop);
    }
    keep_alive(&head.headers, head.version).ok_or(Departure::HopByHop)
}

/// Returns the framing of the body, which at most one plain field announces.
fn body(head: &RequestHeader) -> Result<Body, Departure> {
    let fields = head.headers.iter();
    let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
    match check_fields(fields) {
        // HTTP/1.0 has no transfer codings.
        Ok(Some(Body::Chunked)) if head.version != Version::HTTP_11 => Err(Departure::Framing),
        Ok(framed) => Ok(framed.unwrap_or(Body::Length(0))),
        Err(_) => Err(Departure::Framing),
    }
}

/// Hop-by-hop fields with a special meaning to Pingora.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Parses `Connection`; returns `None` for more than one word.
fn keep_alive(headers: &HeaderMap, version: Version) -> Option<bool> {
    let mut values = headers.get_all(header::CONNECTION).into_iter();
    let Some(value) = values.next() else {
        return Some(version == Version::HTTP_11);
    };
    if values.next().is_some() {
        None
    } else if value.as_bytes().eq_ignore_ascii_case(b"keep-alive") {
        Some(true)
    } else if value.as_bytes().eq_ignore_ascii_case(b"close") {
        Some(false)
    } else {
        None
    }
}

/// Writes the head for the service.
pub(super) fn write(head: &RequestHeader, out: &mut BytesMut) {
    out.put_slice(head.method.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(head.raw_path());
    out.put_slice(b" HTTP/1.1\r\n");
    head.header_to_h1_wire(out);
    out.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn taken(head: &str) -> Result<Option<bool>, Departure> {
        let mut received = BytesMut::from(head.as_bytes());
        let block = take(&mut received)?;
        Ok(block.map(|block| block.keep_alive))
    }

    fn with(fields: &str) -> String {
        format!("GET /a?b HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
    }

    #[test]
    fn a_plain_head_is_taken_and_what_follows_it_left() {
        let text = with("X-A: 1\r\nx-a: 2\r\n");
        let mut received = BytesMut::from(format!("{text}body").as_bytes());
        let block = take(&mut received).unwrap().unwrap();
        assert_eq!(block.raw, text.as_bytes());
        assert_eq!(received, "body");
        assert_eq!(block.head.raw_path(), b"/a?b");
        let mut written = BytesMut::new();
        write(&block.head, &mut written);
        assert_eq!(written, text.as_bytes());
    }

    #[test]
    fn a_body_has_a_length_or_comes_in_chunks() {
        for (fields, body) in [
            ("", Body::Length(0)),
            ("Content-Length: 12\r\n", Body::Length(12)),
            ("Transfer-Encoding: Chunked\r\n", Body::Chunked),
        ] {
            let mut received = BytesMut::from(with(fields).as_bytes());
            let block = take(&mut received).unwrap().unwrap();
            assert_eq!(block.body, body, "{fields}");
        }
    }

    #[test]
    fn connections_stay_open_as_the_client_says() {
        for (head, keep_alive) in [
            (with(""), true),
            (with("Connection: Keep-Alive\r\n"), true),
            (with("Connection: close\r\n"), false),
            ("GET / HTTP/1.0\r\n\r\n".to_owned(), false),
            (
                "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned(),
                true,
            ),
        ] {
            assert_eq!(taken(&head), Ok(Some(keep_alive)), "{head}");
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_pingora_as_it_came() {
        for (head, departure) in [
            (with("Connection: close, X-A\r\n"), Departure::HopByHop),
            (
                with("Connection: close\r\nConnection: close\r\n"),
                Departure::HopByHop,
            ),
            (with("Upgrade: websocket\r\n"), Departure::HopByHop),
            (with("TE: trailers\r\n"), Departure::HopByHop),
            (with("Host: b\r\n"), Departure::Authority),
            (
                with("Content-Length: 1\r\nContent-Length: 2\r\n"),
                Departure::Framing,
            ),
            (
                with("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
                Departure::Framing,
            ),
            (with("Content-Length: +1\r\n"), Departure::Framing),
            (with("Content-Length: \r\n"), Departure::Framing),
            (with("Transfer-Encoding: gzip\r\n"), Departure::Framing),
            (
                "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
                Departure::Framing,
            ),
            (
                "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
                Departure::Authority,
            ),
            (
                "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
                Departure::Authority,
            ),
            (
                "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
                Departure::Method,
            ),
            (
                "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
                Departure::Method,
            ),
            (with("A B: 1\r\n"), Departure::Malformed),
            ("GET / HTTP/1.2\r\n\r\n".to_owned(), Departure::Malformed),
        ] {
            let mut received = BytesMut::from(head.as_bytes());
            assert_eq!(take(&mut received).err(), Some(departure), "{head}");
            assert_eq!(received, head.as_bytes());
        }
        assert_eq!(taken("GET / HTTP/1.1\r\nHost"), Ok(None));
    }
}
