//! The framing of response bodies (RFC 9112 §6.3).

use super::body::BodyReader;
use super::{Body, length};

/// The framing of a response's body, according to its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseFraming {
    /// The reader of the body.
    pub body: BodyReader,
    /// The length in the head, for the next recipient. `None` for chunks.
    pub length: Option<u64>,
    /// True if recipients could disagree: the connection must not carry another response.
    pub is_doubtful: bool,
    /// True for a response without a body whose `Content-Length` or `Transfer-Encoding` is invalid: the next
    /// recipient gets neither.
    pub has_invalid_fields: bool,
}

/// The field and the rule for which the framing of a response is ambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmbiguousResponse {
    /// Something else than digits.
    #[error("Content-Length: no number")]
    Length,
    /// Lengths that are not written alike.
    #[error("Content-Length: two values")]
    Lengths,
    /// Another coding, alone or beside `chunked`.
    #[error("Transfer-Encoding: another coding than chunked")]
    Coding,
    /// `chunked` in two fields.
    #[error("Transfer-Encoding: it stands twice")]
    Codings,
}

impl ResponseFraming {
    /// Reads the fields of a response. `has_no_body` is true for 1xx, 204, 304 and responses to HEAD,
    /// whose fields describe a body that does not follow.
    ///
    /// # Errors
    /// [`AmbiguousResponse`] for different or invalid lengths, and for codings other than
    /// `chunked`, in a response that has a body.
    pub fn read<'h>(
        fields: impl IntoIterator<Item = (&'h str, &'h [u8])>,
        has_no_body: bool,
    ) -> Result<Self, AmbiguousResponse> {
        match Self::parse(fields) {
            Ok(framing) if has_no_body => Ok(Self {
                body: BodyReader::NONE,
                ..framing
            }),
            // RFC 9112 §6.3: it ends with its head, whatever these fields hold.
            Err(_) if has_no_body => Ok(Self {
                body: BodyReader::NONE,
                length: None,
                is_doubtful: true,
                has_invalid_fields: true,
            }),
            framing => framing,
        }
    }

    fn parse<'h>(
        fields: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    ) -> Result<Self, AmbiguousResponse> {
        let (mut named, mut is_chunked, mut is_doubtful) = (None::<(&[u8], u64)>, false, false);
        for (name, value) in fields {
            if name.eq_ignore_ascii_case("content-length") {
                is_doubtful |= named.is_some() || value.contains(&b',');
                for part in value.split(|&byte| byte == b',') {
                    let text = part.trim_ascii();
                    let length = length(text).ok_or(AmbiguousResponse::Length)?;
                    // Some recipients take `2` and `02` for equal, and others do not.
                    match named {
                        Some((former, _)) if former != text => {
                            return Err(AmbiguousResponse::Lengths);
                        }
                        _ => named = Some((text, length)),
                    }
                }
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                // After another coding the end of the body is not known.
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(AmbiguousResponse::Coding);
                }
                if is_chunked {
                    return Err(AmbiguousResponse::Codings);
                }
                is_chunked = true;
            }
        }
        // The coding counts (RFC 9112 §6.3), but such a response may be an attempt to smuggle another one.
        if is_chunked && named.take().is_some() {
            is_doubtful = true;
        }
        let named = named.map(|(_, length)| length);
        let body = match named {
            _ if is_chunked => BodyReader::new(Body::Chunked),
            Some(length) => BodyReader::new(Body::Length(length)),
            None => BodyReader::UNTIL_CLOSE,
        };
        Ok(Self {
            body,
            length: named,
            is_doubtful,
            has_invalid_fields: false,
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    type Fields = &'static [(&'static str, &'static str)];

    const LENGTH: (&str, &str) = ("Content-Length", "5");
    const CHUNKED: (&str, &str) = ("Transfer-Encoding", "chunked");

    fn read(fields: Fields, has_no_body: bool) -> Option<(BodyReader, Option<u64>, bool)> {
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        let framing = ResponseFraming::read(fields, has_no_body).ok()?;
        Some((framing.body, framing.length, framing.is_doubtful))
    }

    #[test]
    fn a_body_has_one_end_or_the_response_is_ambiguous() {
        let five = BodyReader::new(Body::Length(5));
        let chunked = BodyReader::new(Body::Chunked);
        let of_five = |is_doubtful| Some((five, Some(5), is_doubtful));
        let of_chunks = |is_doubtful| Some((chunked, None, is_doubtful));
        let rows: [(Fields, _); 14] = [
            (&[], Some((BodyReader::UNTIL_CLOSE, None, false))),
            (&[LENGTH], of_five(false)),
            (&[("content-length", "5, 5")], of_five(true)),
            (&[LENGTH, LENGTH], of_five(true)),
            (&[("Transfer-Encoding", "Chunked")], of_chunks(false)),
            (&[LENGTH, CHUNKED], of_chunks(true)),
            (&[("Content-Length", "5, 6")], None),
            (&[("Content-Length", "5, 05")], None),
            (&[LENGTH, ("Content-Length", "6")], None),
            (&[("Content-Length", "")], None),
            (&[("Content-Length", "+5")], None),
            (&[("Content-Length", "18446744073709551616")], None),
            (&[("Transfer-Encoding", "gzip, chunked")], None),
            (&[CHUNKED, CHUNKED], None),
        ];
        for (fields, expected) in rows {
            assert_eq!(read(fields, false), expected, "{fields:?}");
        }
    }

    #[test]
    fn a_response_without_a_body_may_name_a_length() {
        let head = read(&[("Content-Length", "5")], true);
        assert_eq!(head, Some((BodyReader::NONE, Some(5), false)));
        assert_eq!(read(&[], true), Some((BodyReader::NONE, None, false)));
        for fields in [
            [("Content-Length", "-1")],
            [("Content-Length", "")],
            [("Content-Length", "5, 6")],
            [("Transfer-Encoding", "gzip, chunked")],
        ] {
            let fields = fields.map(|(name, value)| (name, value.as_bytes()));
            let framing = ResponseFraming::read(fields, true).unwrap();
            assert_eq!((framing.body, framing.length), (BodyReader::NONE, None));
            assert!(framing.is_doubtful && framing.has_invalid_fields);
        }
    }
}
