//! The few corrections that the service's answer needs to be right for another connection than the
//! one it came over. Everything else stays as it is.

use http::{HeaderName, StatusCode, Version, header};
use pingora::http::ResponseHeader;

use crate::fields::nominated;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Removes what belongs to the connection to the service (RFC 9110 §7.6.1), and what the client's
/// version does not know.
pub(crate) fn correct(head: &mut ResponseHeader, client: Version) {
    // The handshake of a tunnel is about both connections at once.
    if head.status != StatusCode::SWITCHING_PROTOCOLS {
        // Those that frame the body are Pingora's to decide.
        let frames = |name: &HeaderName| {
            *name == header::CONTENT_LENGTH || *name == header::TRANSFER_ENCODING
        };
        for name in nominated(&head.headers)
            .into_iter()
            .filter(|name| !frames(name))
        {
            head.remove_header(&name);
        }
        head.remove_header(&KEEP_ALIVE);
    }
    // RFC 9112 §6.1: never to HTTP/1.0; the body then ends with the connection.
    if client == Version::HTTP_10 {
        head.remove_header(&header::TRANSFER_ENCODING);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn left(status: u16, client: Version, fields: &[(&'static str, &str)]) -> Vec<String> {
        let mut head = ResponseHeader::build(status, None).unwrap();
        for (name, value) in fields {
            head.append_header(*name, *value).unwrap();
        }
        correct(&mut head, client);
        head.headers.keys().map(ToString::to_string).collect()
    }

    const FIELDS: [(&str, &str); 7] = [
        ("Server", "x"),
        ("Connection", "Keep-Alive, Upgrade"),
        ("Connection", "x-hop, transfer-encoding"),
        ("Keep-Alive", "timeout=5"),
        ("Upgrade", "h2c"),
        ("X-Hop", "1"),
        ("Transfer-Encoding", "chunked"),
    ];

    #[test]
    fn what_belongs_to_the_other_connection_is_removed() {
        let expected = ["server", "connection", "transfer-encoding"];
        let mut left = left(200, Version::HTTP_11, &FIELDS);
        left.sort_unstable_by_key(|name| expected.iter().position(|other| other == name));
        assert_eq!(left, expected);
    }

    #[test]
    fn a_handshake_is_left_alone() {
        assert_eq!(left(101, Version::HTTP_11, &FIELDS).len(), 6);
    }

    #[test]
    fn http_1_0_gets_no_transfer_encoding() {
        let fields = [("Transfer-Encoding", "chunked")];
        assert!(left(200, Version::HTTP_10, &fields).is_empty());
        assert_eq!(left(200, Version::HTTP_11, &fields).len(), 1);
    }
}
