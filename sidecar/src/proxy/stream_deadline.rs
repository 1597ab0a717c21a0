//! Deadlines of a request. A stream (WebSocket, server-sent events, gRPC) ends when its token
//! expires or is revoked; any other body may take any time as long as its parts keep coming.
//!
//! Pingora has no timer hook, so an expired deadline drops the whole work on a request: HTTP/1.1
//! connections are closed on both sides, of an HTTP/2 connection only the stream is reset.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Method;
use tokio::time::{Instant, Sleep, sleep_until};
use wire::http::trace::{RequestId, TraceId};

use crate::telemetry::access_log::LoggedPath;
use crate::telemetry::request_span::RequestSpan;

tokio::task_local! {
    /// Deadlines of the present request; most have none set.
    static DEADLINES: Deadlines;
}

/// The end of a stream by an event.
pub(crate) type StreamEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Deadlines of one request.
#[derive(Default)]
struct Deadlines {
    token: Cell<Option<Instant>>,
    revocation: RefCell<Option<StreamEnd>>,
    /// For the next part of the request body; each part extends it.
    body: Cell<Option<Instant>>,
    /// For the begin of the response; each part of the request body extends it.
    response: Cell<Option<Instant>>,
    request: OnceCell<Request>,
    /// Here and not with the request: an expired one is dropped before its span ends.
    span: RefCell<RequestSpan>,
}

/// Copy of the request for its log record: an expired request is dropped.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) target: Vec<u8>,
    pub(crate) client: Option<IpAddr>,
    pub(crate) request_id: Option<RequestId>,
    pub(crate) trace_id: Option<TraceId>,
}

/// Without the query, which may hold a token.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = LoggedPath(&self.target);
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path", &format_args!("{path}"))
            .finish_non_exhaustive()
    }
}

/// The deadline that expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpiredDeadline {
    Token,
    /// No deadline: the token was revoked.
    Revocation,
    Body,
    Response,
}

impl Deadlines {
    fn poll_revocation(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self.revocation.borrow_mut() {
            Some(revocation) => revocation.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

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

/// Ends the present stream after `left`. `request` is called only if a deadline is set.
pub(crate) fn expire_stream_after(left: Duration, request: impl FnOnce() -> Request) {
    set(|deadlines| &deadlines.token, Some(left), request);
}

/// Ends the present stream with the future. `request` as for a deadline.
pub(crate) fn end_stream_on(revocation: StreamEnd, request: impl FnOnce() -> Request) {
    let _ = DEADLINES.try_with(|deadlines| {
        deadlines.revocation.replace(Some(revocation));
        deadlines.request.get_or_init(request);
    });
}

/// Ends the present request if the next part of its body does not come `within` this time; `None`
/// after the last part. For HTTP/2 alone: Pingora's own timeout for HTTP/1.1 allows a response.
pub(crate) fn expect_body(within: Option<Duration>, request: impl FnOnce() -> Request) {
    set(|deadlines| &deadlines.body, within, request);
}

/// Ends the present request if its response does not begin `within` this time. For possible streams
/// alone: Pingora's own timeout for other requests allows a response.
pub(crate) fn expect_response(within: Option<Duration>, request: impl FnOnce() -> Request) {
    set(|deadlines| &deadlines.response, within, request);
}

/// Extends a response deadline that is set to `within` from now.
pub(crate) fn extend_response_deadline(within: Option<Duration>) {
    let _ = DEADLINES.try_with(|deadlines| {
        if deadlines.response.get().is_some() {
            deadlines.response.set(deadline(within));
        }
    });
}

/// Clears the response deadline: the response has begun.
pub(crate) fn clear_response_deadline() {
    let _ = DEADLINES.try_with(|deadlines| deadlines.response.set(None));
}

/// Clears what ends a stream with its token: the response is not a stream.
pub(crate) fn clear_token_deadline() {
    let _ = DEADLINES.try_with(|deadlines| {
        deadlines.token.set(None);
        deadlines.revocation.replace(None);
    });
}

/// Keeps the span of the present request until its end.
pub(crate) fn keep_span(span: RequestSpan) {
    // An error means that no request is being handled.
    let _ = DEADLINES.try_with(|deadlines| deadlines.span.replace(span));
}

/// Takes the span of the present request, to end it.
pub(crate) fn take_span() -> RequestSpan {
    let span = DEADLINES.try_with(|deadlines| deadlines.span.take());
    span.unwrap_or_default()
}

/// Returns the deadline; `None` if it is too far in the future to represent.
fn deadline(within: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(within?)
}

fn set(
    end: impl FnOnce(&Deadlines) -> &Cell<Option<Instant>>,
    within: Option<Duration>,
    request: impl FnOnce() -> Request,
) {
    let at = deadline(within);
    // An error means that no request is being handled.
    let _ = DEADLINES.try_with(|deadlines| {
        end(deadlines).set(at);
        if at.is_some() {
            deadlines.request.get_or_init(request);
        }
    });
}

/// Work that a deadline ended.
#[derive(Debug)]
pub(super) struct TimedOut {
    pub(super) expired: ExpiredDeadline,
    pub(super) request: Option<Request>,
    pub(super) span: RequestSpan,
    /// The time from its begin.
    pub(super) after: Duration,
}

/// Completes the work on one request unless one of its deadlines expires first.
pub(super) async fn within_deadlines<T>(work: impl Future<Output = T>) -> Result<T, TimedOut> {
    let began = Instant::now();
    DEADLINES
        .scope(Deadlines::default(), async {
            let mut work = pin!(work);
            let mut timer: Option<Pin<Box<Sleep>>> = None;
            let expired = poll_fn(|cx| {
                if let Poll::Ready(done) = work.as_mut().poll(cx) {
                    return Poll::Ready(Ok(done));
                }
                if DEADLINES
                    .with(|deadlines| deadlines.poll_revocation(cx))
                    .is_ready()
                {
                    return Poll::Ready(Err(ExpiredDeadline::Revocation));
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
                span: take_span(),
                after: began.elapsed(),
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

    fn never_called() -> Request {
        unreachable!("no deadline, or the request is known")
    }

    #[tokio::test(start_paused = true)]
    async fn expired_work_still_has_its_request() {
        let work = async {
            expire_stream_after(Duration::from_secs(1), || request("/first"));
            expect_body(Some(Duration::from_secs(2)), never_called);
            std::future::pending::<()>().await;
        };
        let timed_out = within_deadlines(work).await.err();
        assert_eq!(
            timed_out.map(|timed_out| (timed_out.expired, timed_out.request, timed_out.after)),
            Some((
                ExpiredDeadline::Token,
                Some(request("/first")),
                Duration::from_secs(1)
            ))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn work_within_its_deadlines_gives_its_result() {
        let work = async {
            expire_stream_after(Duration::from_secs(2), || request("/"));
            tokio::time::sleep(Duration::from_secs(1)).await;
            7
        };
        assert_eq!(within_deadlines(work).await.ok(), Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn expired_work_is_dropped() {
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
    async fn work_without_deadlines_takes_any_time() {
        let work = async {
            expect_body(None, never_called);
            expire_stream_after(Duration::MAX, never_called);
            tokio::time::sleep(Duration::from_secs(1_000_000)).await;
        };
        assert_eq!(within_deadlines(work).await.ok(), Some(()));
        // Outside of any request.
        expire_stream_after(Duration::from_secs(1), never_called);
    }

    #[tokio::test(start_paused = true)]
    async fn the_response_deadline_ends_with_the_begin_of_a_stream() {
        const SECOND: Duration = Duration::from_secs(1);
        let response = |pause: Duration| async move {
            expect_response(Some(2 * SECOND), || request("/events"));
            tokio::time::sleep(SECOND).await;
            extend_response_deadline(Some(2 * SECOND));
            tokio::time::sleep(pause).await;
            clear_response_deadline();
            extend_response_deadline(Some(SECOND));
            tokio::time::sleep(100 * SECOND).await;
        };
        assert_eq!(within_deadlines(response(SECOND)).await.ok(), Some(()));
        let silent = within_deadlines(response(3 * SECOND)).await;
        assert_eq!(expired(silent), Some(ExpiredDeadline::Response));
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_is_no_stream_outlives_the_token() {
        let work = async {
            expire_stream_after(Duration::from_secs(1), || request("/"));
            clear_token_deadline();
            tokio::time::sleep(Duration::from_secs(10)).await;
        };
        assert_eq!(within_deadlines(work).await.ok(), Some(()));
    }

    #[test]
    fn debug_output_has_no_query() {
        let printed = format!("{:?}", request("/a?access_token=secret"));
        assert!(
            printed.contains("/a") && !printed.contains("secret"),
            "{printed}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_may_take_long_if_its_parts_keep_coming() {
        const SECOND: Duration = Duration::from_secs(1);
        let upload = |parts: u32, pause: Duration| async move {
            for _ in 0..parts {
                expect_body(Some(2 * SECOND), || request("/upload"));
                tokio::time::sleep(pause).await;
            }
            expect_body(None, never_called);
            tokio::time::sleep(10 * SECOND).await;
        };
        assert_eq!(within_deadlines(upload(10, SECOND)).await.ok(), Some(()));
        let slow = within_deadlines(upload(10, 3 * SECOND)).await;
        assert_eq!(expired(slow), Some(ExpiredDeadline::Body));
    }
}
