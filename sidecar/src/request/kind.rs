//! The kind of a request, which selects its timeouts and its connections to the service.

use http::{HeaderMap, Method, StatusCode, Version, header};
use wire::http::framing::announces_body;

use crate::request::header_list::members;

/// The field that ends a gRPC call, in a trailer or in a head without a body.
pub(crate) const GRPC_STATUS: &str = "grpc-status";

/// Kind of a request, and of the response that it expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
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
    pub(crate) fn of(method: &Method, version: Version, headers: &HeaderMap) -> Self {
        if is_websocket_handshake(method, version, headers) {
            Self::WebSocket
        } else if is_grpc_call(method, version, headers) {
            Self::Grpc
        } else if has_media_type(headers, &header::ACCEPT, is_event_stream) {
            Self::EventStream
        } else {
            Self::Plain
        }
    }

    /// Returns true if a response head opens a stream, which ends when its token expires.
    pub(crate) fn becomes_stream(self, status: StatusCode, response: &HeaderMap) -> bool {
        match self {
            Self::WebSocket => status == StatusCode::SWITCHING_PROTOCOLS,
            // A head with the call's status is the whole response.
            Self::Grpc => {
                has_media_type(response, &header::CONTENT_TYPE, |essence| {
                    is_grpc(essence) || is_event_stream(essence)
                }) && !response.contains_key(GRPC_STATUS)
            }
            Self::EventStream | Self::Plain => {
                has_media_type(response, &header::CONTENT_TYPE, is_event_stream)
            }
        }
    }
}

/// Returns true for a gRPC call, which exists in HTTP/2 alone.
pub(crate) fn is_grpc_call(method: &Method, version: Version, headers: &HeaderMap) -> bool {
    *method == Method::POST
        && version == Version::HTTP_2
        && has_media_type(headers, &header::CONTENT_TYPE, is_grpc)
}

fn has_media_type(
    headers: &HeaderMap,
    field: &header::HeaderName,
    is: impl Fn(&[u8]) -> bool,
) -> bool {
    members(headers, field).any(|member| is(essence(member)))
}

/// Returns the media type without its parameters.
fn essence(member: &[u8]) -> &[u8] {
    member
        .split(|&byte| byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii()
}

/// Returns true of a `Content-Type` that names server-sent events.
pub(crate) fn is_event_stream_type(value: &[u8]) -> bool {
    let mut members = value.split(|&byte| byte == b',');
    members.any(|member| is_event_stream(essence(member)))
}

fn is_event_stream(essence: &[u8]) -> bool {
    essence.eq_ignore_ascii_case(b"text/event-stream")
}

/// Returns true for `application/grpc` and its message formats (`+proto`), not for `grpc-web`,
/// which proxies treat as a plain request.
fn is_grpc(essence: &[u8]) -> bool {
    const NAME: &[u8] = b"application/grpc";
    essence
        .split_at_checked(NAME.len())
        .is_some_and(|(name, suffix)| {
            name.eq_ignore_ascii_case(NAME) && matches!(suffix.first(), None | Some(b'+'))
        })
}

/// Returns true for a complete WebSocket handshake (RFC 6455 §4.1); Pingora requires `Upgrade`
/// alone. One that announces a body is a plain request: services differ in when they read that
/// body.
fn is_websocket_handshake(method: &Method, version: Version, headers: &HeaderMap) -> bool {
    *method == Method::GET
        && version == Version::HTTP_11
        && is_websocket_alone(headers)
        && members(headers, &header::CONNECTION)
            .any(|option| option.eq_ignore_ascii_case(b"upgrade"))
        && headers.contains_key(header::SEC_WEBSOCKET_KEY)
        && !announces_body(headers)
}

fn is_websocket_alone(headers: &HeaderMap) -> bool {
    let mut protocols = members(headers, &header::UPGRADE);
    let is_websocket = |name: &[u8]| name.eq_ignore_ascii_case(b"websocket");
    protocols.next().is_some_and(is_websocket) && protocols.next().is_none()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn kind_of(field: &'static str, value: &'static str) -> RequestKind {
        let headers = [(
            HeaderName::from_static(field),
            HeaderValue::from_static(value),
        )]
        .into_iter()
        .collect();
        RequestKind::of(&Method::POST, Version::HTTP_2, &headers)
    }

    #[test]
    fn websockets_grpc_and_events_are_streams_downloads_are_not() {
        let response = |value: &'static str| {
            let fields = [(header::CONTENT_TYPE, HeaderValue::from_static(value))];
            fields.into_iter().collect::<HeaderMap>()
        };
        let (events, file) = (
            response("text/event-stream; charset=utf-8"),
            response("video/mp4"),
        );
        let call = response("application/grpc+proto");
        let mut failed_call = call.clone();
        failed_call.insert(GRPC_STATUS, HeaderValue::from_static("12"));
        for (kind, status, response, stream) in [
            (RequestKind::WebSocket, 101, &file, true),
            (RequestKind::WebSocket, 200, &file, false),
            (RequestKind::Grpc, 200, &call, true),
            (RequestKind::Grpc, 200, &failed_call, false),
            (RequestKind::Grpc, 200, &events, true),
            (RequestKind::Grpc, 200, &file, false),
            (RequestKind::Plain, 200, &call, false),
            (RequestKind::EventStream, 200, &events, true),
            (RequestKind::EventStream, 200, &file, false),
            (RequestKind::Plain, 200, &events, true),
            (RequestKind::Plain, 200, &file, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            assert_eq!(kind.becomes_stream(status, response), stream);
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
            ("accept", "application/grpc", RequestKind::Plain),
            ("content-type", "text/event-stream", RequestKind::Plain),
        ] {
            assert_eq!(kind_of(field, value), kind, "{field}: {value}");
        }
    }

    const HANDSHAKE: [(&str, &str); 3] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    fn opens_websocket(
        method: Method,
        version: Version,
        fields: &[(&'static str, &'static str)],
    ) -> bool {
        let headers: HeaderMap = fields
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect();
        is_websocket_handshake(&method, version, &headers)
    }

    #[test]
    fn only_the_whole_handshake_opens_a_websocket() {
        assert!(opens_websocket(Method::GET, Version::HTTP_11, &HANDSHAKE));
        assert!(!opens_websocket(Method::POST, Version::HTTP_11, &HANDSHAKE));
        assert!(!opens_websocket(Method::GET, Version::HTTP_10, &HANDSHAKE));
        for missing in 0..HANDSHAKE.len() {
            let mut fields = HANDSHAKE.to_vec();
            fields.remove(missing);
            assert!(
                !opens_websocket(Method::GET, Version::HTTP_11, &fields),
                "{fields:?}"
            );
        }
    }

    #[test]
    fn a_handshake_that_announces_a_body_is_a_plain_request() {
        for (name, value, expected) in [
            ("content-length", "5", false),
            ("transfer-encoding", "chunked", false),
            ("content-length", "0", true),
        ] {
            let fields = [&HANDSHAKE[..], &[(name, value)]].concat();
            let opens = opens_websocket(Method::GET, Version::HTTP_11, &fields);
            assert_eq!(opens, expected, "{name}: {value}");
        }
    }

    #[test]
    fn another_protocol_opens_no_websocket() {
        for protocol in ["h2c", "websocket, h2c", "websockets", ""] {
            let mut fields = HANDSHAKE;
            fields[1].1 = protocol;
            assert!(
                !opens_websocket(Method::GET, Version::HTTP_11, &fields),
                "{protocol}"
            );
        }
    }
}
