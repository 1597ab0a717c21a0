//! The head of a request: parser, and selection of the heads for Pingora.

use std::mem::MaybeUninit;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use wire::http::framing::{Body, check_fields};

use crate::downstream::head_limits::MAX_HEAD_LINES;
use crate::request::head::{RawHead, RequestHead};
use crate::telemetry::metrics::Departure;

/// A received head: its bytes, and what they mean.
pub(super) struct ReceivedHead {
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
    /// True if the client's connection stays open after the response.
    pub(super) keep_alive: bool,
    pub(super) raw: Bytes,
    target: PathAndQuery,
    fields: Vec<Field>,
}

/// The places of a name and a value in the received bytes.
struct Field {
    name: Range<usize>,
    value: Range<usize>,
}

/// A head that is not taken yet.
struct Layout {
    method: Method,
    version: Version,
    body: Body,
    keep_alive: bool,
    target: Range<usize>,
    fields: Vec<Field>,
    length: usize,
}

/// Takes a head from the front of `received`; returns `None` while it is incomplete.
///
/// # Errors
/// The reason why Pingora has to read it; `received` is unchanged.
pub(super) fn take(received: &mut BytesMut) -> Result<Option<ReceivedHead>, Departure> {
    let Some(layout) = layout_of(received)? else {
        return Ok(None);
    };
    let raw = received.split_to(layout.length).freeze();
    let read = target_of(&raw, layout.target).zip(headers_of(&raw, &layout.fields));
    let Some((target, headers)) = read else {
        let rest = std::mem::replace(received, raw.into());
        received.unsplit(rest);
        return Err(Departure::Malformed);
    };
    Ok(Some(ReceivedHead {
        method: layout.method,
        version: layout.version,
        headers,
        body: layout.body,
        keep_alive: layout.keep_alive,
        raw,
        target,
        fields: layout.fields,
    }))
}

/// Finds the parts of a head, and checks that they are plain; returns `None` while it is
/// incomplete.
fn layout_of(received: &[u8]) -> Result<Option<Layout>, Departure> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_HEAD_LINES];
    let mut parsed = httparse::Request::new(&mut []);
    let status = parsed.parse_with_uninit_headers(received, &mut fields);
    let httparse::Status::Complete(length) = status.map_err(|_| Departure::Malformed)? else {
        return Ok(None);
    };
    let method = parsed.method.unwrap_or_default().parse();
    let head = ParsedHead {
        method: method.map_err(|_| Departure::Malformed)?,
        version: match parsed.version {
            Some(1) => Version::HTTP_11,
            _ => Version::HTTP_10,
        },
        target: parsed.path.unwrap_or_default(),
        fields: parsed.headers,
    };
    let keep_alive = head.check()?;
    let body = head.body()?;
    let range = |part: &[u8]| {
        let start = part.as_ptr().addr() - received.as_ptr().addr();
        start..start + part.len()
    };
    let field = |field: &httparse::Header<'_>| Field {
        name: range(field.name.as_bytes()),
        value: range(field.value),
    };
    Ok(Some(Layout {
        body,
        keep_alive,
        target: range(head.target.as_bytes()),
        fields: head.fields.iter().map(field).collect(),
        method: head.method,
        version: head.version,
        length,
    }))
}

fn target_of(raw: &Bytes, target: Range<usize>) -> Option<PathAndQuery> {
    let target = Uri::from_maybe_shared(raw.slice(target)).ok()?;
    target.into_parts().path_and_query
}

/// Returns the fields as a map, whose values share the received bytes.
fn headers_of(raw: &Bytes, fields: &[Field]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for Field { name, value } in fields {
        let name = HeaderName::from_bytes(raw.get(name.clone())?).ok()?;
        let value = HeaderValue::from_maybe_shared(raw.slice(value.clone())).ok()?;
        headers.try_append(name, value).ok()?;
    }
    Some(headers)
}

impl ReceivedHead {
    /// Returns the target as it was received.
    pub(super) fn target(&self) -> &[u8] {
        self.target.as_str().as_bytes()
    }

    /// Returns names and values, in order and in the client's spelling.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().filter_map(|field| {
            let name = str::from_utf8(self.raw.get(field.name.clone())?).ok()?;
            Some((name, self.raw.get(field.value.clone())?))
        })
    }

    /// Returns the head for the decision about the request.
    pub(super) fn for_decision(&self) -> RequestHead<'_> {
        RequestHead {
            method: &self.method,
            version: self.version,
            headers: &self.headers,
            wire: RawHead::Http1(&self.raw),
            target_to_send: self.target(),
        }
    }
}

/// A parsed head among the received bytes.
struct ParsedHead<'r> {
    method: Method,
    version: Version,
    target: &'r str,
    fields: &'r [httparse::Header<'r>],
}

impl<'r> ParsedHead<'r> {
    /// Returns true if the client's connection stays open after the response.
    fn check(&self) -> Result<bool, Departure> {
        if matches!(self.method, Method::CONNECT | Method::TRACE) {
            return Err(Departure::Method);
        }
        // An authority is accepted in a single `Host` field only.
        if !self.target.starts_with('/') || self.values("host").nth(1).is_some() {
            return Err(Departure::Authority);
        }
        let is_hop_by_hop =
            |name: &str| HOP_BY_HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop));
        if self.fields().any(|(name, _)| is_hop_by_hop(name)) {
            return Err(Departure::HopByHop);
        }
        self.keep_alive().ok_or(Departure::HopByHop)
    }

    /// Returns the framing of the body, which at most one plain field announces.
    fn body(&self) -> Result<Body, Departure> {
        match check_fields(self.fields()) {
            // HTTP/1.0 has no transfer codings.
            Ok(Some(Body::Chunked)) if self.version != Version::HTTP_11 => Err(Departure::Framing),
            Ok(framed) => Ok(framed.unwrap_or(Body::Length(0))),
            Err(_) => Err(Departure::Framing),
        }
    }

    /// Parses `Connection`; returns `None` for more than one word.
    fn keep_alive(&self) -> Option<bool> {
        let mut values = self.values("connection");
        let Some(value) = values.next() else {
            return Some(self.version == Version::HTTP_11);
        };
        if values.next().is_some() {
            None
        } else if value.eq_ignore_ascii_case(b"keep-alive") {
            Some(true)
        } else if value.eq_ignore_ascii_case(b"close") {
            Some(false)
        } else {
            None
        }
    }

    fn fields(&self) -> impl Iterator<Item = (&'r str, &'r [u8])> {
        self.fields.iter().map(|field| (field.name, field.value))
    }

    fn values(&self, name: &'static str) -> impl Iterator<Item = &'r [u8]> {
        let named = move |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case(name);
        self.fields.iter().filter(named).map(|field| field.value)
    }
}

/// Hop-by-hop fields with a special meaning to Pingora.
const HOP_BY_HOP: [&str; 8] = [
    "upgrade",
    "te",
    "trailer",
    "proxy-authenticate",
    "proxy-authorization",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
];

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
        assert_eq!(block.target(), b"/a?b");
        let fields: Vec<_> = block.fields().collect();
        let expected = [("Host", "a"), ("X-A", "1"), ("x-a", "2")];
        assert_eq!(
            fields,
            expected.map(|(name, value)| (name, value.as_bytes()))
        );
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
