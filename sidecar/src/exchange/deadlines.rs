//! The deadlines of one request: the pace of its body, the parts of both sides, and the end of the
//! token that opened a stream.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pingora::{Error, ErrorType};
use postern_process::clock;
use tokio::task::unconstrained;
use tokio::time::Instant;

use super::downstream::{Downstream, LINGER_TIMEOUT, Outgoing, Timer};
use super::response_head::ResponseHead;
use super::transfer::give_way;
use super::upload::Upload;
use crate::decision::forward::Forward;
use crate::exchange::app::App;
use postern_http::request::kind::RequestKind;
use postern_http::request::received::ReceivedHead;

/// The errors of a stream that ends with its token.
const TOKEN_EXPIRED: ErrorType = ErrorType::Custom("the token of the stream has expired");
const TOKEN_REVOKED: ErrorType = ErrorType::Custom("the token of the stream was revoked");

/// Returns true for the end of a stream with its token.
pub(super) fn ends_with_token(error: &Error) -> bool {
    [TOKEN_EXPIRED, TOKEN_REVOKED].contains(error.etype())
}

/// The timeouts of both sides, and the ends of the timeouts that run.
#[derive(Default)]
pub(super) struct Deadlines {
    /// Pace of the request's body; `None` for a body that may last.
    pace: Option<Pace>,
    /// Timeout between two parts of the request's body.
    body: Option<Duration>,
    /// Timeout between two parts of the response.
    response: Option<Duration>,
    /// Expiry of the token that opened a stream.
    token: Option<Instant>,
    /// Completes when that token is revoked.
    revocation: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The ends of the present waits.
    pub(super) body_until: Option<Instant>,
    pub(super) response_until: Option<Instant>,
}

impl Deadlines {
    /// Creates the deadlines of a request until its response begins.
    pub(super) fn new(app: &App, head: &ReceivedHead, forward: &Forward, to_http_1: bool) -> Self {
        let mut deadlines = Self {
            pace: Pace::for_request(app, head, forward, to_http_1),
            body: match forward.kind {
                // A call waits for parts of its body no longer than for its response.
                RequestKind::Grpc => None,
                _ => app.request_body_timeout,
            },
            response: app.upstream.read_timeout(),
            ..Self::default()
        };
        if forward.kind != RequestKind::Plain {
            deadlines.end_with_token(app, forward);
        }
        deadlines
    }

    fn end_with_token(&mut self, app: &App, forward: &Forward) {
        if !app.close_streams_on_expiry {
            return;
        }
        self.token = None;
        if let Some(ends_at) = forward.ends_at {
            self.token = Instant::now().checked_add(clock::until(ends_at));
        }
        // One wait for the revocation lasts from the request to the end of its stream.
        if self.revocation.is_none()
            && let Some(verified) = &forward.verified
            && let Some(keys) = app.keys.get(verified.key_set)
        {
            // `unconstrained`: a busy transfer may have used up the task's budget.
            let revoked = unconstrained(Arc::clone(&keys.list).revoked(verified.digests));
            self.revocation = Some(Box::pin(revoked));
        }
    }

    /// Changes the deadlines for the rest of the response: event streams and tunnels may be silent, and end
    /// with their token.
    pub(super) fn response_began(&mut self, app: &App, forward: &Forward, head: &ResponseHead) {
        let may_be_silent = forward.kind != RequestKind::Plain;
        // Only a stream ends with its token; any other response that has begun may finish.
        self.token = None;
        if head.is_stream {
            self.end_with_token(app, forward);
            if may_be_silent {
                self.response = None;
            }
        } else {
            self.revocation = None;
            if may_be_silent {
                // Until now the call had the timeout of its response alone.
                self.body = app.request_body_timeout;
                // The client has its write timeout for each part too.
                let send = app.downstream_write_timeout.unwrap_or_default();
                let read = app.upstream.read_timeout();
                self.response = read.map(|read| read.saturating_add(send));
            }
        }
        // A tunnel may be silent in both directions for as long as its token holds.
        if head.opens_tunnel() {
            (self.body, self.pace) = (None, None);
        }
    }

    /// Gives the rest of the request a shorter time: the service may still read it.
    pub(super) fn begin_rest(&mut self) {
        self.body = Some(self.body.unwrap_or(LINGER_TIMEOUT).min(LINGER_TIMEOUT));
        // The client has its response: the end of the token would cut off nothing but the rest.
        self.token = None;
        // The timeout that runs may be longer than the new one.
        self.body_until = None;
    }

    /// Receives a part of the body; returns false while the client sends none. Framing without data, like
    /// extensions and trailers, is silence: it could go on forever.
    pub(super) fn poll_body(
        &mut self,
        downstream: &mut impl Downstream,
        upload: &mut Upload,
        cx: &mut Context<'_>,
    ) -> pingora::Result<bool> {
        let before = upload.received;
        if let Poll::Ready(received) = downstream.poll_receive(upload, cx) {
            received?;
            let bytes = upload.received - before;
            if bytes > 0 {
                if let Some(pace) = &mut self.pace {
                    pace.received(bytes);
                }
                self.body_until = None;
            }
            return Ok(true);
        }
        // `Pace::left` begins the wait for which the next part is charged.
        let limit = match (self.pace.as_mut().map(Pace::left), self.body) {
            (Some(pace), Some(body)) => Some(pace.min(body)),
            (pace, body) => pace.or(body),
        };
        start(&mut self.body_until, limit);
        Ok(false)
    }

    /// Waits for a part of the response.
    pub(super) fn await_response(&mut self) {
        start(&mut self.response_until, self.response);
    }

    /// Waits for the end of the request after its response.
    pub(super) fn await_end(&mut self) {
        start(&mut self.response_until, Some(LINGER_TIMEOUT));
    }

    /// Returns the error of the first deadline that has passed.
    pub(super) fn poll(&mut self, timer: &mut Timer, cx: &mut Context<'_>) -> Poll<Box<Error>> {
        // The revocation is polled each time, before the timers: it has to leave its waker.
        if let Some(revocation) = &mut self.revocation
            && revocation.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Error::new_in(TOKEN_REVOKED));
        }
        let ends = [self.body_until, self.response_until, self.token];
        let Some(first) = ends.into_iter().flatten().min() else {
            // Nothing is timed now: the client, the service or the revocation wakes the task.
            return Poll::Pending;
        };
        ready!(timer.poll_until(cx, first));
        // Of equal deadlines the token's comes first: its end is an error of neither side.
        Poll::Ready(match first {
            first if self.token == Some(first) => Error::new_in(TOKEN_EXPIRED),
            first if self.body_until == Some(first) => Error::new_down(ErrorType::ReadTimedout),
            _ => Error::new_up(ErrorType::ReadTimedout),
        })
    }
}

/// Starts a timeout unless it is running.
fn start(until: &mut Option<Instant>, limit: Option<Duration>) {
    if until.is_none()
        && let Some(limit) = limit
    {
        *until = Instant::now().checked_add(limit);
    }
}

/// Receives a short body, or the beginning of a long one, before its request is forwarded: at the pace of a body
/// that the service waits for, because the request holds a permit of the sidecar. The `interim` response may
/// request the body.
pub(super) async fn hold(
    downstream: &mut impl Downstream,
    upload: &mut Upload,
    interim: &mut Outgoing,
    timeout: Option<Duration>,
) -> pingora::Result<()> {
    let mut deadlines = Deadlines {
        pace: Some(Pace::new(FIRST, timeout)),
        body: timeout,
        ..Deadlines::default()
    };
    poll_fn(|cx| {
        // The interim response may be the 100 without which the client sends no body.
        downstream.poll_send(interim, cx)?;
        while !upload.is_held() {
            let received = deadlines.poll_body(downstream, upload, cx)?;
            if upload.has_more {
                give_way(cx);
            }
            // After much framing too, which stops no deadline that runs.
            if upload.has_more || !received {
                return deadlines.poll(downstream.timer(), cx).map(Err);
            }
        }
        Poll::Ready(Ok(()))
    })
    .await
}

/// The time that each client has at first, before received bytes add to it.
const FIRST: Duration = Duration::from_secs(10);
/// Slower than any line that is in use, and enough to make a held worker expensive.
const BYTES_PER_SECOND: u64 = 1024;

/// The time that a client may still let the service wait: each received byte adds to it.
#[derive(Debug, Clone, Copy)]
struct Pace {
    left: Duration,
    /// The time up to which bytes add: a fast start gives no hours for the end.
    most: Duration,
    /// Begin of the present wait.
    since: Option<Instant>,
}

impl Pace {
    /// Begins with the time `left`, for a client that may be silent for `silence`.
    fn new(left: Duration, silence: Option<Duration>) -> Self {
        Self {
            left,
            most: FIRST.saturating_add(silence.unwrap_or(Duration::MAX)),
            since: None,
        }
    }

    /// Returns the pace of a request's body; `None` for one that lasts as long as its client wants.
    fn for_request(
        app: &App,
        head: &ReceivedHead,
        forward: &Forward,
        to_http_1: bool,
    ) -> Option<Self> {
        let silence = app.request_body_timeout;
        let more = match &forward.verified {
            _ if !forward.may_last(head, to_http_1) => Duration::ZERO,
            // As a stream, the body may last until its token ends.
            Some(_) if !app.close_streams_on_expiry => return None,
            // A token that never expires leaves its body without a pace.
            Some(_) => clock::until(forward.ends_at?),
            // A call without a token may wait once for its response.
            None => silence?,
        };
        // `silence` limits the time that received bytes add later.
        Some(Self::new(FIRST.saturating_add(more), silence))
    }

    /// Begins a wait for the client, unless one is running; returns the time that was left for it.
    fn left(&mut self) -> Duration {
        self.since.get_or_insert_with(Instant::now);
        self.left
    }

    /// Ends the wait with a part of so many bytes.
    fn received(&mut self, bytes: u64) {
        let waited = self.since.take().map(|since| since.elapsed());
        let earned = Duration::from_millis(bytes.saturating_mul(1000) / BYTES_PER_SECOND);
        let left = self.left.saturating_sub(waited.unwrap_or_default());
        // `most` limits what is earned, and takes nothing of what was left.
        self.left = left.max(left.saturating_add(earned).min(self.most));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_takes_time_and_bytes_give_some() {
        let mut pace = Pace::new(FIRST, None);
        assert_eq!(pace.left(), FIRST);
        pace.since = pace.since.and_then(|since| since.checked_sub(FIRST / 2));
        pace.received(BYTES_PER_SECOND);
        let left = pace.left();
        let expected = FIRST / 2 + Duration::from_secs(1);
        assert!(
            left <= expected && left > expected - Duration::from_secs(5),
            "{left:?}"
        );
        pace.since = pace.since.and_then(|since| since.checked_sub(FIRST * 2));
        pace.received(0);
        assert!(pace.left().is_zero());
    }

    #[test]
    fn bytes_save_no_more_time_than_a_silence() {
        let minute = Duration::from_secs(60);
        for (begun, saved) in [(FIRST, FIRST + minute), (60 * minute, 60 * minute)] {
            let mut pace = Pace::new(begun, Some(minute));
            pace.received(1 << 30);
            assert_eq!(pace.left(), saved);
        }
    }
}
