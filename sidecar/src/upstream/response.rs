//! Corrections of a response head for a client of HTTP/2. Everything else stays unchanged.

use http::{HeaderName, StatusCode, Version, header};
use pingora::http::ResponseHeader;
use pingora::{Error, ErrorType};
use wire::http::framing::responses::ResponseFraming;

use crate::request::header_list::connection_headers;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Removes the fields of the connection to the service (RFC 9110 §7.6.1), and those that frame no
/// body.
pub(crate) fn correct(head: &mut ResponseHeader) {
    // Pingora sets the fields that frame the body.
    let frames =
        |name: &HeaderName| *name == header::CONTENT_LENGTH || *name == header::TRANSFER_ENCODING;
    for name in connection_headers(&head.headers)
        .into_iter()
        .filter(|name| !frames(name))
    {
        head.remove_header(&name);
    }
    head.remove_header(&KEEP_ALIVE);
    // Trailers go from HTTP/2 to HTTP/2 alone.
    if head.version != Version::HTTP_2 {
        head.remove_header(&header::TRAILER);
    }
    let is_interim = head.status.is_informational();
    if is_interim {
        // Pingora sets it in final responses alone.
        head.remove_header(&header::CONNECTION);
    }
    // RFC 9110 §8.6 and RFC 9112 §6.1: a recipient could wait for a body.
    if is_interim || head.status == StatusCode::NO_CONTENT {
        head.remove_header(&header::CONTENT_LENGTH);
        head.remove_header(&header::TRANSFER_ENCODING);
    }
}

/// Checks the framing of the body, and replaces `Content-Length: 2, 2` by one value (RFC 9110 §8.6),
/// as Pingora reads it.
///
/// # Errors
/// [`ErrorType::InvalidHTTPHeader`] for an ambiguous length or coding: the next bytes could be the
/// begin of another response.
pub(crate) fn check_framing(head: &mut ResponseHeader) -> pingora::Result<()> {
    let fields = head.headers.iter();
    let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
    let framing = ResponseFraming::read(fields, false)
        .map_err(|_| Error::new_up(ErrorType::InvalidHTTPHeader))?;
    let length = head.headers.get(header::CONTENT_LENGTH);
    let Some(length) = length.filter(|_| framing.is_doubtful) else {
        return Ok(());
    };
    let length = first_length(length.as_bytes()).to_vec();
    head.insert_header(header::CONTENT_LENGTH, length)
}

/// Returns the first of several equal lengths.
pub(crate) fn first_length(value: &[u8]) -> &[u8] {
    let first = value.split(|&byte| byte == b',').next();
    first.unwrap_or_default().trim_ascii()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn left(status: u16, fields: &[(&'static str, &str)]) -> Vec<String> {
        let mut head = ResponseHeader::build(status, None).unwrap();
        for (name, value) in fields {
            head.append_header(*name, *value).unwrap();
        }
        correct(&mut head);
        head.headers.keys().map(ToString::to_string).collect()
    }

    const FIELDS: [(&str, &str); 8] = [
        ("Trailer", "X-End"),
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
        let mut left = left(200, &FIELDS);
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
            let length = check_framing(&mut head).ok();
            let length = length.map(|()| head.headers[header::CONTENT_LENGTH].clone());
            assert_eq!(
                length.as_ref().map(|length| length.to_str().unwrap()),
                unified,
                "{value}"
            );
        }
    }

    #[test]
    fn a_coding_other_than_chunked_is_rejected() {
        for (coding, is_accepted) in [
            ("chunked", true),
            ("Chunked", true),
            ("gzip, chunked", false),
            ("x: chunked", false),
            ("identity", false),
        ] {
            let mut head = ResponseHeader::build(200, None).unwrap();
            head.insert_header("Transfer-Encoding", coding).unwrap();
            assert_eq!(check_framing(&mut head).is_ok(), is_accepted, "{coding}");
        }
    }

    #[test]
    fn repeated_lengths_become_one_and_others_are_rejected() {
        for (values, unified) in [
            (["2", "2"], Some("2")),
            (["2", "3"], None),
            (["2", "2, 2"], Some("2")),
        ] {
            let mut head = ResponseHeader::build(200, None).unwrap();
            for value in values {
                head.append_header("Content-Length", value).unwrap();
            }
            assert_eq!(
                check_framing(&mut head).is_ok(),
                unified.is_some(),
                "{values:?}"
            );
            if let Some(unified) = unified {
                let lengths: Vec<_> = head.headers.get_all("content-length").iter().collect();
                assert_eq!(lengths, [unified]);
            }
        }
    }

    #[test]
    fn a_response_without_a_body_announces_none() {
        let fields = [
            ("Transfer-Encoding", "chunked"),
            ("Content-Length", "5"),
            ("Connection", "close"),
        ];
        for (status, expected) in [(103, 0), (204, 1), (200, 3), (304, 3)] {
            let left = left(status, &fields);
            assert_eq!(left.len(), expected, "{status}");
        }
    }
}
