//! Refuses what two HTTP parsers could read differently: the seed of every request smuggling.
//!
//! [`check`] reads the header block of HTTP/1 as it arrived. Libraries tidy it up (drop `Content-Length` beside
//! `Transfer-Encoding`, fold `3, 3` into `3`, take a bare LF for a line end), and whoever stands in front of
//! us or behind us must not guess what was there. HTTP/2 has no such block: [`check_fields`] reads its fields.
//! [`requests::Requests`] finds the blocks, and the chunks of bodies, in the bytes of a connection.

pub mod body;
mod chunks;
pub mod requests;
pub mod responses;

use memchr::{memchr, memchr_iter};

use super::header_alias::cgi_equal;
use crate::rejection::Rejection;

/// How the end of a body is found, where the head leaves no doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// So many bytes; none where the head names no length.
    Length(u64),
    /// By the body itself.
    Chunked,
}

/// Checks a header block, which ends in its final empty line.
///
/// # Errors
/// [`Rejection::RequestFraming`]; [`Rejection::RequestMalformed`] for a request line that has not three parts.
pub fn check(raw: &[u8]) -> Result<Body, Rejection> {
    if has_bare_line_feed(raw, 0) {
        return Err(Rejection::RequestFraming);
    }
    let block = raw.trim_ascii_start();
    let first = lines(block).next().unwrap_or_default();
    let request_line = first.strip_suffix(b"\r").unwrap_or(first);
    if !has_three_parts(request_line) {
        return Err(Rejection::RequestMalformed);
    }
    match check_fields(fields(block))? {
        // HTTP/1.0 knows no transfer codings.
        Some(Body::Chunked) if !request_line.ends_with(b" HTTP/1.1") => {
            Err(Rejection::RequestFraming)
        }
        framed => Ok(framed.unwrap_or(Body::Length(0))),
    }
}

/// Checks fields by name and value, as they also come one by one (HTTP/2). `None`: no field says how long
/// the body is. It takes `Transfer-Encoding: chunked`, which HTTP/2 does not know (RFC 9113 §8.2.2): whoever
/// asks for HTTP/2 refuses that field before.
///
/// # Errors
/// [`Rejection::RequestFraming`].
pub fn check_fields<'h>(
    fields: impl IntoIterator<Item = (&'h str, &'h [u8])>,
) -> Result<Option<Body>, Rejection> {
    let mut framed = None;
    for (name, value) in fields {
        let Some(framing) = Framing::named(name) else {
            continue;
        };
        // At most one field says how long the body is, in the only spelling everybody agrees on.
        let body = framing.read(name, value).filter(|_| framed.is_none());
        framed = Some(body.ok_or(Rejection::RequestFraming)?);
    }
    Ok(framed)
}

/// Whether a line ends in LF alone, at or after `from`. A head that arrives in pieces has to be asked each
/// time: what is let through up to such a line is a whole request for some parsers.
#[must_use]
pub fn has_bare_line_feed(raw: &[u8], from: usize) -> bool {
    memchr_iter(b'\n', raw.get(from..).unwrap_or_default())
        .any(|at| !matches!(raw.get(..from + at), Some([.., b'\r'])))
}

/// A blank more, and some parsers take the target to end earlier than others (RFC 9112 §3).
fn has_three_parts(request_line: &[u8]) -> bool {
    let blanks = request_line
        .iter()
        .filter(|byte| byte.is_ascii_whitespace());
    blanks.map(|&byte| byte == b' ').eq([true, true])
}

/// Name and trimmed value of each header line, after the request line.
fn fields(block: &[u8]) -> impl Iterator<Item = (&str, &[u8])> {
    lines(block).skip(1).filter_map(|line| {
        let (name, value) = line.split_at(memchr(b':', line)?);
        Some((
            std::str::from_utf8(name).ok()?,
            value.get(1..)?.trim_ascii(),
        ))
    })
}

/// What stands between the line feeds.
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
    /// Finds look-alikes too: `Content_Length` is `CONTENT_LENGTH` for whoever speaks CGI.
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
            Self::ContentLength => length(value).map(Body::Length),
            // Libraries forward `gzip, chunked` as `chunked`.
            Self::TransferEncoding => value
                .eq_ignore_ascii_case(b"chunked")
                .then_some(Body::Chunked),
        }
    }
}

/// Digits alone: `parse` takes a sign as well.
fn length(value: &[u8]) -> Option<u64> {
    let digits = value.iter().all(u8::is_ascii_digit).then_some(value)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(fields: &str) -> String {
        format!("POST /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
    }

    #[test]
    fn one_plain_framing_field_is_fine_and_so_is_none() {
        for (fields, body) in [
            ("", Body::Length(0)),
            ("Content-Length: 0\r\n", Body::Length(0)),
            ("content-length:3 \r\n", Body::Length(3)),
            (
                "Content-Length: 0018446744073709551615\r\n",
                Body::Length(u64::MAX),
            ),
            ("Transfer-Encoding: chunked\r\n", Body::Chunked),
            ("TRANSFER-ENCODING: Chunked\r\n", Body::Chunked),
            (
                "Content-Type: a:b\r\nX-Content-Length: 3, 3\r\n",
                Body::Length(0),
            ),
        ] {
            assert_eq!(check(with(fields).as_bytes()), Ok(body), "{fields:?}");
        }
        let after_an_empty_line = b"\r\nPOST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(check(after_an_empty_line), Ok(Body::Chunked));
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        for fields in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
            "Content-Length: 3\r\nContent-Length: 3\r\n",
            "Content-Length: 3, 3\r\n",
            "Content-Length: +3\r\n",
            "Content-Length: 0x3\r\n",
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
            let judged = check(with(fields).as_bytes());
            assert_eq!(judged, Err(Rejection::RequestFraming), "{fields:?}");
        }
        for raw in [
            "POST /a HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            let judged = check(raw.as_bytes());
            assert_eq!(judged, Err(Rejection::RequestFraming), "{raw:?}");
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
            let judged = check(format!("{line}\r\nHost: a\r\n\r\n").as_bytes());
            assert_eq!(judged, Err(Rejection::RequestMalformed), "{line:?}");
        }
    }

    #[test]
    fn a_piece_is_looked_at_together_with_what_came_before() {
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
