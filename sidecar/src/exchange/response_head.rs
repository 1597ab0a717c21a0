//! The head of a response, as the service sent it.

mod handshake;
mod malformed;

use std::mem::MaybeUninit;

use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};
use pingora::{Error, ErrorType, ImmutStr};
use postern_http::framing::body::BodyReader;
use postern_http::framing::responses::ResponseFraming;
use postern_http::trace::RequestId;

pub(super) use self::handshake::Handshake;
use super::downstream::Outgoing;
use crate::upstream::MAX_HEAD_BYTES;
use postern_http::request::kind::{GRPC_STATUS, RequestKind};

pub(super) const MAX_FIELDS: usize = 256;

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
    /// The id that the response echoes.
    pub(super) echo: Option<&'a RequestId>,
    /// True if nonces of proofs are the sidecar's, and the service's are not passed on.
    pub(super) verifies_proofs: bool,
    /// The nonce of the client's next proof.
    pub(super) nonce: Option<&'a HeaderValue>,
    /// True for the page of an allowed origin, which may read the nonce.
    pub(super) exposes_nonce: bool,
}

/// A complete head.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseHead {
    /// Length of the head in bytes.
    pub(super) length: usize,
    pub(super) status: StatusCode,
    /// True if the response ends with its token, and may be silent until then.
    pub(super) is_stream: bool,
    pub(super) body: BodyReader,
    /// True if `Content-Length` and `Transfer-Encoding` are left out: invalid ones of a response without a body.
    pub(super) drops_framing: bool,
    /// True if the client gets the body in chunks.
    pub(super) sends_chunks: bool,
    /// True if the client's connection ends with the body.
    ends_client: bool,
    pub(super) keep_client: bool,
    pub(super) keep_upstream: bool,
}

impl ResponseHead {
    /// Returns true for a 1xx: another head follows.
    pub(super) fn is_interim(&self) -> bool {
        self.status.is_informational() && !self.opens_tunnel()
    }

    /// Returns true if the bytes that follow, of both sides, are no HTTP.
    pub(super) fn opens_tunnel(&self) -> bool {
        self.status == StatusCode::SWITCHING_PROTOCOLS
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
        .map_err(|error| malformed(malformed::cause(received, error)))?;
    // The end of a head may arrive with the bytes that exceed the limit.
    let length = match status {
        httparse::Status::Complete(length) if length <= MAX_HEAD_BYTES => length,
        httparse::Status::Partial if received.len() <= MAX_HEAD_BYTES => return Ok(None),
        _ => return Err(malformed("the head is longer than 1 MiB")),
    };
    let parsed = Parsed {
        status: parsed.code.unwrap_or_default(),
        reason: parsed.reason.unwrap_or_default(),
        is_http_1_0: parsed.version == Some(0),
        is_http_2: false,
        fields: parsed.headers,
    };
    parsed.relay(length, request, out).map(Some)
}

/// Appends the client's head to `out` for one that the service sent over HTTP/2.
///
/// # Errors
/// [`ErrorType::InvalidHTTPHeader`], as [`relay`].
pub(super) fn relay_http_2(
    received: &Response<()>,
    request: ResponseTo<'_>,
    out: &mut Outgoing,
) -> pingora::Result<ResponseHead> {
    let mut fields = Vec::with_capacity(received.headers().len());
    for (name, value) in received.headers() {
        fields.push(httparse::Header {
            name: name.as_str(),
            // A blank at an end would make the value malformed for the client (RFC 9113 §8.2.1).
            value: value.as_bytes().trim_ascii(),
        });
    }
    let parsed = Parsed {
        status: received.status().as_u16(),
        reason: received.status().canonical_reason().unwrap_or_default(),
        is_http_1_0: false,
        is_http_2: true,
        fields: &fields,
    };
    parsed.relay(0, request, out)
}

/// Returns trailers of HTTP/2 without blanks at the ends of values, as [`relay_http_2`] does with a head.
pub(super) fn trimmed(mut trailers: HeaderMap) -> HeaderMap {
    for value in trailers.values_mut() {
        // A part of a valid value is valid: the conversion cannot fail.
        if let Ok(trimmed) = HeaderValue::from_bytes(value.as_bytes().trim_ascii()) {
            *value = trimmed;
        }
    }
    trailers
}

fn malformed(why: impl Into<ImmutStr>) -> Box<Error> {
    Error::explain(ErrorType::InvalidHTTPHeader, why).into_up()
}

/// A head in parts.
pub(super) struct Parsed<'h> {
    status: u16,
    pub(super) reason: &'h str,
    is_http_1_0: bool,
    pub(super) is_http_2: bool,
    pub(super) fields: &'h [httparse::Header<'h>],
}

impl<'h> Parsed<'h> {
    fn relay(
        &self,
        length: usize,
        request: ResponseTo<'_>,
        out: &mut Outgoing,
    ) -> pingora::Result<ResponseHead> {
        let head = self.head(length, request)?;
        out.ends_with_connection = head.ends_client;
        // HTTP/1.0 has no interim responses (RFC 9110 §15.2).
        if !(head.is_interim() && request.version == Version::HTTP_10) {
            self.write(&head, request, out);
        }
        Ok(head)
    }

    fn head(&self, length: usize, request: ResponseTo<'_>) -> pingora::Result<ResponseHead> {
        let opens_tunnel = self.status == StatusCode::SWITCHING_PROTOCOLS.as_u16();
        let Ok(status) = StatusCode::from_u16(self.status) else {
            return Err(malformed("the status is less than 100"));
        };
        // After any other 101 the service may read the client's bytes as requests, past all rules.
        if opens_tunnel && !request.handshake.is_some_and(|it| it.is_completed_by(self)) {
            return Err(malformed(
                "a 101 that completes no handshake of a WebSocket",
            ));
        }
        // RFC 9112 §6.3: these responses have no body, whatever their fields announce.
        let has_no_body = self.status < 200 || request.is_head || matches!(self.status, 204 | 304);
        let fields = self.fields.iter().map(|field| (field.name, field.value));
        let framing = ResponseFraming::read(fields, has_no_body)
            .map_err(|error| malformed(error.to_string()))?;
        let needs_chunks = !has_no_body && framing.length.is_none();
        // HTTP/1.0 has no chunks: only the end of the connection ends such a body.
        let ends_client = needs_chunks && request.version == Version::HTTP_10;
        // RFC 9112 §6.1: a doubtful message may be framed in another way than its fields announce.
        let is_doubtful = framing.is_doubtful
            || (self.is_http_1_0 && self.has_coding())
            || (has_no_body && self.status >= 200 && self.announces_body());
        Ok(ResponseHead {
            length,
            status,
            is_stream: opens_tunnel || self.is_stream(request.kind),
            body: if opens_tunnel {
                BodyReader::UNTIL_CLOSE
            } else {
                framing.body
            },
            drops_framing: framing.has_invalid_fields,
            sends_chunks: needs_chunks && request.version == Version::HTTP_11,
            ends_client,
            keep_client: request.keep_alive && !opens_tunnel && !ends_client,
            keep_upstream: self.keeps_connection() && !is_doubtful && !opens_tunnel,
        })
    }

    fn is_stream(&self, kind: RequestKind) -> bool {
        let has_status = kind == RequestKind::Grpc && self.values(GRPC_STATUS).next().is_some();
        kind.becomes_stream(self.values("content-type"), has_status)
    }

    pub(super) fn has_coding(&self) -> bool {
        self.values("transfer-encoding").next().is_some()
    }

    /// Returns true for the head of a body, which some services send after the response to HEAD too:
    /// it would be the response of the next request.
    fn announces_body(&self) -> bool {
        self.has_coding() || !self.values("content-length").all(is_zero)
    }

    /// Returns the values of a field, by its name in lower case.
    pub(super) fn values(&self, name: &'static str) -> impl Iterator<Item = &'h [u8]> {
        self.fields
            .iter()
            .filter(move |field| is_named(field.name, name))
            .map(|field| field.value)
    }

    /// Returns the members of `Connection` (RFC 9110 §7.6.1).
    pub(super) fn connection_options(&self) -> impl Iterator<Item = &'h [u8]> {
        self.values("connection")
            .flat_map(|value| value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii))
    }

    fn keeps_connection(&self) -> bool {
        let has = |option: &[u8]| {
            self.connection_options()
                .any(|one| one.eq_ignore_ascii_case(option))
        };
        // HTTP/1.0 closes by default (RFC 9112 §9.3).
        !has(b"close") && (!self.is_http_1_0 || has(b"keep-alive"))
    }
}

fn is_zero(value: &[u8]) -> bool {
    value.iter().all(|byte| *byte == b'0')
}

pub(super) fn is_named(name: &str, known: &str) -> bool {
    name.len() == known.len() && name.eq_ignore_ascii_case(known)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    impl ResponseTo<'_> {
        /// A plain request of HTTP/1.1.
        pub(in crate::exchange) const PLAIN: Self = Self {
            version: Version::HTTP_11,
            kind: RequestKind::Plain,
            is_head: false,
            keep_alive: true,
            handshake: None,
            echo: None,
            verifies_proofs: false,
            nonce: None,
            exposes_nonce: false,
        };
    }

    const REQUEST: ResponseTo<'_> = ResponseTo::PLAIN;

    fn relayed(head: &str, request: ResponseTo<'_>) -> pingora::Result<(ResponseHead, String)> {
        let mut out = Outgoing::default();
        let head = relay(head.as_bytes(), request, &mut out)?;
        let text = String::from_utf8(out.bytes.to_vec()).unwrap();
        Ok((head.unwrap(), text))
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
            let head = out.heads.pop_back().unwrap();
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
    fn rfc_9110_7_6_1_http_1_gets_no_field_of_the_connection() {
        let text = "HTTP/1.1 200 OK\r\nDate: then\r\nUpgrade: h2c\r\nProxy-Connection: close\r\n\
                    Keep-Alive: timeout=5\r\nTrailer: X-End\r\nContent-Length: 0\r\n\r\n";
        let (_, sent) = relayed(text, REQUEST).unwrap();
        let passed = "Date: then\r\nContent-Length: 0\r\nConnection: keep-alive\r\n";
        assert_eq!(sent, format!("HTTP/1.1 200 OK\r\n{passed}\r\n"));
        let required = text.replace("200 OK", "426 Upgrade Required");
        let (_, sent) = relayed(&required, REQUEST).unwrap();
        assert!(sent.contains("\r\nUpgrade: h2c\r\n"), "{sent}");
    }

    #[test]
    fn rfc_9112_6_3_a_missing_body_has_no_invalid_framing_fields() {
        let head_request = ResponseTo {
            is_head: true,
            ..REQUEST
        };
        for (status, field, request) in [
            ("200 OK", "Content-Length: -1", head_request),
            ("304 Not Modified", "Content-Length: ", REQUEST),
            (
                "304 Not Modified",
                "Transfer-Encoding: gzip, chunked",
                REQUEST,
            ),
            ("204 No Content", "Content-Length: 5, 6", REQUEST),
        ] {
            let text = format!("HTTP/1.1 {status}\r\nDate: then\r\n{field}\r\n\r\n");
            let (head, sent) = relayed(&text, request).unwrap();
            let expected =
                format!("HTTP/1.1 {status}\r\nDate: then\r\nConnection: keep-alive\r\n\r\n");
            assert_eq!(sent, expected);
            assert!(head.body.is_done() && !head.keep_upstream);
        }
    }

    #[test]
    fn only_the_response_to_a_handshake_opens_a_tunnel() {
        let of = |offers_token| ResponseTo {
            handshake: Some(Handshake::new(b"dGhlIHNhbXBsZSBub25jZQ==", offers_token)),
            ..REQUEST
        };
        const ACCEPT: &str = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
        let text = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n{ACCEPT}\
             Connection: Upgrade, X-Hop\r\nX-Hop: 1\r\nContent-Length: 3\r\n\r\n"
        );
        for (offers_token, chosen) in [(false, ""), (true, "Sec-WebSocket-Protocol: bearer\r\n")] {
            let (head, sent) = relayed(&text, of(offers_token)).unwrap();
            assert!(head.opens_tunnel() && !head.is_interim());
            assert!(head.body.ends_with_connection() && !head.sends_chunks);
            assert!(!head.keep_client && !head.keep_upstream);
            let expected = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n{ACCEPT}\
                 {chosen}Connection: Upgrade\r\n\r\n"
            );
            assert_eq!(sent, expected);
        }
        let chose = text.replace("X-Hop: 1", "sec-websocket-protocol: chat");
        let (_, sent) = relayed(&chose, of(true)).unwrap();
        assert!(!sent.contains("bearer"));
        let twice = format!("{ACCEPT}{ACCEPT}");
        for (part, other) in [
            (ACCEPT, ""),
            (ACCEPT, &*twice),
            ("K+xOo=", "K+xOp="),
            ("Upgrade: websocket\r\n", ""),
            ("Upgrade: websocket", "Upgrade: websocket, h2c"),
            ("Upgrade: websocket", "Upgrade: h2c"),
        ] {
            let relayed = relayed(&text.replacen(part, other, 1), of(false));
            assert!(relayed.is_err(), "{part} becomes {other}");
        }
    }
}
