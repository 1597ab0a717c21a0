//! Where on a connection the heads of its requests are, so that each is judged as it arrived: hyper tidies up
//! what a proxy in front may have read differently.

use contract::framing::{self, Body};
use contract::rejection::Rejection;

const END: &[u8] = b"\r\n\r\n";

/// Goes along with what is read.
#[derive(Debug)]
pub(super) enum RequestHeads {
    /// So much of a head came.
    Head(Vec<u8>),
    /// So much of a body is still to come.
    Body(u64),
    /// Nobody counts the chunks of a body, so what comes after it must not be taken for a request.
    Unknown,
}

/// A head that must not reach hyper as a whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// How many of the bytes belong to what came before.
    pub(super) passed: usize,
    pub(super) rejection: Rejection,
}

impl RequestHeads {
    pub(super) const fn new() -> Self {
        Self::Head(Vec::new())
    }

    /// Takes note of what was read. Nothing may be read any more once a head is refused.
    pub(super) fn follow(&mut self, received: &[u8]) -> Result<(), Refused> {
        let mut passed = 0;
        while let Some(rest @ [_, ..]) = received.get(passed..) {
            passed += match self {
                Self::Head(head) => {
                    let (taken, body) = follow_head(head, rest)
                        .map_err(|rejection| Refused { passed, rejection })?;
                    if let Some(body) = body {
                        *self = Self::after(body);
                    }
                    taken
                }
                Self::Body(left) => {
                    let taken =
                        usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                    *self = Self::after(Body::Length(*left - taken as u64));
                    taken
                }
                Self::Unknown => rest.len(),
            };
        }
        Ok(())
    }

    const fn after(body: Body) -> Self {
        match body {
            Body::Length(0) => Self::new(),
            Body::Length(length) => Self::Body(length),
            Body::Chunked => Self::Unknown,
        }
    }
}

/// How much of `received` belongs to the head, and what follows the head if that is its end.
fn follow_head(head: &mut Vec<u8>, received: &[u8]) -> Result<(usize, Option<Body>), Rejection> {
    let before = head.len();
    head.extend_from_slice(received);
    let end = end(head, before);
    if let Some(end) = end {
        head.truncate(end);
    }
    if framing::has_bare_line_feed(head, before) {
        return Err(Rejection::RequestFraming);
    }
    let body = end.map(|_| framing::check(head)).transpose()?;
    Ok((head.len() - before, body))
}

/// Where the head ends, if it does so after `seen`. Empty lines may precede it (RFC 9112 §2.2).
fn end(head: &[u8], seen: usize) -> Option<usize> {
    let blank = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let start = head.iter().position(|byte| !blank(byte))?;
    let from = start.max(seen.saturating_sub(END.len() - 1));
    let searched = head.get(from..)?;
    let at = searched.windows(END.len()).position(|bytes| bytes == END)?;
    Some(from + at + END.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMBIGUOUS: &str = "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n";

    /// What goes through when it arrives in pieces of `size` bytes, and whether it was refused.
    fn passed(sent: &str, size: usize) -> (usize, bool) {
        let mut heads = RequestHeads::new();
        let mut before = 0;
        for piece in sent.as_bytes().chunks(size) {
            match heads.follow(piece) {
                Ok(()) => before += piece.len(),
                Err(refused) => return (before + refused.passed, true),
            }
        }
        (before, false)
    }

    #[test]
    fn each_head_is_found_whatever_precedes_it_and_however_it_arrives() {
        for preceding in [
            "",
            "\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\na\n\nb",
            "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n\r\n\r\n",
            "\r\nPOST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx\r\nGET / HTTP/1.1\r\n\r\n",
        ] {
            let sent = format!("{preceding}{AMBIGUOUS}GET / HTTP/1.1\r\n\r\n");
            for size in 1..=sent.len() {
                let (passed, refused) = passed(&sent, size);
                assert!(refused, "{preceding:?} by {size}");
                let whole = preceding.len() + AMBIGUOUS.len();
                // hyper may see a part of it, and never its end.
                assert!(passed < whole, "{preceding:?} by {size}: {passed}");
                let complete = preceding.trim_end_matches("\r\n").len();
                assert!(passed >= complete, "{preceding:?} by {size}: {passed}");
            }
        }
    }

    #[test]
    fn a_line_feed_alone_is_refused_before_any_parser_can_take_it_for_an_end() {
        let sent = "GET / HTTP/1.1\r\nHost: a\n\n";
        for size in 1..=sent.len() {
            let (passed, refused) = passed(sent, size);
            assert!(refused && passed < sent.len() - 1, "by {size}: {passed}");
        }
    }

    #[test]
    fn what_is_in_order_passes_and_so_does_all_that_follows_chunks() {
        for sent in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n\n\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\n\r\n",
        ] {
            for size in 1..=sent.len() {
                assert_eq!(passed(sent, size), (sent.len(), false), "by {size}");
            }
        }
    }
}
