//! Ends a stream when the token that opened it does: a WebSocket, server-sent events, a gRPC call.
//! No other body is cut, however long it takes, as long as it comes.
//!
//! Pingora has no hook that fires on time, so the whole work on a request is given up: HTTP/1.1
//! connections are closed on both sides, of an HTTP/2 connection that stream alone is reset.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use contract::rejection::Rejection;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::proxy::HttpProxy;
use pingora::server::ShutdownWatch;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::access_log::Line;
use crate::outcome::Outcome;
use crate::proxy::AuthProxy;
use crate::reports::Reports;

tokio::task_local! {
    /// The ends of the request that is being worked on; none for most.
    static ENDS: Ends;
}

/// When the work on a request has to end.
#[derive(Debug, Default)]
struct Ends {
    token: Cell<Option<Instant>>,
    /// The next part of its body has to come by then; moved on by each that does.
    body: Cell<Option<Instant>>,
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Token,
    Body,
}

impl Ends {
    fn first(&self) -> Option<(Instant, Over)> {
        let token = self.token.get().map(|end| (end, Over::Token));
        let body = self.body.get().map(|end| (end, Over::Body));
        token.into_iter().chain(body).min_by_key(|(end, _)| *end)
    }
}

/// Has the stream at hand end in `left`, whatever it is doing then.
pub(crate) fn end_in(left: Duration) {
    // Far ahead is as good as never, and must not overflow.
    let end = Instant::now().checked_add(left);
    // Outside of any request there is nothing to end.
    let _ = ENDS.try_with(|ends| ends.token.set(end));
}

/// Has the request at hand end if no more of its body comes `within` this time; `None` when all of it
/// has come. For HTTP/2: over HTTP/1.1 Pingora has a time-out, which can be answered.
pub(crate) fn expect_body(within: Option<Duration>) {
    let end = within.and_then(|within| Instant::now().checked_add(within));
    let _ = ENDS.try_with(|ends| ends.body.set(end));
}

/// The work on one request, or why its time was over before it was.
async fn in_time<T>(request: impl Future<Output = T>) -> Result<T, Over> {
    ENDS.scope(Ends::default(), async {
        let mut request = pin!(request);
        let mut timer: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|cx| {
            if let Poll::Ready(done) = request.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            let Some((end, over)) = ENDS.with(Ends::first) else {
                return Poll::Pending;
            };
            let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
            if timer.deadline() != end {
                timer.as_mut().reset(end);
            }
            timer.as_mut().poll(cx).map(|()| Err(over))
        })
        .await
    })
    .await
}

/// Stands before the proxy and watches the time of each request.
pub(crate) struct TimedRequests {
    pub(crate) proxy: Arc<HttpProxy<AuthProxy>>,
    pub(crate) reports: Reports,
}

impl TimedRequests {
    /// The proxy's own last phase is not reached.
    fn ended(&self, over: Over) {
        let (outcome, cause) = match over {
            Over::Token => {
                self.reports.metrics.stream_ended();
                (Outcome::Verified, "the token of the stream has expired")
            }
            Over::Body => (
                Outcome::Refused(Rejection::RequestTimeout),
                "the body did not come",
            ),
        };
        self.reports.request_ended(outcome, || Line {
            cause: Some(cause.to_owned()),
            ..Line::default()
        });
    }
}

#[async_trait]
impl HttpServerApp for TimedRequests {
    async fn process_new_http(
        self: &Arc<Self>,
        session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let request = self.proxy.process_new_http(session, shutdown);
        in_time(request).await.unwrap_or_else(|over| {
            self.ended(over);
            None
        })
    }

    fn h2_options(&self) -> Option<H2Options> {
        self.proxy.h2_options()
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        self.proxy.server_options()
    }

    async fn http_cleanup(&self) {
        self.proxy.http_cleanup().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_that_is_done_in_time_gives_its_result() {
        let work = async {
            end_in(Duration::from_secs(2));
            tokio::time::sleep(Duration::from_secs(1)).await;
            7
        };
        assert_eq!(in_time(work).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_not_is_dropped() {
        let dropped = Arc::new(());
        let held = Arc::clone(&dropped);
        let work = async move {
            tokio::task::yield_now().await;
            end_in(Duration::from_secs(1));
            std::future::pending::<()>().await;
            drop(held);
        };
        assert_eq!(in_time(work).await, Err(Over::Token));
        assert_eq!(Arc::strong_count(&dropped), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn work_without_an_end_takes_as_long_as_it_takes() {
        let work = tokio::time::sleep(Duration::from_secs(1_000_000));
        assert_eq!(in_time(work).await, Ok(()));
        end_in(Duration::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_may_take_long_as_long_as_it_comes() {
        const SECOND: Duration = Duration::from_secs(1);
        let upload = |parts: u32, pause: Duration| async move {
            for _ in 0..parts {
                expect_body(Some(2 * SECOND));
                tokio::time::sleep(pause).await;
            }
            expect_body(None);
            tokio::time::sleep(10 * SECOND).await;
        };
        assert_eq!(in_time(upload(10, SECOND)).await, Ok(()));
        assert_eq!(in_time(upload(10, 3 * SECOND)).await, Err(Over::Body));
    }
}
