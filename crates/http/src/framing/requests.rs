//! The boundaries of requests on a connection, so that each request is checked as it arrived: libraries
//! normalise bytes that a proxy in front may have read differently.

use memchr::memmem;

use super::body::BodyReader;
use super::{check, has_bare_line_feed};
use crate::invalid::InvalidRequest;

const END: &[u8] = b"\r\n\r\n";

/// A check of the bytes of one HTTP/1 connection. The caller bounds the length of a head.
#[derive(Debug, Default)]
pub struct RequestBoundaries {
    /// The received part of an unfinished head.
    head: Vec<u8>,
    /// The unfinished body of the last head.
    body: Option<BodyReader>,
    heads: u64,
}

/// A rejection within the received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramingError {
    /// The number of bytes that may be read before the rejected ones; of a body the bytes up to its last
    /// data.
    pub passed: usize,
    /// The reason.
    pub rejection: InvalidRequest,
}

impl RequestBoundaries {
    /// Checks the next received bytes.
    ///
    /// # Errors
    /// The first rejection. Callers check no bytes after it: they belong to no request.
    pub fn check(&mut self, received: &[u8]) -> Result<(), FramingError> {
        let mut passed = 0;
        // The bytes of one read may end a body, and hold whole requests after it.
        while let Some(rest @ [_, ..]) = received.get(passed..) {
            let taken = match &mut self.body {
                Some(body) => match body.next_piece(rest) {
                    Ok(piece) => Ok(piece.skipped + piece.data),
                    Err(_) => Err(InvalidRequest::Framing),
                },
                None => self.check_head(rest),
            };
            // Bytes before the rejected ones belong to checked requests, and may still be read.
            passed += taken.map_err(|rejection| FramingError { passed, rejection })?;
            if self.body.is_some_and(|body| body.is_done()) {
                self.body = None;
            }
        }
        Ok(())
    }

    /// Returns true if a head has begun and not ended.
    #[must_use]
    pub fn is_within_head(&self) -> bool {
        !self.head.iter().all(is_of_a_blank_line)
    }

    /// Returns true if all received requests are complete.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.body.is_none() && !self.is_within_head()
    }

    /// Returns the bytes that are kept for an unfinished head.
    #[must_use]
    pub const fn unfinished_head(&self) -> usize {
        self.head.capacity()
    }

    /// Returns the number of complete heads.
    #[must_use]
    pub const fn heads(&self) -> u64 {
        self.heads
    }

    /// Returns how much of `received` belongs to the head.
    fn check_head(&mut self, received: &[u8]) -> Result<usize, InvalidRequest> {
        if self.head.is_empty()
            && let Some(end) = end(received, 0)
        {
            // Most heads arrive at once and need no copy.
            self.begin_body(received.get(..end).unwrap_or_default())?;
            return Ok(end);
        }
        let before = self.head.len();
        self.head.extend_from_slice(received);
        let end = end(&self.head, before);
        // The bytes after the head are followed as its body or as the next head.
        self.head.truncate(end.unwrap_or(self.head.len()));
        // Searched in the joined head: the CR of a line end may be the last byte of the piece before.
        if has_bare_line_feed(&self.head, before) {
            return Err(InvalidRequest::Framing);
        }
        let taken = self.head.len() - before;
        if end.is_some() {
            let head = std::mem::take(&mut self.head);
            self.begin_body(&head)?;
        } else if !self.is_within_head() {
            // The head is checked already, but a line feed that may follow needs the byte before it.
            let is_cut = self.head.last() == Some(&b'\r');
            self.head.clear();
            self.head.extend(is_cut.then_some(b'\r'));
        }
        Ok(taken)
    }

    fn begin_body(&mut self, head: &[u8]) -> Result<(), InvalidRequest> {
        self.body = Some(BodyReader::new(check(head)?));
        self.heads += 1;
        Ok(())
    }
}

const fn is_of_a_blank_line(byte: &u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// Returns the end of the head, if it is after `seen`. Empty lines may precede it (RFC 9112 §2.2).
fn end(head: &[u8], seen: usize) -> Option<usize> {
    let start = head.iter().position(|byte| !is_of_a_blank_line(byte))?;
    // The end may have begun in the bytes that were searched before.
    let from = start.max(seen.saturating_sub(END.len() - 1));
    Some(from + memmem::find(head.get(from..)?, END)? + END.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMBIGUOUS: &str = "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n";

    /// Returns how many bytes pass when they arrive in pieces of `size` bytes, and true if another
    /// is rejected.
    fn passed(sent: &str, size: usize) -> (usize, bool) {
        let mut requests = RequestBoundaries::default();
        let mut before = 0;
        for piece in sent.as_bytes().chunks(size) {
            match requests.check(piece) {
                Ok(()) => before += piece.len(),
                Err(rejected) => {
                    assert_eq!(rejected.rejection, InvalidRequest::Framing);
                    return (before + rejected.passed, true);
                }
            }
        }
        (before, false)
    }

    const IN_ORDER: [&str; 9] = [
        "",
        "\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\na\n\nb",
        "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n\r\n\r\n",
        "\r\nPOST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx\r\nGET / HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\n\n\n\r\n0\r\nA: b\r\n\r\n\r\n",
    ];

    const CHUNKED: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    const LINE_FEED: &str = "GET / HTTP/1.1\r\nHost: a\n\n";

    #[test]
    fn what_is_rejected_is_found_however_it_arrives() {
        let bad_chunk = format!("{CHUNKED}2;\nxx\r\n0\r\n\r\n");
        // Of each as much as the parser behind may see: never the end of a head.
        for (rejected, least, most) in [
            (AMBIGUOUS, 0, AMBIGUOUS.len() - 1),
            (LINE_FEED, 0, LINE_FEED.len() - 2),
            (&bad_chunk, CHUNKED.len(), CHUNKED.len() + "2;".len()),
        ] {
            for preceding in IN_ORDER {
                let sent = format!("{preceding}{rejected}GET / HTTP/1.1\r\n\r\n");
                let before = match least {
                    0 => preceding.trim_end_matches("\r\n").len(),
                    least => preceding.len() + least,
                };
                for size in 1..=sent.len() {
                    let (passed, is_rejected) = passed(&sent, size);
                    let in_time = (before..=preceding.len() + most).contains(&passed);
                    assert!(is_rejected && in_time, "{sent:?} by {size}: {passed}");
                }
            }
        }
    }

    #[test]
    fn blank_lines_between_two_requests_are_no_head() {
        let mut requests = RequestBoundaries::default();
        let get = b"GET / HTTP/1.1\r\n\r\n";
        for (received, between, heads) in [
            (&b""[..], true, 0),
            (&b"\r"[..], true, 0),
            (&b"\n\r\n"[..], true, 0),
            (&b"G"[..], false, 0),
            (&get[1..], true, 1),
            (b"\r\n", true, 1),
            (&[&get[..], &get[..], b"G"].concat(), false, 3),
            (&get[1..], true, 4),
            (b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n", false, 5),
            (b"x", true, 5),
        ] {
            assert_eq!(requests.check(received), Ok(()));
            let seen = (requests.is_between(), requests.heads());
            assert_eq!(seen, (between, heads), "{}", received.escape_ascii());
        }
        assert!(requests.check(b"\r").is_ok() && requests.check(b"\r").is_ok());
        assert!(requests.check(b"\n").is_ok());
        assert!(requests.check(b"\n").is_err(), "a line feed alone");
    }

    #[test]
    fn only_an_unfinished_head_is_kept() {
        let mut requests = RequestBoundaries::default();
        let begun = b"POST / HTTP/1.1\r\n";
        assert_eq!(requests.check(begun), Ok(()));
        assert!(requests.unfinished_head() >= begun.len());
        assert_eq!(requests.check(b"Content-Length: 1\r\n\r\n"), Ok(()));
        assert_eq!(requests.unfinished_head(), 0);
    }

    #[test]
    fn what_is_in_order_passes() {
        for first in IN_ORDER {
            for second in IN_ORDER {
                let sent = format!("{first}{second}{first}");
                for size in 1..=sent.len() {
                    let found = passed(&sent, size);
                    assert_eq!(found, (sent.len(), false), "{sent:?} by {size}");
                }
            }
        }
    }
}
