//! The head of a response: parsed from the service, written for the client.

use std::mem::MaybeUninit;

use bytes::{BufMut, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version};
use pingora::protocols::http::date::get_cached_date;
use pingora::{Error, ErrorType};
use pingora_http::ResponseHeader;
use smallvec::SmallVec;
use wire::http::framing::body::BodyReader;
use wire::http::framing::responses::ResponseFraming;

use super::side::Outgoing;
use crate::decision::strip_token::BEARER;
use crate::request::kind::{GRPC_STATUS, RequestKind};

/// Pingora's own limits for the head of a response.
const MAX_FIELDS: usize = 256;
pub(super) const MAX_HEAD_BYTES: usize = 1024 * 1024;
const SWITCHING_PROTOCOLS: u16 = 101;
/// Room for the fields that are added on the way to the client.
const ADDED_BYTES: usize = 192;

/// Properties of the request that affect the head of its response.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseTo<'a> {
    pub(super) version: Version,
    pub(super) kind: RequestKind,
    pub(super) is_head: bool,
    /// True if the client's connection may carry another request.
    pub(super) keep_alive: bool,
    /// Set if the response may open a tunnel.
    pub(super) handshake: Option<Handshake>,
    /// A field that the response echoes.
    pub(super) echo: Option<&'a (HeaderName, HeaderValue)>,
}

/// The handshake of a WebSocket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handshake {
    /// True if the client offered the protocol `bearer` with its token.
    pub(super) offers_token: bool,
}

/// A complete head.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseHead {
    /// Length of the head in bytes.
    pub(super) length: usize,
    pub(super) status: u16,
    /// True if the response ends with its token, and may be silent until then.
    pub(super) is_stream: bool,
    pub(super) body: BodyReader,
    /// True if the client gets the body in chunks.
    pub(super) sends_chunks: bool,
    pub(super) keep_client: bool,
    pub(super) keep_upstream: bool,
}

impl ResponseHead {
    /// Returns true for a 1xx: another head follows.
    pub(super) const fn is_interim(&self) -> bool {
        self.status < 200 && !self.opens_tunnel()
    }

    /// Returns true if the bytes that follow, of both sides, are no HTTP.
    pub(super) const fn opens_tunnel(&self) -> bool {
        self.status == SWITCHING_PROTOCOLS
    }
}

/// Parses a head from `received` and appends the client's head to `out`; returns `None` while it is
/// incomplete.
///
/// # Errors
/// [`ErrorType::InvalidHTTPHeader`] for a head that two recipients could read differently.
pub(super) fn relay(
    received: &[u8],
    request: ResponseTo<'_>,
    out: &mut Outgoing,
) -> pingora::Result<Option<ResponseHead>> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let status = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut parsed, received, &mut fields)
        .map_err(|_| malformed())?;
    // The end of a head may arrive with the bytes that exceed the limit.
    let length = match status {
        httparse::Status::Complete(length) if length <= MAX_HEAD_BYTES => length,
        httparse::Status::Partial if received.len() <= MAX_HEAD_BYTES => return Ok(None),
        _ => return Err(malformed()),
    };
    let parsed = Parsed {
        status: parsed.code.ok_or_else(malformed)?,
        reason: parsed.reason.unwrap_or_default(),
        is_http_1_0: parsed.version == Some(0),
        is_http_2: false,
        fields: parsed.headers,
    };
    let head = parsed.head(length, request)?;
    // HTTP/1.0 has no interim responses (RFC 9110 §15.2).
    if !(head.is_interim() && request.version == Version::HTTP_10) {
        parsed.write(&head, request, out);
    }
    Ok(Some(head))
}

/// Appends the client's head to `out` for one that the service sent over HTTP/2.
///
/// # Errors
/// [`ErrorType::InvalidHTTPHeader`], as [`relay`].
pub(super) fn relay_http_2(
    received: &ResponseHeader,
    request: ResponseTo<'_>,
    out: &mut Outgoing,
) -> pingora::Result<ResponseHead> {
    let fields = received.headers.iter();
    let fields: Vec<_> = fields
        .map(|(name, value)| httparse::Header {
            name: name.as_str(),
            value: value.as_bytes(),
        })
        .collect();
    let parsed = Parsed {
        status: received.status.as_u16(),
        reason: received.status.canonical_reason().unwrap_or_default(),
        is_http_1_0: false,
        is_http_2: true,
        fields: &fields,
    };
    let head = parsed.head(0, request)?;
    parsed.write(&head, request, out);
    Ok(head)
}

fn malformed() -> Box<Error> {
    Error::new_up(ErrorType::InvalidHTTPHeader)
}

struct Parsed<'h> {
    status: u16,
    reason: &'h str,
    is_http_1_0: bool,
    is_http_2: bool,
    fields: &'h [httparse::Header<'h>],
}

impl<'h> Parsed<'h> {
    fn head(&self, length: usize, request: ResponseTo<'_>) -> pingora::Result<ResponseHead> {
        let opens_tunnel = self.status == SWITCHING_PROTOCOLS;
        if self.status < 100 || (opens_tunnel && request.handshake.is_none()) {
            // A tunnel without a request for one is rejected.
            return Err(malformed());
        }
        let has_no_body = self.status < 200 || request.is_head || matches!(self.status, 204 | 304);
        let fields = self.fields.iter().map(|field| (field.name, field.value));
        let framing = ResponseFraming::read(fields, has_no_body).map_err(|_| malformed())?;
        let needs_chunks = !has_no_body && framing.length.is_none();
        // RFC 9112 §6.1: such a message may be framed in another way than it says.
        let is_doubtful = framing.is_doubtful || (self.is_http_1_0 && self.has_coding());
        Ok(ResponseHead {
            length,
            status: self.status,
            is_stream: opens_tunnel || self.is_stream(request.kind),
            body: if opens_tunnel {
                BodyReader::UNTIL_CLOSE
            } else {
                framing.body
            },
            sends_chunks: needs_chunks && request.version == Version::HTTP_11,
            keep_client: request.keep_alive
                && !opens_tunnel
                && !(needs_chunks && request.version == Version::HTTP_10),
            keep_upstream: self.keeps_connection() && !is_doubtful && !opens_tunnel,
        })
    }

    fn is_stream(&self, kind: RequestKind) -> bool {
        let has_status = kind == RequestKind::Grpc && self.values(GRPC_STATUS).next().is_some();
        kind.becomes_stream(self.values("content-type"), has_status)
    }

    fn has_coding(&self) -> bool {
        self.values("transfer-encoding").next().is_some()
    }

    /// Returns the values of a field, by its name in lower case.
    fn values(&self, name: &'static str) -> impl Iterator<Item = &'h [u8]> {
        let named = move |field: &&httparse::Header<'h>| is_named(field.name, name);
        self.fields.iter().filter(named).map(|field| field.value)
    }

    /// Returns the members of `Connection` (RFC 9110 §7.6.1).
    fn connection_options(&self) -> impl Iterator<Item = &'h [u8]> {
        let values = self.values("connection");
        values.flat_map(|value| value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii))
    }

    fn keeps_connection(&self) -> bool {
        let has = |option: &[u8]| {
            let mut options = self.connection_options();
            options.any(|one| one.eq_ignore_ascii_case(option))
        };
        !has(b"close") && (!self.is_http_1_0 || has(b"keep-alive"))
    }

    /// Writes the client's head.
    fn write(&self, head: &ResponseHead, request: ResponseTo<'_>, out: &mut Outgoing) {
        if request.version == Version::HTTP_2 {
            let mut fields = HeaderMap::with_capacity(self.fields.len() + 2);
            self.write_fields(head, request, &mut fields);
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or_default();
            *response.headers_mut() = fields;
            return out.heads.push(response);
        }
        let out = &mut out.bytes;
        // For the begin of the body too, which arrived with the head.
        out.reserve(head.length + ADDED_BYTES);
        out.put_slice(b"HTTP/1.1 ");
        let digit = |unit: u16| b'0' + (self.status / unit % 10) as u8;
        out.put_slice(&[digit(100), digit(10), digit(1), b' ']);
        out.put_slice(self.reason.as_bytes());
        out.put_slice(b"\r\n");
        self.write_fields(head, request, out);
        out.put_slice(b"\r\n");
    }

    /// Writes all fields of the client's head.
    fn write_fields(&self, head: &ResponseHead, request: ResponseTo<'_>, out: &mut impl FieldSink) {
        let has_date = self.write_passed(head, request, out);
        if let Some((name, value)) = request.echo {
            out.put(name.as_str(), value.as_bytes());
        }
        if head.sends_chunks {
            out.put("Transfer-Encoding", b"chunked");
        }
        if head.opens_tunnel() {
            self.write_handshake(request, out);
        } else if !head.is_interim() {
            if !has_date {
                out.put("Date", get_cached_date().as_bytes());
            }
            if request.version != Version::HTTP_2 {
                let connection: &[u8] = if head.keep_client {
                    b"keep-alive"
                } else {
                    b"close"
                };
                out.put("Connection", connection);
            }
        }
    }

    /// Completes the response to a handshake.
    fn write_handshake(&self, request: ResponseTo<'_>, out: &mut impl FieldSink) {
        out.put("Connection", b"Upgrade");
        let offers_token = request.handshake.is_some_and(|it| it.offers_token);
        if offers_token && self.values("sec-websocket-protocol").next().is_none() {
            out.put("Sec-WebSocket-Protocol", BEARER.as_bytes());
        }
    }

    /// Writes the fields of the service that are for the client; returns true if `Date` is among
    /// them.
    fn write_passed(
        &self,
        head: &ResponseHead,
        request: ResponseTo<'_>,
        out: &mut impl FieldSink,
    ) -> bool {
        let nominated: SmallVec<[&[u8]; 4]> = self.connection_options().collect();
        let to_http_2 = request.version == Version::HTTP_2;
        let has_coding = self.has_coding();
        // RFC 9110 §8.6 and RFC 9112 §6.1: a recipient could wait for a body.
        let has_no_framing = head.status < 200 || head.status == 204;
        let (mut has_length, mut has_date) = (false, false);
        for field in self.fields {
            let name = field.name;
            if is_named(name, "content-length") {
                // Ignored beside a coding (RFC 9112 §6.3); `2, 2` and repeated fields become one.
                if !(has_no_framing || has_coding || std::mem::replace(&mut has_length, true)) {
                    out.put(name, first_length(field.value));
                }
                continue;
            }
            let is_dropped = if is_named(name, "transfer-encoding") {
                // A response without a body may announce a coding, except to HTTP/1.0 clients.
                has_no_framing
                    || head.sends_chunks
                    || !head.body.is_done()
                    || request.version != Version::HTTP_11
            } else {
                is_named(name, "connection")
                    || is_named(name, "keep-alive")
                    // Trailers go from HTTP/2 to HTTP/2 alone.
                    || (is_named(name, "trailer") && !(self.is_http_2 && to_http_2))
                    // RFC 9113 §8.2.2.
                    || (to_http_2 && (is_named(name, "upgrade") || is_named(name, "proxy-connection")))
                    || request
                        .echo
                        .is_some_and(|(echo, _)| is_named(name, echo.as_str()))
                    || (nominated
                        .iter()
                        .any(|one| one.eq_ignore_ascii_case(name.as_bytes()))
                        && !(head.opens_tunnel() && is_named(name, "upgrade")))
            };
            if !is_dropped {
                has_date |= is_named(name, "date");
                out.put(name, field.value);
            }
        }
        has_date
    }
}

/// The fields of a head in one version of HTTP.
trait FieldSink {
    fn put(&mut self, name: &str, value: &[u8]);
}

impl FieldSink for BytesMut {
    fn put(&mut self, name: &str, value: &[u8]) {
        self.put_slice(name.as_bytes());
        self.put_slice(b": ");
        self.put_slice(value);
        self.put_slice(b"\r\n");
    }
}

impl FieldSink for HeaderMap {
    fn put(&mut self, name: &str, value: &[u8]) {
        let name = HeaderName::from_bytes(name.as_bytes());
        // The parser has checked both.
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            self.append(name, value);
        }
    }
}

/// Returns the first of several equal lengths.
fn first_length(value: &[u8]) -> &[u8] {
    let first = value.split(|&byte| byte == b',').next();
    first.unwrap_or_default().trim_ascii()
}

fn is_named(name: &str, known: &str) -> bool {
    name.len() == known.len() && name.eq_ignore_ascii_case(known)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const REQUEST: ResponseTo<'_> = ResponseTo {
        version: Version::HTTP_11,
        kind: RequestKind::Plain,
        is_head: false,
        keep_alive: true,
        handshake: None,
        echo: None,
    };

    fn relayed(
        head: &str,
        request: ResponseTo<'_>,
    ) -> pingora::Result<Option<(ResponseHead, String)>> {
        let mut out = Outgoing::default();
        let head = relay(head.as_bytes(), request, &mut out)?;
        let text = String::from_utf8(out.bytes.to_vec()).unwrap();
        Ok(head.map(|head| (head, text)))
    }

    fn written(head: &str, request: ResponseTo<'_>) -> String {
        relayed(head, request).unwrap().unwrap().1
    }

    #[test]
    fn fields_for_the_client_stay_as_they_came() {
        let head = "HTTP/1.1 201 Made\r\nDate: then\r\nX-A: \x311\r\nx-a:2\r\nServer: s\r\n\
                    Content-Length: 3\r\n\r\nabc";
        assert_eq!(
            written(head, REQUEST),
            "HTTP/1.1 201 Made\r\nDate: then\r\nX-A: 11\r\nx-a: 2\r\nServer: s\r\n\
             Content-Length: 3\r\nConnection: keep-alive\r\n\r\n"
        );
    }

    #[test]
    fn fields_of_the_service_s_connection_do_not_reach_the_client() {
        let head = "HTTP/1.1 200 OK\r\nDate: then\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n\
                    Keep-Alive: timeout=5\r\nTrailer: X-End\r\nContent-Length: 0\r\n\r\n";
        let (head, text) = relayed(head, REQUEST).unwrap().unwrap();
        assert!(!head.keep_upstream && head.keep_client);
        assert_eq!(
            text,
            "HTTP/1.1 200 OK\r\nDate: then\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n"
        );
    }

    #[test]
    fn a_body_without_a_length_is_chunked_or_ends_the_connection() {
        let old = ResponseTo {
            version: Version::HTTP_10,
            ..REQUEST
        };
        for fields in ["", "Transfer-Encoding: chunked\r\n"] {
            let head = format!("HTTP/1.1 200 OK\r\nDate: then\r\n{fields}\r\n");
            assert_eq!(
                written(&head, REQUEST),
                "HTTP/1.1 200 OK\r\nDate: then\r\nTransfer-Encoding: chunked\r\n\
                 Connection: keep-alive\r\n\r\n"
            );
            assert_eq!(
                written(&head, old),
                "HTTP/1.1 200 OK\r\nDate: then\r\nConnection: close\r\n\r\n"
            );
        }
    }

    #[test]
    fn a_length_is_sent_once_and_not_beside_chunks() {
        for (fields, sent) in [
            ("Content-Length: 2, 2\r\n", "Content-Length: 2\r\n"),
            (
                "Content-Length: 2\r\nContent-Length: 2\r\n",
                "Content-Length: 2\r\n",
            ),
            (
                "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
                "Transfer-Encoding: chunked\r\n",
            ),
        ] {
            let head = format!("HTTP/1.1 200 OK\r\nDate: then\r\n{fields}\r\n");
            let (head, text) = relayed(&head, REQUEST).unwrap().unwrap();
            assert!(!head.keep_upstream, "{fields}");
            let expected =
                format!("HTTP/1.1 200 OK\r\nDate: then\r\n{sent}Connection: keep-alive\r\n\r\n");
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn http_2_gets_the_fields_that_are_not_of_a_connection() {
        let to = ResponseTo {
            version: Version::HTTP_2,
            ..REQUEST
        };
        let sent = |text: &str| {
            let mut out = Outgoing::default();
            relay(text.as_bytes(), to, &mut out).unwrap().unwrap();
            assert!(out.bytes.is_empty());
            let head = out.heads.pop().unwrap();
            let names = head.headers().keys().map(ToString::to_string);
            (head.status().as_u16(), names.collect::<Vec<_>>())
        };
        let fields = "Date: then\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nUpgrade: h2c\r\n\
                      Keep-Alive: timeout=5\r\nProxy-Connection: close\r\nTrailer: X-End\r\n\
                      Transfer-Encoding: chunked\r\n";
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        assert_eq!(sent(&text), (200, vec!["date".to_owned()]));
        let hints = sent("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        assert_eq!(hints, (103, vec!["link".to_owned()]));
    }

    #[test]
    fn equal_lengths_become_one_and_others_are_rejected() {
        for (value, unified) in [
            ("2", Some("2")),
            ("2, 2", Some("2")),
            ("02,02 ,02", Some("02")),
            ("2, 3", None),
            ("2,", None),
            ("2, 02", None),
            ("", None),
            ("-2", None),
            ("+2, +2", None),
            ("2\r\nContent-Length: 3", None),
            ("2\r\nContent-Length: 2, 2", Some("2")),
        ] {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {value}\r\n\r\n");
            let sent = relayed(&head, REQUEST).map(Option::unwrap).ok();
            assert_eq!(sent.is_some(), unified.is_some(), "{value:?}");
            if let (Some((_, text)), Some(length)) = (sent, unified) {
                assert_eq!(text.matches("Content-Length").count(), 1, "{value:?}");
                assert!(text.contains(&format!("Content-Length: {length}\r\n")));
            }
        }
    }

    #[test]
    fn interim_responses_go_to_clients_that_know_them() {
        let head = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        assert_eq!(written(head, REQUEST), head);
        let old = ResponseTo {
            version: Version::HTTP_10,
            ..REQUEST
        };
        assert_eq!(written(head, old), "");
    }

    #[test]
    fn a_response_without_a_body_announces_none() {
        for status in ["103 Early Hints", "204 No Content"] {
            for field in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
                let head = format!("HTTP/1.1 {status}\r\nDate: then\r\n{field}\r\n\r\n");
                let (head, text) = relayed(&head, REQUEST).unwrap().unwrap();
                assert!(head.body.is_done(), "{text}");
                assert!(!text.contains(field), "{text}");
            }
        }
    }

    #[test]
    fn chunks_in_http_1_0_end_the_connection_to_the_service() {
        for (fields, keeps) in [
            ("Content-Length: 0", true),
            ("Transfer-Encoding: chunked", false),
        ] {
            let head = format!("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n{fields}\r\n\r\n");
            let (head, _) = relayed(&head, REQUEST).unwrap().unwrap();
            assert_eq!(head.keep_upstream, keeps, "{fields}");
        }
    }

    #[test]
    fn half_a_head_is_waited_for_and_a_doubtful_one_rejected() {
        assert!(
            relayed("HTTP/1.1 200 OK\r\nServer", REQUEST)
                .unwrap()
                .is_none()
        );
        for head in [
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "HTTP/1.1 099 Low\r\n\r\n",
            "HTTP/1.1 200 OK\r\n folded: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: 1\r\n 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA : 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/2 200 OK\r\n\r\n",
            "SSH-2.0-x\r\n\r\n",
        ] {
            assert!(relayed(head, REQUEST).is_err(), "{head}");
        }
    }

    #[test]
    fn only_the_response_to_a_handshake_opens_a_tunnel() {
        let of = |offers_token| ResponseTo {
            handshake: Some(Handshake { offers_token }),
            ..REQUEST
        };
        let text = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                    Connection: Upgrade, X-Hop\r\nX-Hop: 1\r\nContent-Length: 3\r\n\r\n";
        for (offers_token, chosen) in [(false, ""), (true, "Sec-WebSocket-Protocol: bearer\r\n")] {
            let (head, sent) = relayed(text, of(offers_token)).unwrap().unwrap();
            assert!(head.opens_tunnel() && !head.is_interim());
            assert!(head.body.ends_with_connection() && !head.sends_chunks);
            assert!(!head.keep_client && !head.keep_upstream);
            let expected = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                 Connection: Upgrade\r\n{chosen}\r\n"
            );
            assert_eq!(sent, expected);
        }
        let chose = text.replace("X-Hop: 1", "sec-websocket-protocol: chat");
        assert!(!written(&chose, of(true)).contains("bearer"));
    }

    #[test]
    fn a_head_beyond_the_limit_is_rejected_with_or_without_its_end() {
        let head = |fill: usize| format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(fill));
        for (end, fill, is_rejected) in [
            ("\r\n\r\n", MAX_HEAD_BYTES, true),
            ("", MAX_HEAD_BYTES, true),
            ("\r\n\r\n", MAX_HEAD_BYTES - 100, false),
            ("", MAX_HEAD_BYTES - 100, false),
        ] {
            let relayed = relayed(&(head(fill) + end), REQUEST);
            assert_eq!(relayed.is_err(), is_rejected, "{end:?} {fill}");
        }
    }

    #[test]
    fn a_response_to_head_speaks_of_a_body_that_does_not_follow() {
        let head = ResponseTo {
            is_head: true,
            ..REQUEST
        };
        for field in ["Content-Length: 9", "Transfer-Encoding: chunked"] {
            let text = format!("HTTP/1.1 200 OK\r\nDate: then\r\n{field}\r\n\r\n");
            let (head, sent) = relayed(&text, head).unwrap().unwrap();
            assert!(head.body.is_done() && head.keep_client && head.keep_upstream);
            assert!(sent.contains(field), "{sent}");
        }
    }
}
