//! HTTP/2 responses that are not fully sent after the end of their requests.
//!
//! Pingora queues only bytes for which the client has granted a window. If they stay queued on an
//! unblocked connection, the client has lowered its windows since (`SETTINGS_INITIAL_WINDOW_SIZE`,
//! RFC 9113 §6.9.2); no timeout of Pingora covers that.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::{Sleep, sleep};

/// Number of parts of a timeout: a part in which the connection ends up blocked does not count.
const PARTS: u32 = 4;

/// The generation of the responses that end now on one connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndedResponses(Arc<ArcSwap<()>>);

/// Held by a response from its end until it is sent.
#[derive(Debug)]
pub(crate) struct Generation {
    _held: Arc<()>,
}

impl EndedResponses {
    /// Returns the token that a response holds from its end, now, until it is sent.
    pub(crate) fn generation(&self) -> Generation {
        Generation {
            _held: self.0.load_full(),
        }
    }
}

/// Limits how long a client may hold back ended responses by its windows alone: time in which
/// the connection is blocked does not count, because the deadline for writes covers it.
#[derive(Debug)]
pub(super) struct WindowDeadline {
    ended: EndedResponses,
    current: Arc<()>,
    former: Weak<()>,
    /// `None` without a limit.
    part: Option<Duration>,
    parts: u32,
    is_blocked: bool,
    /// Set only while a response is held back, or was at the last check.
    timer: Option<Pin<Box<Sleep>>>,
}

impl WindowDeadline {
    /// Creates the limit: a response is overdue after `timeout`, at the latest after twice that.
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        let ended = EndedResponses::default();
        Self {
            current: ended.0.load_full(),
            ended,
            former: Weak::new(),
            part: timeout.map(|timeout| timeout / PARTS),
            parts: 0,
            is_blocked: false,
            timer: None,
        }
    }

    pub(super) const fn ended(&self) -> &EndedResponses {
        &self.ended
    }

    /// Records the last write or flush: `is_blocked` if the socket did not take all of it.
    pub(super) const fn written(&mut self, is_blocked: bool) {
        self.is_blocked = is_blocked;
    }

    /// Returns ready once a response is overdue.
    pub(super) fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(part) = self.part else {
            return Poll::Pending;
        };
        while self.timer.is_some() || self.holds_any() {
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(part)));
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
            if !self.is_blocked && self.is_overdue_after_part() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Returns true if a response is held, without `current` and its copy in `ended`.
    fn holds_any(&self) -> bool {
        Arc::strong_count(&self.current) > 2 || self.former.strong_count() > 0
    }

    fn is_overdue_after_part(&mut self) -> bool {
        self.parts += 1;
        if self.parts < PARTS {
            return false;
        }
        self.parts = 0;
        if self.former.strong_count() > 0 {
            return true;
        }
        let next = Arc::new(());
        self.ended.0.store(Arc::clone(&next));
        self.former = Arc::downgrade(&std::mem::replace(&mut self.current, next));
        false
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::{Instant, timeout};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(8);
    const LONG: Duration = Duration::from_secs(3600);

    async fn is_overdue_within(deadline: &mut WindowDeadline, limit: Duration) -> bool {
        let overdue = poll_fn(|cx| deadline.poll_overdue(cx));
        timeout(limit, overdue).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_is_overdue_after_one_to_two_timeouts() {
        // For any age of the generation.
        for before in [0, 1, 3, 7] {
            let mut deadline = WindowDeadline::new(Some(TIMEOUT));
            let earlier = deadline.ended().generation();
            assert!(!is_overdue_within(&mut deadline, Duration::from_secs(before)).await);
            let ended = Instant::now();
            let held = deadline.ended().generation();
            drop(earlier);
            assert!(is_overdue_within(&mut deadline, LONG).await);
            let after = ended.elapsed();
            assert!(after >= TIMEOUT && after <= TIMEOUT * 2, "{after:?}");
            drop(held);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn responses_that_are_sent_in_time_are_never_overdue() {
        let mut deadline = WindowDeadline::new(Some(TIMEOUT));
        for _ in 0..10 {
            let held = deadline.ended().generation();
            assert!(!is_overdue_within(&mut deadline, TIMEOUT * 99 / 100).await);
            drop(held);
        }
        assert!(!is_overdue_within(&mut deadline, LONG).await);
        assert!(deadline.timer.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_held_response_is_overdue_among_others_that_are_sent() {
        let mut deadline = WindowDeadline::new(Some(TIMEOUT));
        let stays = deadline.ended().generation();
        let started = Instant::now();
        let mut leaves = deadline.ended().generation();
        while !is_overdue_within(&mut deadline, Duration::from_secs(1)).await {
            drop(std::mem::replace(
                &mut leaves,
                deadline.ended().generation(),
            ));
            assert!(started.elapsed() <= TIMEOUT * 2);
        }
        drop(stays);
    }

    #[tokio::test(start_paused = true)]
    async fn time_of_a_blocked_connection_does_not_count() {
        let mut deadline = WindowDeadline::new(Some(TIMEOUT));
        let _held = deadline.ended().generation();
        deadline.written(true);
        assert!(!is_overdue_within(&mut deadline, LONG).await);
        deadline.written(false);
        assert!(is_overdue_within(&mut deadline, TIMEOUT * 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_nothing_is_overdue() {
        let mut deadline = WindowDeadline::new(None);
        let _held = deadline.ended().generation();
        assert!(!is_overdue_within(&mut deadline, LONG).await);
    }
}
