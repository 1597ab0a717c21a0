//! Checks for framing that two HTTP parsers could read differently: the basis of request smuggling.
//!
//! [`check`] reads the raw header block of HTTP/1, because libraries normalise it: they drop
//! `Content-Length` beside `Transfer-Encoding`, fold `3, 3` into `3`, take a bare LF for a line
//! end. [`check_fields`] reads the fields of HTTP/2, and [`requests::RequestBoundaries`] finds header blocks
//! and chunks in the bytes of a connection.

pub mod body;
mod chunks;
pub mod head_search;
pub mod requests;
pub mod responses;
pub mod unread;

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use memchr::{memchr, memchr_iter};

use crate::header_alias::cgi_equal;
use crate::invalid::InvalidRequest;

/// The unambiguous framing of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// The number of bytes; 0 where the head names no length.
    Length(u64),
    /// Chunks, the last of which ends the body.
    Chunked,
}

/// A run of body data within received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of framing before the data.
    pub skipped: usize,
    /// Bytes of data.
    pub data: usize,
}

/// Checks a header block, which ends in its final empty line.
///
/// # Errors
/// [`InvalidRequest::Framing`]; [`InvalidRequest::Malformed`] for a request line without three
/// parts.
pub fn check(raw: &[u8]) -> Result<Body, InvalidRequest> {
    // Before the lines are split: a bare LF ends a line, or the head, for some parsers only.
    if has_bare_line_feed(raw, 0) {
        return Err(InvalidRequest::Framing);
    }
    // Empty lines may precede the request line (RFC 9112 §2.2).
    let block = raw.trim_ascii_start();
    let first = lines(block).next().unwrap_or_default();
    let request_line = first.strip_suffix(b"\r").unwrap_or(first);
    if !has_three_parts(request_line) {
        return Err(InvalidRequest::Malformed);
    }
    match check_fields(fields(block))? {
        // HTTP/1.0 has no transfer codings.
        Some(Body::Chunked) if !request_line.ends_with(b" HTTP/1.1") => {
            Err(InvalidRequest::Framing)
        }
        framed => Ok(framed.unwrap_or(Body::Length(0))),
    }
}

/// Returns true if the fields of HTTP/1 announce a body; a length of zero does not.
pub fn announces_body(headers: &HeaderMap) -> bool {
    if headers.contains_key(TRANSFER_ENCODING) {
        return true;
    }
    match headers.get(CONTENT_LENGTH) {
        Some(length) => length.as_bytes().iter().any(|&digit| digit != b'0'),
        None => false,
    }
}

/// Checks fields by name and value, as HTTP/2 delivers them; `None` if no field frames the body. It
/// accepts `Transfer-Encoding: chunked`: callers for HTTP/2, which forbids the field (RFC 9113
/// §8.2.2), reject it first.
///
/// # Errors
/// [`InvalidRequest::Framing`].
pub fn check_fields<'h>(
    fields: impl IntoIterator<Item = (&'h str, &'h [u8])>,
) -> Result<Option<Body>, InvalidRequest> {
    let mut framed = None;
    for (name, value) in fields {
        let Some(framing) = Framing::named(name) else {
            continue;
        };
        // At most one field gives the length of the body, in the only spelling that all parsers
        // read alike.
        if framed.is_some() {
            return Err(InvalidRequest::Framing);
        }
        framed = Some(framing.read(name, value).ok_or(InvalidRequest::Framing)?);
    }
    Ok(framed)
}

/// Returns true for a byte of a token (RFC 9110 §5.6.2).
#[must_use]
pub const fn is_tchar(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z')
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// Returns true if a line at or after `from` ends in LF alone. Callers check each piece of a head,
/// because a piece up to such a line is a whole request for some parsers.
#[must_use]
pub fn has_bare_line_feed(raw: &[u8], from: usize) -> bool {
    memchr_iter(b'\n', raw.get(from..).unwrap_or_default())
        .any(|at| !matches!(raw.get(..from + at), Some([.., b'\r'])))
}

/// Returns true for exactly two blanks: with more, parsers disagree about the end of the target
/// (RFC 9112 §3).
fn has_three_parts(request_line: &[u8]) -> bool {
    request_line
        .iter()
        .filter(|byte| byte.is_ascii_whitespace())
        .map(|&byte| byte == b' ')
        .eq([true, true])
}

/// Returns name and trimmed value of each header line, after the request line.
fn fields(block: &[u8]) -> impl Iterator<Item = (&str, &[u8])> {
    lines(block).skip(1).filter_map(|line| {
        // A line without a colon, or with a name that is not ASCII, frames nothing here; the parser of the
        // head rejects it.
        let (name, value) = line.split_at(memchr(b':', line)?);
        Some((
            std::str::from_utf8(name).ok()?,
            value.get(1..)?.trim_ascii(),
        ))
    })
}

/// Splits a block at its line feeds.
fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(block);
    std::iter::from_fn(move || {
        let block = rest?;
        let (line, tail) = match memchr(b'\n', block) {
            Some(end) => (block.get(..end)?, block.get(end + 1..)),
            None => (block, None),
        };
        rest = tail;
        Some(line)
    })
}

#[derive(Clone, Copy)]
enum Framing {
    ContentLength,
    TransferEncoding,
}

impl Framing {
    /// Finds aliases too: CGI programs read `Content_Length` as `CONTENT_LENGTH`.
    fn named(name: &str) -> Option<Self> {
        [Self::ContentLength, Self::TransferEncoding]
            .into_iter()
            .find(|framing| cgi_equal(name, framing.name()))
    }

    const fn name(self) -> &'static str {
        match self {
            Self::ContentLength => "content-length",
            Self::TransferEncoding => "transfer-encoding",
        }
    }

    fn read(self, name: &str, value: &[u8]) -> Option<Body> {
        if !name.eq_ignore_ascii_case(self.name()) {
            return None;
        }
        match self {
            // `010` would be eight to a parser that takes it for octal.
            Self::ContentLength if matches!(value, [b'0', _, ..]) => None,
            Self::ContentLength => Some(Body::Length(length(value)?)),
            Self::TransferEncoding if value.eq_ignore_ascii_case(b"chunked") => Some(Body::Chunked),
            // Libraries forward `gzip, chunked` as `chunked`.
            Self::TransferEncoding => None,
        }
    }
}

/// Parses digits alone: `parse` accepts a sign too.
fn length(value: &[u8]) -> Option<u64> {
    if !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(fields: &str) -> String {
        format!("POST /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
    }

    #[test]
    fn one_plain_framing_field_or_no_field_is_fine() {
        let longest = format!("Content-Length: {}\r\n", u64::MAX);
        for (fields, body) in [
            ("", Body::Length(0)),
            ("Content-Length: 0\r\n", Body::Length(0)),
            ("content-length:3 \r\n", Body::Length(3)),
            (&*longest, Body::Length(u64::MAX)),
            ("Transfer-Encoding: chunked\r\n", Body::Chunked),
            ("TRANSFER-ENCODING: Chunked\r\n", Body::Chunked),
            ("X: a:b\r\nX-Content-Length: 3, 3\r\n", Body::Length(0)),
        ] {
            assert_eq!(check(with(fields).as_bytes()), Ok(body), "{fields:?}");
        }
        let after_an_empty_line = b"\r\nPOST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(check(after_an_empty_line), Ok(Body::Chunked));
    }

    #[test]
    fn ambiguous_framing_is_rejected() {
        for fields in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
            "Content-Length: 3\r\nContent-Length: 3\r\n",
            "Content-Length: 3, 3\r\n",
            "Content-Length: +3\r\n",
            "Content-Length: 0x3\r\n",
            "Content-Length: 03\r\n",
            "Content-Length: 00\r\n",
            "Content-Length: 18446744073709551616\r\n",
            "Content-Length:\r\n",
            "Content_Length: 3\r\n",
            "content.length: 3\r\n",
            "Transfer_Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: \x0bchunked\r\n",
            "X: a\nY: b\r\n",
            "X: a\n",
        ] {
            let checked = check(with(fields).as_bytes());
            assert_eq!(checked, Err(InvalidRequest::Framing), "{fields:?}");
        }
        for raw in [
            "POST /a HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            let checked = check(raw.as_bytes());
            assert_eq!(checked, Err(InvalidRequest::Framing), "{raw:?}");
        }
    }

    #[test]
    fn a_request_line_has_three_parts() {
        for line in [
            "GET /a b HTTP/1.1",
            "GET /a\tb HTTP/1.1",
            "GET /a\x0cb HTTP/1.1",
            "GET  /a HTTP/1.1",
            "GET /a  HTTP/1.1",
            "GET /a HTTP/1.1 ",
            "GET\t/a HTTP/1.1",
            "GET /a\rb HTTP/1.1",
            "GET /a",
            "GET",
        ] {
            let checked = check(format!("{line}\r\nHost: a\r\n\r\n").as_bytes());
            assert_eq!(checked, Err(InvalidRequest::Malformed), "{line:?}");
        }
    }

    #[test]
    fn a_token_has_the_characters_of_rfc_9110() {
        let tokens = (0..=u8::MAX).filter(|byte| is_tchar(*byte));
        let tokens: String = tokens.map(char::from).collect();
        let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let lower = letters.to_lowercase();
        assert_eq!(tokens, format!("!#$%&'*+-.0123456789{letters}^_`{lower}|~"));
    }

    #[test]
    fn a_piece_is_read_together_with_what_came_before() {
        for (raw, from, bare) in [
            ("GET / HTTP/1.1\r\n", 15, false),
            ("GET / HTTP/1.1\n", 14, true),
            ("a\nb", 2, false),
            ("\n", 0, true),
            ("", 3, false),
        ] {
            assert_eq!(has_bare_line_feed(raw.as_bytes(), from), bare, "{raw:?}");
        }
    }
}
