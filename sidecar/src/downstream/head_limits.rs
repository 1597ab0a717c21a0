//! How long the head of a request may take to arrive, and how long it may be.
//!
//! Pingora bounds each read, so that a head of one byte a second never ends, and lets it grow to
//! 1 MiB. Both are bounded here, where the bytes come in.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use contract::rejection::Rejection;
use memchr::memchr_iter;
use tokio::time::{Sleep, sleep};

/// Several times what browsers and common servers allow.
pub(crate) const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Pingora's own limit, past which it refuses without saying why.
pub(crate) const MAX_HEAD_LINES: usize = 256;

/// The head that is being waited for.
#[derive(Debug)]
pub(crate) struct HeadLimiter {
    limit: Duration,
    /// Between two requests a connection may be silent: Pingora bounds for how long.
    may_be_silent: bool,
    bytes: usize,
    lines: usize,
    /// Whether more than empty lines came, which may precede a request (RFC 9112 §2.2).
    begun: bool,
    /// Set only while there is something to wait for: most heads arrive at once.
    timer: Option<Pin<Box<Sleep>>>,
}

impl HeadLimiter {
    /// The first of a connection, which may take `limit`.
    pub(crate) fn first(limit: Duration) -> Self {
        Self {
            limit,
            may_be_silent: false,
            bytes: 0,
            lines: 0,
            begun: false,
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
        self.begun = self.begun || bytes.iter().any(|byte| !matches!(byte, b'\r' | b'\n'));
    }

    /// Whether it is past its size. Exact as long as more of it is asked for.
    pub(crate) fn is_too_large(&self) -> bool {
        self.bytes > MAX_HEAD_BYTES
    }

    /// What it is where Pingora does not take it for one.
    pub(crate) fn rejection(&self) -> Rejection {
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(3600);

    fn after(limit: Duration, bytes: &[u8]) -> HeadLimiter {
        let mut head = HeadLimiter::first(limit);
        head.received(bytes);
        head
    }

    async fn overdue(mut head: HeadLimiter) -> Option<Rejection> {
        poll_fn(|cx| head.poll_overdue(cx)).await
    }

    async fn is_overdue_at_once(head: &mut HeadLimiter) -> bool {
        poll_fn(|cx| Poll::Ready(head.poll_overdue(cx).is_ready())).await
    }

    #[tokio::test]
    async fn only_who_has_begun_to_speak_is_told_that_the_time_is_up() {
        assert_eq!(overdue(HeadLimiter::first(LIMIT)).await, None);
        assert_eq!(overdue(after(LIMIT, b"\r\n\r\n")).await, None);
        for begun in [&b"G"[..], b"\r\nG", b"GET / HTTP/1.1\r\n"] {
            let rejection = overdue(after(LIMIT, begun)).await;
            assert_eq!(rejection, Some(Rejection::RequestTimeout), "{begun:?}");
        }
    }

    #[tokio::test]
    async fn between_two_requests_silence_is_allowed_and_half_a_head_is_not() {
        let mut next = HeadLimiter::first(Duration::ZERO).next();
        assert!(!is_overdue_at_once(&mut next).await && next.timer.is_none());
        next.received(b"G");
        assert_eq!(overdue(next).await, Some(Rejection::RequestTimeout));
    }

    #[tokio::test]
    async fn the_time_counts_from_the_first_byte_and_no_later_one_prolongs_it() {
        let mut head = HeadLimiter::first(LONG);
        assert!(!is_overdue_at_once(&mut head).await && head.timer.is_some());
        head.received(b"G");
        assert!(head.timer.is_none());
        assert!(!is_overdue_at_once(&mut head).await && head.timer.is_some());
        head.received(b"E");
        assert!(head.timer.is_some());
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
            assert_eq!(after(LONG, &bytes).rejection(), rejection);
        }
    }
}
