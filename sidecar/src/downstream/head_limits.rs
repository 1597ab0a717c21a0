//! Limits of time and size for the head of a request.
//!
//! For HTTP/2 they hold until its preface is whole.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};
use wire::rejection::Rejection;

/// Several times the limit of browsers and common servers.
pub(crate) const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Limit of its fields.
pub(crate) const MAX_HEAD_LINES: usize = 256;

/// Progress of the head that is expected next.
#[derive(Debug)]
pub(crate) struct HeadLimiter {
    limit: Duration,
    /// True between two requests: that silence has a limit of its own.
    may_be_silent: bool,
    bytes: usize,
    /// True once more came than empty lines, which may precede a request (RFC 9112 §2.2).
    begun: bool,
    /// Set only while part of a head is missing: most heads arrive at once.
    timer: Option<Pin<Box<Sleep>>>,
}

impl HeadLimiter {
    /// Expects the first head of a connection within `limit`.
    pub(crate) fn first(limit: Duration) -> Self {
        Self {
            limit,
            may_be_silent: false,
            bytes: 0,
            begun: false,
            timer: None,
        }
    }

    /// Expects the next head: at once if it `has_begun` behind the last request, otherwise after a
    /// silence of any length.
    pub(crate) fn next(&self, has_begun: bool) -> Self {
        Self {
            may_be_silent: !has_begun,
            begun: has_begun,
            ..Self::first(self.limit)
        }
    }

    /// Counts bytes that were read; the last ones may begin a body.
    pub(crate) fn received(&mut self, bytes: &[u8]) {
        if self.bytes == 0 {
            // The limit starts at the first byte.
            self.timer = None;
        }
        self.bytes += bytes.len();
        self.begun = self.begun || bytes.iter().any(|byte| !matches!(byte, b'\r' | b'\n'));
    }

    /// Returns true once the head has begun: it has to end in time.
    pub(crate) const fn has_begun(&self) -> bool {
        self.begun
    }

    /// Returns true for a head past its max size; exact as long as more of it is read.
    pub(crate) fn is_too_large(&self) -> bool {
        self.bytes > MAX_HEAD_BYTES
    }

    /// Returns ready at the timeout, with a rejection if the client has begun a request.
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
    async fn only_a_head_that_has_begun_gets_a_timeout_response() {
        assert_eq!(overdue(HeadLimiter::first(LIMIT)).await, None);
        assert_eq!(overdue(after(LIMIT, b"\r\n\r\n")).await, None);
        for begun in [&b"G"[..], b"\r\nG", b"GET / HTTP/1.1\r\n"] {
            let rejection = overdue(after(LIMIT, begun)).await;
            assert_eq!(rejection, Some(Rejection::RequestTimeout), "{begun:?}");
        }
    }

    #[tokio::test]
    async fn between_requests_silence_is_allowed_half_a_head_is_not() {
        let first = HeadLimiter::first(Duration::ZERO);
        let mut next = first.next(false);
        assert!(!is_overdue_at_once(&mut next).await && next.timer.is_none());
        let begun = first.next(true);
        assert_eq!(overdue(begun).await, Some(Rejection::RequestTimeout));
        next.received(b"G");
        assert_eq!(overdue(next).await, Some(Rejection::RequestTimeout));
    }

    #[tokio::test]
    async fn the_timeout_starts_at_the_first_byte_alone() {
        let mut head = HeadLimiter::first(LONG);
        assert!(!is_overdue_at_once(&mut head).await && head.timer.is_some());
        head.received(b"G");
        assert!(head.timer.is_none());
        assert!(!is_overdue_at_once(&mut head).await && head.timer.is_some());
        head.received(b"E");
        assert!(head.timer.is_some());
    }
}
