//! How long the head of a request may take to arrive, and how long it may be.
//!
//! Pingora bounds each read, so that a head of one byte a second never ends, and lets it grow to
//! 1 MiB. Both are bounded here, where the bytes come in.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use contract::rejection::Rejection;
use memchr::{memchr, memchr_iter};
use tokio::time::{Sleep, sleep};

/// Several times what browsers and common servers allow.
pub(crate) const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Pingora's own limit, past which it refuses without saying why.
pub(crate) const MAX_HEAD_LINES: usize = 256;

/// The head that is being waited for.
#[derive(Debug)]
pub(crate) struct ArrivingHead {
    limit: Duration,
    /// Between two requests a connection may be silent: Pingora bounds for how long.
    may_be_silent: bool,
    bytes: usize,
    lines: usize,
    /// Whether more than empty lines came, which may precede a request (RFC 9112 §2.2).
    begun: bool,
    request_line: RequestLine,
    /// Set only while there is something to wait for: most heads arrive at once.
    timer: Option<Pin<Box<Sleep>>>,
}

impl ArrivingHead {
    /// The first of a connection, which may take `limit`.
    pub(crate) fn first(limit: Duration) -> Self {
        Self {
            limit,
            may_be_silent: false,
            bytes: 0,
            lines: 0,
            begun: false,
            request_line: RequestLine::default(),
            timer: None,
        }
    }

    /// The one after it.
    pub(crate) fn next(&self) -> Self {
        Self {
            may_be_silent: true,
            ..Self::first(self.limit)
        }
    }

    /// Takes note of what was read. The last of it may be the beginning of a body.
    pub(crate) fn received(&mut self, bytes: &[u8]) {
        if self.bytes == 0 {
            // The time counts from the first byte.
            self.timer = None;
        }
        self.bytes += bytes.len();
        self.lines += memchr_iter(b'\n', bytes).count();
        let begins = |byte: &u8| !matches!(byte, b'\r' | b'\n');
        let at = if self.begun {
            Some(0)
        } else {
            bytes.iter().position(begins)
        };
        if let Some(rest) = at.and_then(|at| bytes.get(at..)) {
            self.begun = true;
            self.request_line.received(rest);
        }
    }

    /// Whether its first line is one that Pingora would make another one of.
    pub(crate) const fn is_to_be_mended(&self) -> bool {
        self.request_line.is_to_be_mended
    }

    /// Whether it is past its size. Exact as long as more of it is asked for.
    pub(crate) fn is_too_large(&self) -> bool {
        self.bytes > MAX_HEAD_BYTES
    }

    /// What it is where Pingora does not take it for one.
    pub(crate) fn why_refused(&self) -> Rejection {
        if self.is_too_large() || self.lines > MAX_HEAD_LINES {
            Rejection::RequestHeaderTooLarge
        } else {
            Rejection::RequestMalformed
        }
    }

    /// Ready when the time is up, with what there is to say to a client that has begun to speak.
    pub(crate) fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<Option<Rejection>> {
        if self.may_be_silent && self.bytes == 0 {
            return Poll::Pending;
        }
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(self.begun.then_some(Rejection::RequestTimeout))
    }
}

/// The line with method, target and version. Pingora takes one that no parser can read, writes blanks and
/// control bytes of its target as `%20` and the like, and reads it again: a service would get a target that
/// nobody sent, where another proxy sees the end of it.
#[derive(Debug, Default)]
struct RequestLine {
    /// Blanks and control bytes.
    gaps: usize,
    ends_with_cr: bool,
    ended: bool,
    is_to_be_mended: bool,
}

impl RequestLine {
    fn received(&mut self, bytes: &[u8]) {
        if self.ended {
            return;
        }
        let end = memchr(b'\n', bytes);
        let line = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        let is_gap = |byte: &&u8| **byte <= b' ' || **byte == 0x7f;
        self.gaps += line.iter().filter(is_gap).count();
        if let Some(last) = line.last() {
            self.ends_with_cr = *last == b'\r';
        }
        self.ended = end.is_some();
        self.is_to_be_mended = self.ended && self.gaps > 2 + usize::from(self.ends_with_cr);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(3600);

    fn after(limit: Duration, bytes: &[u8]) -> ArrivingHead {
        let mut head = ArrivingHead::first(limit);
        head.received(bytes);
        head
    }

    async fn overdue(mut head: ArrivingHead) -> Option<Rejection> {
        poll_fn(|cx| head.poll_overdue(cx)).await
    }

    async fn is_overdue_at_once(head: &mut ArrivingHead) -> bool {
        poll_fn(|cx| Poll::Ready(head.poll_overdue(cx).is_ready())).await
    }

    #[tokio::test]
    async fn only_who_has_begun_to_speak_is_told_that_the_time_is_up() {
        assert_eq!(overdue(ArrivingHead::first(LIMIT)).await, None);
        assert_eq!(overdue(after(LIMIT, b"\r\n\r\n")).await, None);
        for begun in [&b"G"[..], b"\r\nG", b"GET / HTTP/1.1\r\n"] {
            let rejection = overdue(after(LIMIT, begun)).await;
            assert_eq!(rejection, Some(Rejection::RequestTimeout), "{begun:?}");
        }
    }

    #[tokio::test]
    async fn between_two_requests_silence_is_allowed_and_half_a_head_is_not() {
        let mut next = ArrivingHead::first(Duration::ZERO).next();
        assert!(!is_overdue_at_once(&mut next).await && next.timer.is_none());
        next.received(b"G");
        assert_eq!(overdue(next).await, Some(Rejection::RequestTimeout));
    }

    #[tokio::test]
    async fn the_time_counts_from_the_first_byte_and_no_later_one_prolongs_it() {
        let mut head = ArrivingHead::first(LONG);
        assert!(!is_overdue_at_once(&mut head).await && head.timer.is_some());
        head.received(b"G");
        assert!(head.timer.is_none());
        assert!(!is_overdue_at_once(&mut head).await && head.timer.is_some());
        head.received(b"E");
        assert!(head.timer.is_some());
    }

    #[test]
    fn a_first_line_with_more_than_two_blanks_is_not_mended() {
        for (line, mended) in [
            ("GET /a HTTP/1.1\r\nHost: a b c\r\n", false),
            ("GET /a HTTP/1.1\nA: b c d\n", false),
            ("\r\n\r\nGET /a HTTP/1.1\r\n", false),
            ("GET /\u{e4}<\">%20 HTTP/1.1\r\n", false),
            ("GET /a b HTTP/1.1", false),
            ("GET /a b HTTP/1.1\r\n", true),
            ("GET /a b HTTP/1.1\n", true),
            ("\r\nGET /a b HTTP/1.1\r\n", true),
            ("GET  /a HTTP/1.1\r\n", true),
            ("GET /a HTTP/1.1 \r\n", true),
            ("GET /a\tb HTTP/1.1\r\n", true),
            ("GET /a\rb HTTP/1.1\r\n", true),
            ("GET /a\0b HTTP/1.1\r\n", true),
            ("GET /a\x7fb HTTP/1.1\r\n", true),
        ] {
            for piece in [1, 2, 5, 1000] {
                let mut head = ArrivingHead::first(LONG);
                for bytes in line.as_bytes().chunks(piece) {
                    head.received(bytes);
                }
                assert_eq!(head.is_to_be_mended(), mended, "{line:?} {piece}");
            }
        }
    }

    #[test]
    fn what_pingora_refuses_is_too_large_or_malformed() {
        for (bytes, rejection) in [
            (vec![0], Rejection::RequestMalformed),
            (b"A: 1\r\n".repeat(256), Rejection::RequestMalformed),
            (b"A: 1\r\n".repeat(300), Rejection::RequestHeaderTooLarge),
            (vec![b'a'; MAX_HEAD_BYTES], Rejection::RequestMalformed),
            (
                vec![b'a'; MAX_HEAD_BYTES + 1],
                Rejection::RequestHeaderTooLarge,
            ),
        ] {
            assert_eq!(after(LONG, &bytes).why_refused(), rejection);
        }
    }
}
