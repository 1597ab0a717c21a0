//! Deadlines a stream when the token that opened it does: a WebSocket, server-sent events, a gRPC call.
//! No other body is cut, however long it takes, as long as it comes.
//!
//! Pingora has no hook that fires on time, so the whole work on a request is given up: HTTP/1.1
//! connections are closed on both sides, of an HTTP/2 connection that stream alone is reset.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use contract::http::trace::{RequestId, TraceId};
use http::Method;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::telemetry::access_log::LoggedPath;

tokio::task_local! {
    /// The ends of the request that is being worked on; none for most.
    static DEADLINES: Deadlines;
}

/// When the work on a request has to end.
#[derive(Debug, Default)]
struct Deadlines {
    token: Cell<Option<Instant>>,
    /// The next part of its body has to come by then; moved on by each that does.
    body: Cell<Option<Instant>>,
    /// Its answer has to begin by then; moved on by each part of its body that comes.
    response: Cell<Option<Instant>>,
    request: OnceCell<Request>,
}

/// What the line about the end says of the request: by then it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) target: Vec<u8>,
    pub(crate) client: Option<IpAddr>,
    pub(crate) request_id: Option<RequestId>,
    pub(crate) trace_id: Option<TraceId>,
}

/// A query may hold a token.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = LoggedPath(&self.target);
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path", &format_args!("{path}"))
            .finish_non_exhaustive()
    }
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpiredDeadline {
    Token,
    Body,
    Response,
}

impl Deadlines {
    fn first(&self) -> Option<(Instant, ExpiredDeadline)> {
        let token = self.token.get().map(|end| (end, ExpiredDeadline::Token));
        let body = self.body.get().map(|end| (end, ExpiredDeadline::Body));
        let response = self
            .response
            .get()
            .map(|end| (end, ExpiredDeadline::Response));
        let deadlines = [token, body, response].into_iter().flatten();
        deadlines.min_by_key(|(end, _)| *end)
    }
}

/// Has the stream at hand end in `left`, whatever it is doing then. What `request` it is, is asked only if
/// there is an end.
pub(crate) fn expire_stream_after(left: Duration, request: impl FnOnce() -> Request) {
    set(|deadlines| &deadlines.token, Some(left), request);
}

/// Has the request at hand end if no more of its body comes `within` this time; `None` when all of it
/// has come. For HTTP/2: over HTTP/1.1 Pingora has a time-out, which can be answered.
pub(crate) fn expect_body(within: Option<Duration>, request: impl FnOnce() -> Request) {
    set(|deadlines| &deadlines.body, within, request);
}

/// Has the request at hand end if its answer does not begin `within` this time. For what may become a stream: for
/// others Pingora has a time-out, which can be answered.
pub(crate) fn expect_response(within: Option<Duration>, request: impl FnOnce() -> Request) {
    set(|deadlines| &deadlines.response, within, request);
}

/// A part of the body came: an answer that is expected has `within` this time from now on.
pub(crate) fn extend_response_deadline(within: Option<Duration>) {
    let _ = DEADLINES.try_with(|deadlines| {
        if deadlines.response.get().is_some() {
            deadlines.response.set(deadline(within));
        }
    });
}

/// What was expected has begun.
pub(crate) fn clear_response_deadline() {
    let _ = DEADLINES.try_with(|deadlines| deadlines.response.set(None));
}

/// What might have become a stream is none.
pub(crate) fn clear_token_deadline() {
    let _ = DEADLINES.try_with(|deadlines| deadlines.token.set(None));
}

/// Far ahead is as good as never, and must not overflow.
fn deadline(within: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(within?)
}

fn set(
    end: impl FnOnce(&Deadlines) -> &Cell<Option<Instant>>,
    within: Option<Duration>,
    request: impl FnOnce() -> Request,
) {
    let at = deadline(within);
    // Outside of any request there is nothing to end.
    let _ = DEADLINES.try_with(|deadlines| {
        end(deadlines).set(at);
        if at.is_some() {
            deadlines.request.get_or_init(request);
        }
    });
}

/// Work that was given up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TimedOut {
    pub(super) expired: ExpiredDeadline,
    pub(super) request: Option<Request>,
}

/// The work on one request, or why its time was over before it was.
pub(super) async fn within_deadlines<T>(work: impl Future<Output = T>) -> Result<T, TimedOut> {
    DEADLINES
        .scope(Deadlines::default(), async {
            let mut work = pin!(work);
            let mut timer: Option<Pin<Box<Sleep>>> = None;
            let expired = poll_fn(|cx| {
                if let Poll::Ready(done) = work.as_mut().poll(cx) {
                    return Poll::Ready(Ok(done));
                }
                let Some((end, expired)) = DEADLINES.with(Deadlines::first) else {
                    return Poll::Pending;
                };
                let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
                if timer.deadline() != end {
                    timer.as_mut().reset(end);
                }
                timer.as_mut().poll(cx).map(|()| Err(expired))
            });
            expired.await.map_err(|expired| TimedOut {
                expired,
                request: DEADLINES.with(|deadlines| deadlines.request.get().cloned()),
            })
        })
        .await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn expired<T>(timed_out: Result<T, TimedOut>) -> Option<ExpiredDeadline> {
        timed_out.err().map(|timed_out| timed_out.expired)
    }

    fn request(target: &str) -> Request {
        Request {
            method: Method::GET,
            target: target.into(),
            client: None,
            request_id: None,
            trace_id: None,
        }
    }

    fn never_asked() -> Request {
        unreachable!("it has no end, or is known already")
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_given_up_is_still_known() {
        let work = async {
            expire_stream_after(Duration::from_secs(1), || request("/first"));
            expect_body(Some(Duration::from_secs(2)), never_asked);
            std::future::pending::<()>().await;
        };
        let timed_out = TimedOut {
            expired: ExpiredDeadline::Token,
            request: Some(request("/first")),
        };
        assert_eq!(within_deadlines(work).await, Err(timed_out));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_done_in_time_gives_its_result() {
        let work = async {
            expire_stream_after(Duration::from_secs(2), || request("/"));
            tokio::time::sleep(Duration::from_secs(1)).await;
            7
        };
        assert_eq!(within_deadlines(work).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_not_is_dropped() {
        let dropped = Arc::new(());
        let held = Arc::clone(&dropped);
        let work = async move {
            tokio::task::yield_now().await;
            expire_stream_after(Duration::from_secs(1), || request("/"));
            std::future::pending::<()>().await;
            drop(held);
        };
        assert_eq!(
            expired(within_deadlines(work).await),
            Some(ExpiredDeadline::Token)
        );
        assert_eq!(Arc::strong_count(&dropped), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn work_without_an_end_takes_as_long_as_it_takes_and_nobody_asks_what_it_is() {
        let work = async {
            expect_body(None, never_asked);
            expire_stream_after(Duration::MAX, never_asked);
            tokio::time::sleep(Duration::from_secs(1_000_000)).await;
        };
        assert_eq!(within_deadlines(work).await, Ok(()));
        // Outside of any request.
        expire_stream_after(Duration::from_secs(1), never_asked);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_expected_has_to_go_on_until_it_turns_out_a_stream() {
        const SECOND: Duration = Duration::from_secs(1);
        let answer = |pause: Duration| async move {
            expect_response(Some(2 * SECOND), || request("/events"));
            tokio::time::sleep(SECOND).await;
            extend_response_deadline(Some(2 * SECOND));
            tokio::time::sleep(pause).await;
            clear_response_deadline();
            extend_response_deadline(Some(SECOND));
            tokio::time::sleep(100 * SECOND).await;
        };
        assert_eq!(within_deadlines(answer(SECOND)).await, Ok(()));
        let silent = within_deadlines(answer(3 * SECOND)).await;
        assert_eq!(expired(silent), Some(ExpiredDeadline::Response));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_stream_outlives_the_token() {
        let work = async {
            expire_stream_after(Duration::from_secs(1), || request("/"));
            clear_token_deadline();
            tokio::time::sleep(Duration::from_secs(10)).await;
        };
        assert_eq!(within_deadlines(work).await, Ok(()));
    }

    #[test]
    fn no_query_is_shown() {
        let shown = format!("{:?}", request("/a?access_token=secret"));
        assert!(shown.contains("/a") && !shown.contains("secret"), "{shown}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_may_take_long_as_long_as_it_comes() {
        const SECOND: Duration = Duration::from_secs(1);
        let upload = |parts: u32, pause: Duration| async move {
            for _ in 0..parts {
                expect_body(Some(2 * SECOND), || request("/upload"));
                tokio::time::sleep(pause).await;
            }
            expect_body(None, never_asked);
            tokio::time::sleep(10 * SECOND).await;
        };
        assert_eq!(within_deadlines(upload(10, SECOND)).await, Ok(()));
        let slow = within_deadlines(upload(10, 3 * SECOND)).await;
        assert_eq!(expired(slow), Some(ExpiredDeadline::Body));
    }
}
