//! What kind of kind a request begins: this decides how its connections are used.

use http::{HeaderMap, Method, StatusCode, Version, header};

use crate::request::header_list::members;
use crate::request::http1::announces_body;

/// Ends a gRPC call, in a trailer or in a head that nothing follows.
const GRPC_STATUS: &str = "grpc-status";

/// One request's way to the service and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// One request, one answer.
    Plain,
    /// Server-sent events: an answer without an end, silent for long.
    EventStream,
    /// gRPC: once the answer has begun, both sides may speak for as long as they like.
    Grpc,
    /// A tunnel.
    WebSocket,
}

impl RequestKind {
    /// What the head of a request asks for.
    pub(crate) fn of(method: &Method, version: Version, headers: &HeaderMap) -> Self {
        if is_websocket_handshake(method, version, headers) {
            Self::WebSocket
        } else if *method == Method::POST
            && version == Version::HTTP_2
            && has_media_type(headers, &header::CONTENT_TYPE, is_grpc)
        {
            Self::Grpc
        } else if has_media_type(headers, &header::ACCEPT, is_event_stream) {
            Self::EventStream
        } else {
            Self::Plain
        }
    }

    /// Whether what `answer` begins is a stream, which ends with the token: no other body does.
    pub(crate) fn becomes_stream(self, status: StatusCode, answer: &HeaderMap) -> bool {
        match self {
            Self::WebSocket => status == StatusCode::SWITCHING_PROTOCOLS,
            // A head that says how the call ended is the whole answer.
            Self::Grpc => {
                has_media_type(answer, &header::CONTENT_TYPE, |essence| {
                    is_grpc(essence) || is_event_stream(essence)
                }) && !answer.contains_key(GRPC_STATUS)
            }
            Self::EventStream | Self::Plain => {
                has_media_type(answer, &header::CONTENT_TYPE, is_event_stream)
            }
        }
    }
}

fn has_media_type(
    headers: &HeaderMap,
    field: &header::HeaderName,
    is: impl Fn(&[u8]) -> bool,
) -> bool {
    members(headers, field).any(|member| is(essence(member)))
}

/// The media type without its parameters.
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

/// `application/grpc`, perhaps with a suffix for the message format; not `grpc-web`, which is one
/// exchange to everybody on the way.
fn is_grpc(essence: &[u8]) -> bool {
    const NAME: &[u8] = b"application/grpc";
    essence
        .split_at_checked(NAME.len())
        .is_some_and(|(name, suffix)| {
            name.eq_ignore_ascii_case(NAME) && matches!(suffix.first(), None | Some(b'+'))
        })
}

/// Returns `true` for a complete WebSocket handshake (RFC 6455 §4.1): a tunnel is opened for nothing less,
/// where Pingora takes `Upgrade: websocket` alone for one. One that announces a body is a plain request: the
/// service answers it before it came, or never.
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
    fn tunnels_calls_and_events_are_streams_and_downloads_are_not() {
        let answer = |value: &'static str| {
            let fields = [(header::CONTENT_TYPE, HeaderValue::from_static(value))];
            fields.into_iter().collect::<HeaderMap>()
        };
        let (events, file) = (
            answer("text/event-stream; charset=utf-8"),
            answer("video/mp4"),
        );
        let call = answer("application/grpc+proto");
        let mut refused_call = call.clone();
        refused_call.insert(GRPC_STATUS, HeaderValue::from_static("12"));
        for (kind, status, answer, stream) in [
            (RequestKind::WebSocket, 101, &file, true),
            (RequestKind::WebSocket, 200, &file, false),
            (RequestKind::Grpc, 200, &call, true),
            (RequestKind::Grpc, 200, &refused_call, false),
            (RequestKind::Grpc, 200, &events, true),
            (RequestKind::Grpc, 200, &file, false),
            (RequestKind::Plain, 200, &call, false),
            (RequestKind::EventStream, 200, &events, true),
            (RequestKind::EventStream, 200, &file, false),
            (RequestKind::Plain, 200, &events, true),
            (RequestKind::Plain, 200, &file, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            assert_eq!(kind.becomes_stream(status, answer), stream);
        }
    }

    #[test]
    fn the_media_types_tell() {
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

    fn asks(method: Method, version: Version, fields: &[(&'static str, &'static str)]) -> bool {
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
    fn only_the_whole_handshake_is_one() {
        assert!(asks(Method::GET, Version::HTTP_11, &HANDSHAKE));
        assert!(!asks(Method::POST, Version::HTTP_11, &HANDSHAKE));
        assert!(!asks(Method::GET, Version::HTTP_10, &HANDSHAKE));
        for missing in 0..HANDSHAKE.len() {
            let mut fields = HANDSHAKE.to_vec();
            fields.remove(missing);
            assert!(!asks(Method::GET, Version::HTTP_11, &fields), "{fields:?}");
        }
    }

    #[test]
    fn a_handshake_that_announces_a_body_is_none() {
        for (name, value, is_one) in [
            ("content-length", "5", false),
            ("transfer-encoding", "chunked", false),
            ("content-length", "0", true),
        ] {
            let fields = [&HANDSHAKE[..], &[(name, value)]].concat();
            let asks = asks(Method::GET, Version::HTTP_11, &fields);
            assert_eq!(asks, is_one, "{name}: {value}");
        }
    }

    #[test]
    fn another_protocol_is_not() {
        for protocol in ["h2c", "websocket, h2c", "websockets", ""] {
            let mut fields = HANDSHAKE;
            fields[1].1 = protocol;
            assert!(!asks(Method::GET, Version::HTTP_11, &fields), "{protocol}");
        }
    }
}
