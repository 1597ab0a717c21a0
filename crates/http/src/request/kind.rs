//! The kind of a request, which selects its timeouts and its connections to the service.

use http::{HeaderMap, Method, Version, header};

use crate::request::header_list::members;

/// The field that ends a gRPC call, in a trailer or in a head without a body.
pub const GRPC_STATUS: &str = "grpc-status";

/// Kind of a request, and of the response that it expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// A request with an ordinary response.
    Plain,
    /// Server-sent events: a response without an end and with long silences.
    EventStream,
    /// gRPC: after the response has begun, both sides may send without a time limit.
    Grpc,
    /// A tunnel.
    WebSocket,
}

impl RequestKind {
    /// Reads the kind from the head of a request.
    pub(super) fn from_head(
        method: &Method,
        version: Version,
        headers: &HeaderMap,
        has_body: bool,
    ) -> Self {
        // Services differ in when they read a body of a handshake.
        if !has_body && is_websocket_handshake(method, version, headers) {
            Self::WebSocket
        } else if is_grpc_call(method, version, headers) {
            Self::Grpc
        } else if accepts(headers, is_event_stream) {
            Self::EventStream
        } else {
            Self::Plain
        }
    }

    /// Returns true if a response with these values of `Content-Type` is a stream, which ends when
    /// its token expires. A head that `has_grpc_status` is the whole response to a call.
    pub fn becomes_stream<'v>(
        self,
        mut content_types: impl Iterator<Item = &'v [u8]>,
        has_grpc_status: bool,
    ) -> bool {
        let is_call = self == Self::Grpc;
        if is_call && has_grpc_status {
            return false;
        }
        let is_stream = |member: &[u8]| {
            let essence = essence(member);
            is_event_stream(essence) || is_call && is_grpc(essence)
        };
        content_types.any(|value| value.split(|&byte| byte == b',').any(is_stream))
    }
}

/// Returns true for a gRPC call, which exists in HTTP/2 alone.
fn is_grpc_call(method: &Method, version: Version, headers: &HeaderMap) -> bool {
    *method == Method::POST
        && version == Version::HTTP_2
        && members(headers, &header::CONTENT_TYPE).any(|member| is_grpc(essence(member)))
}

/// Returns true if a media type is acceptable by its own name, whatever the others.
pub fn accepts(headers: &HeaderMap, is: impl Fn(&[u8]) -> bool) -> bool {
    members(headers, &header::ACCEPT).any(|member| is(essence(member)) && !has_no_weight(member))
}

/// Returns true for `q=0`, which is "not acceptable" (RFC 9110 §12.4.2).
fn has_no_weight(member: &[u8]) -> bool {
    for parameter in member.split(|&byte| byte == b';') {
        if let [b'q' | b'Q', b'=', weight @ ..] = parameter.trim_ascii()
            && weight.iter().all(|byte| b"0.".contains(byte))
        {
            return true;
        }
    }
    false
}

/// Returns the media type without its parameters.
fn essence(member: &[u8]) -> &[u8] {
    member
        .split(|&byte| byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii()
}

fn is_event_stream(essence: &[u8]) -> bool {
    essence.eq_ignore_ascii_case(b"text/event-stream")
}

/// Returns true for `application/grpc` and its message formats (`+proto`), not for `grpc-web`,
/// which proxies treat as a plain request.
fn is_grpc(essence: &[u8]) -> bool {
    const NAME: &[u8] = b"application/grpc";
    match essence.split_at_checked(NAME.len()) {
        Some((name, [] | [b'+', ..])) => name.eq_ignore_ascii_case(NAME),
        _ => false,
    }
}

/// Returns true for a complete WebSocket handshake (RFC 6455 §4.1).
fn is_websocket_handshake(method: &Method, version: Version, headers: &HeaderMap) -> bool {
    let mut protocols = members(headers, &header::UPGRADE);
    *method == Method::GET
        && version == Version::HTTP_11
        && protocols.next().is_some_and(is_websocket)
        && protocols.next().is_none()
        && members(headers, &header::CONNECTION)
            .any(|option| option.eq_ignore_ascii_case(b"upgrade"))
        && headers.contains_key(header::SEC_WEBSOCKET_KEY)
}

fn is_websocket(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"websocket")
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    type Field = (&'static str, &'static str);

    fn headers(fields: &[Field]) -> HeaderMap {
        let field = |(name, value): &Field| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        };
        fields.iter().map(field).collect()
    }

    #[test]
    fn grpc_and_events_are_streams_downloads_are_not() {
        const EVENTS: &str = "text/event-stream; charset=utf-8";
        const CALL: &str = "application/grpc+proto";
        for (kind, content_type, has_status, stream) in [
            (RequestKind::WebSocket, "video/mp4", false, false),
            (RequestKind::Grpc, CALL, false, true),
            (RequestKind::Grpc, CALL, true, false),
            (RequestKind::Grpc, EVENTS, false, true),
            (RequestKind::Grpc, "video/mp4", false, false),
            (RequestKind::Plain, CALL, false, false),
            (RequestKind::EventStream, EVENTS, false, true),
            (RequestKind::EventStream, "video/mp4", false, false),
            (RequestKind::Plain, EVENTS, false, true),
            (RequestKind::Plain, "a, text/event-stream", false, true),
        ] {
            let content_types = std::iter::once(content_type.as_bytes());
            let becomes = kind.becomes_stream(content_types, has_status);
            assert_eq!(becomes, stream, "{kind:?} {content_type}");
        }
    }

    #[test]
    fn the_media_types_select_the_kind() {
        for (field, value, kind) in [
            ("content-type", "application/grpc", RequestKind::Grpc),
            ("content-type", "application/grpc+proto", RequestKind::Grpc),
            ("content-type", "Application/GRPC; a=b", RequestKind::Grpc),
            ("content-type", "application/grpc-web", RequestKind::Plain),
            ("content-type", "application/json", RequestKind::Plain),
            ("accept", "text/event-stream", RequestKind::EventStream),
            (
                "accept",
                "text/html, text/event-stream;q=0.5",
                RequestKind::EventStream,
            ),
            ("accept", "text/plain", RequestKind::Plain),
            ("accept", "text/event-stream; Q=0.00", RequestKind::Plain),
            ("accept", "application/grpc", RequestKind::Plain),
            ("content-type", "text/event-stream", RequestKind::Plain),
        ] {
            let headers = headers(&[(field, value)]);
            let found = RequestKind::from_head(&Method::POST, Version::HTTP_2, &headers, true);
            assert_eq!(found, kind, "{field}: {value}");
        }
    }

    const HANDSHAKE: [Field; 3] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    #[test]
    fn only_the_whole_handshake_opens_a_websocket() {
        let opens_websocket = |method: Method, version, fields: &[Field]| {
            let headers = headers(fields);
            let of = |has_body| RequestKind::from_head(&method, version, &headers, has_body);
            assert_ne!(of(true), RequestKind::WebSocket);
            of(false) == RequestKind::WebSocket
        };
        assert!(opens_websocket(Method::GET, Version::HTTP_11, &HANDSHAKE));
        assert!(!opens_websocket(Method::POST, Version::HTTP_11, &HANDSHAKE));
        assert!(!opens_websocket(Method::GET, Version::HTTP_10, &HANDSHAKE));
        for missing in 0..HANDSHAKE.len() {
            let mut fields = HANDSHAKE.to_vec();
            fields.remove(missing);
            let opens = opens_websocket(Method::GET, Version::HTTP_11, &fields);
            assert!(!opens, "{fields:?}");
        }
        for protocol in ["h2c", "websocket, h2c", "websockets", ""] {
            let mut fields = HANDSHAKE;
            fields[1].1 = protocol;
            let opens = opens_websocket(Method::GET, Version::HTTP_11, &fields);
            assert!(!opens, "{protocol}");
        }
    }
}
