//! Which requests ask for a WebSocket (RFC 6455 §4.1).
//!
//! Pingora takes `Upgrade: websocket` alone for one; a tunnel is opened only for the whole
//! handshake, and anything less goes on as the plain request it also is.

use http::{HeaderMap, Method, Version, header};

use crate::request::header_list::members;
use crate::request::http1::announces_body;

/// Returns `true` for a complete WebSocket handshake. One that announces a body is a plain request: the
/// service answers it before it came, or never.
pub(crate) fn asks_for_websocket(method: &Method, version: Version, headers: &HeaderMap) -> bool {
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
        asks_for_websocket(&method, version, &headers)
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
