//! Corrections of a response head for the client's connection. Everything else stays unchanged.

use http::{HeaderName, StatusCode, Version, header};
use pingora::http::ResponseHeader;
use pingora::{Error, ErrorType};

use crate::request::header_list::connection_headers;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Removes the fields of the connection to the service (RFC 9110 §7.6.1), and those that the
/// client's HTTP version lacks.
pub(crate) fn correct(head: &mut ResponseHeader, client: Version) {
    // The handshake of a tunnel applies to both connections.
    if head.status != StatusCode::SWITCHING_PROTOCOLS {
        // Pingora sets the fields that frame the body.
        let frames = |name: &HeaderName| {
            *name == header::CONTENT_LENGTH || *name == header::TRANSFER_ENCODING
        };
        for name in connection_headers(&head.headers)
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

/// Replaces `Content-Length: 2, 2` by one value (RFC 9110 §8.6), as Pingora reads it.
///
/// # Errors
/// [`ErrorType::InvalidHTTPHeader`] for an invalid length or several: the next bytes could be the
/// begin of another response.
pub(crate) fn unify_length(head: &mut ResponseHeader) -> pingora::Result<()> {
    let Some(value) = head.headers.get(header::CONTENT_LENGTH) else {
        return Ok(());
    };
    let is_length = |length: &[u8]| !length.is_empty() && length.iter().all(u8::is_ascii_digit);
    if is_length(value.as_bytes()) {
        return Ok(());
    }
    let mut lengths = value.as_bytes().split(|&byte| byte == b',');
    let first = lengths.next().unwrap_or_default().trim_ascii();
    if !is_length(first) || lengths.any(|length| length.trim_ascii() != first) {
        return Err(Error::new_up(ErrorType::InvalidHTTPHeader));
    }
    let length = first.to_vec();
    head.insert_header(header::CONTENT_LENGTH, length)
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
    fn fields_of_the_other_connection_are_removed() {
        let expected = ["server", "connection", "transfer-encoding"];
        let mut left = left(200, Version::HTTP_11, &FIELDS);
        left.sort_unstable_by_key(|name| expected.iter().position(|other| other == name));
        assert_eq!(left, expected);
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
        ] {
            let mut head = ResponseHeader::build(200, None).unwrap();
            head.insert_header("Content-Length", value).unwrap();
            let length = unify_length(&mut head).ok();
            let length = length.map(|()| head.headers[header::CONTENT_LENGTH].clone());
            assert_eq!(
                length.as_ref().map(|length| length.to_str().unwrap()),
                unified,
                "{value}"
            );
        }
    }

    #[test]
    fn a_handshake_is_not_changed() {
        assert_eq!(left(101, Version::HTTP_11, &FIELDS).len(), 6);
    }

    #[test]
    fn http_1_0_gets_no_transfer_encoding() {
        let fields = [("Transfer-Encoding", "chunked")];
        assert!(left(200, Version::HTTP_10, &fields).is_empty());
        assert_eq!(left(200, Version::HTTP_11, &fields).len(), 1);
    }
}
