//! The head of a request: of HTTP/1.x parsed from the received bytes, of HTTP/2 as `h2` decoded it.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::framing::body::BodyReader;
use crate::framing::{self, Body};
use crate::invalid::InvalidRequest;
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};

use crate::only_field::only_field;
use crate::request::header_list::members;
use crate::request::kind::RequestKind;
use crate::request::{MAX_HEAD_BYTES, MAX_HEAD_LINES};

/// A received head: its bytes, and what they mean.
pub struct ReceivedHead {
    /// The method, in its letter case.
    pub method: Method,
    /// HTTP/1.0, HTTP/1.1 or HTTP/2.
    pub version: Version,
    /// The fields by their names in small letters.
    pub headers: HeaderMap,
    /// The kind, which selects the timeouts.
    pub kind: RequestKind,
    /// The rejection of an ambiguous framing, after which the connection ends.
    pub(super) framing: Result<(), InvalidRequest>,
    /// The rest of the connection if the framing is ambiguous.
    pub body: BodyReader,
    /// True if the client's connection stays open after the response.
    pub keep_alive: bool,
    /// The bytes of HTTP/1.x.
    pub raw: Bytes,
    target: Range<usize>,
    fields: Vec<Field>,
    /// Authority and target of HTTP/2.
    uri: Option<Uri>,
}

/// The places of a name and a value in the received bytes.
struct Field {
    name: Range<usize>,
    value: Range<usize>,
}

/// Takes a head from the front of `received`; returns `None` while it is incomplete.
///
/// # Errors
/// [`InvalidRequest::Malformed`] for what is no head, [`InvalidRequest::HeaderTooLarge`] for too
/// many fields. What follows on the connection cannot be read.
pub fn take(received: &mut BytesMut) -> Result<Option<ReceivedHead>, InvalidRequest> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_HEAD_LINES];
    let mut parsed = httparse::Request::new(&mut []);
    let length = match parsed.parse_with_uninit_headers(received, &mut fields) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(InvalidRequest::HeaderTooLarge),
        Err(_) => return Err(InvalidRequest::Malformed),
    };
    // A complete head may be longer than the limit: one read brings many bytes at once.
    if length > MAX_HEAD_BYTES {
        return Err(InvalidRequest::HeaderTooLarge);
    }
    // Offsets: the head is split off below, and the slices of the parser borrow from it.
    let range = |part: &[u8]| {
        let start = part.as_ptr().addr() - received.as_ptr().addr();
        start..start + part.len()
    };
    let Ok(method) = parsed.method.unwrap_or_default().parse() else {
        return Err(InvalidRequest::Malformed);
    };
    let version = match parsed.version {
        Some(1) => Version::HTTP_11,
        _ => Version::HTTP_10,
    };
    let target = range(parsed.path.unwrap_or_default().as_bytes());
    let mut fields = Vec::with_capacity(parsed.headers.len());
    for field in parsed.headers.iter() {
        fields.push(Field {
            name: range(field.name.as_bytes()),
            value: range(field.value),
        });
    }
    let raw = received.split_to(length).freeze();
    let headers = headers_of(&raw, &fields).ok_or(InvalidRequest::Malformed)?;
    // On the bytes as received: httparse accepts a bare LF, and trims values.
    let framing = framing::check(&raw);
    let body = framing.map_or(BodyReader::UNTIL_CLOSE, BodyReader::new);
    Ok(Some(ReceivedHead {
        kind: RequestKind::from_head(&method, version, &headers, !body.is_done()),
        keep_alive: framing.is_ok() && stays_open(version, &headers),
        framing: framing.map(drop),
        body,
        method,
        version,
        headers,
        raw,
        target,
        fields,
        uri: None,
    }))
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

/// Returns true if the connection stays open (RFC 9112 §9.3). A head with two hosts is another
/// request to others, as is what follows it.
fn stays_open(version: Version, headers: &HeaderMap) -> bool {
    let has = |option: &[u8]| {
        members(headers, &header::CONNECTION).any(|one| one.eq_ignore_ascii_case(option))
    };
    only_field(headers, &header::HOST).is_ok()
        && !has(b"close")
        && (version == Version::HTTP_11 || has(b"keep-alive"))
}

impl ReceivedHead {
    /// Takes over the head of a stream of HTTP/2.
    pub fn from_stream(parts: Parts, has_body: bool) -> Self {
        let Parts {
            method,
            uri,
            headers,
            ..
        } = parts;
        let fields = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        let framing = framing::check_fields(fields);
        let body = match (has_body, framing) {
            (false, _) => BodyReader::NONE,
            // `h2` holds a client to the length that it gave.
            (true, Ok(Some(body))) => BodyReader::new(body),
            (true, _) => BodyReader::new(Body::Chunked),
        };
        Self {
            kind: RequestKind::from_head(&method, Version::HTTP_2, &headers, has_body),
            method,
            version: Version::HTTP_2,
            headers,
            framing: framing.map(drop),
            body,
            keep_alive: true,
            raw: Bytes::new(),
            target: 0..0,
            fields: Vec::new(),
            uri: Some(uri),
        }
    }

    /// Returns the target as it was received.
    pub fn target(&self) -> &[u8] {
        match &self.uri {
            None => self.raw.get(self.target.clone()).unwrap_or_default(),
            Some(uri) => match uri.path_and_query() {
                Some(target) => target.as_str().as_bytes(),
                None => &[],
            },
        }
    }

    /// Returns the `:authority` of HTTP/2.
    pub fn authority(&self) -> Option<&[u8]> {
        Some(self.uri.as_ref()?.authority()?.as_str().as_bytes())
    }

    /// Returns names and values, in order and in the client's spelling.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let written = self.fields.iter().filter_map(|field| {
            let name = str::from_utf8(self.raw.get(field.name.clone())?).ok()?;
            Some((name, self.raw.get(field.value.clone())?))
        });
        let decoded = self
            .uri
            .iter()
            .flat_map(|_| &self.headers)
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        written.chain(decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(head: &str) -> Result<Option<bool>, InvalidRequest> {
        let head = take(&mut BytesMut::from(head.as_bytes()))?;
        Ok(head.map(|head| head.keep_alive))
    }

    fn with(fields: &str) -> String {
        format!("GET /a?b HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
    }

    #[test]
    fn connections_stay_open_as_the_client_says() {
        for (head, keep_alive) in [
            (with(""), true),
            (with("Connection: Keep-Alive\r\n"), true),
            (with("Connection: close\r\n"), false),
            (with("Connection: X-A , Close\r\n"), false),
            (with("Connection: X-A\r\nConnection: close\r\n"), false),
            (with("Connection: Upgrade, X-A\r\n"), true),
            (with("Host: a\r\n"), false),
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
    fn what_is_no_head_is_rejected() {
        let many = with(&"X: 1\r\n".repeat(MAX_HEAD_LINES));
        for (head, rejection) in [
            (with("A B: 1\r\n"), InvalidRequest::Malformed),
            (
                with("a line without a colon\r\n"),
                InvalidRequest::Malformed,
            ),
            (
                "GET / HTTP/1.2\r\n\r\n".to_owned(),
                InvalidRequest::Malformed,
            ),
            (many, InvalidRequest::HeaderTooLarge),
        ] {
            assert_eq!(taken(&head), Err(rejection), "{head}");
        }
        assert_eq!(taken("GET / HTTP/1.1\r\nHost"), Ok(None));
    }
}
