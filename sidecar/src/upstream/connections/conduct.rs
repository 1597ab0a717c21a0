//! The conduct of the service at the ends of messages, as its responses show it. A violation is
//! remembered until the sidecar restarts, a doubt for some seconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::StatusCode;
use parking_lot::Mutex;
use postern_process::logs::access_log::LoggedPath;

use super::LastRequest;
use crate::telemetry::metrics::Metrics;

/// Time of a doubt. A success does not end it: it may be of a path whose bodies the service reads, while
/// it leaves others.
pub(super) const DOUBT: Duration = Duration::from_secs(10);

/// The requests that another one may follow on their connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    Never,
    WithoutBody,
    Always,
}

/// The record of a service.
#[derive(Default)]
pub(crate) struct Conduct {
    metrics: Metrics,
    sent_surplus: AtomicBool,
    left_body: AtomicBool,
    broke_http_2: AtomicBool,
    /// The last failure after a body that may have another cause.
    doubted: Mutex<Option<Instant>>,
}

impl Conduct {
    /// Begins with a service of which nothing is known.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        Self {
            metrics: metrics.clone(),
            ..Self::default()
        }
    }

    /// Returns true if each connection serves one request only.
    pub(super) fn has_sent_surplus(&self) -> bool {
        self.sent_surplus.load(Ordering::Relaxed)
    }

    /// Returns true if each connection of HTTP/2 serves one holder only.
    pub(super) fn has_broken_http_2(&self) -> bool {
        self.broke_http_2.load(Ordering::Relaxed)
    }

    /// Returns true if connections end after bodies.
    pub(super) fn has_left_body(&self) -> bool {
        self.left_body.load(Ordering::Relaxed)
    }

    /// Returns the requests that another one may follow on a connection. A body that no service could
    /// take for a request may stay unread.
    pub(crate) fn reuse(&self, cannot_be_a_request: bool) -> Reuse {
        if self.has_sent_surplus() {
            Reuse::Never
        } else if cannot_be_a_request && !self.has_left_body() {
            Reuse::Always
        } else {
            Reuse::WithoutBody
        }
    }

    /// Returns true if only an idempotent request may follow a body on a connection.
    pub(super) fn may_leave_bodies(&self, now: Instant) -> bool {
        let doubted = *self.doubted.lock();
        doubted.is_some_and(|doubted| now.saturating_duration_since(doubted) < DOUBT)
    }

    /// Notes bytes that followed the response to `last`.
    pub(crate) fn surplus_after(&self, last: &LastRequest) {
        // Logged once: from then on connections are used in another way.
        if !self.sent_surplus.swap(true, Ordering::Relaxed) {
            self.metrics.upstream_sent_surplus.set(1);
            tracing::warn!(
                method = %last.method, path = %LoggedPath(&last.target),
                "the service sent bytes after the end of a response; from now on each connection to it serves \
                 one request only"
            );
        }
        // The surplus may be the response to the body, taken for a request.
        if last.has_body {
            self.body_was_left(last);
        }
    }

    /// Notes a frame that ended a connection of HTTP/2, with the requests of all holders.
    pub(crate) fn http_2_was_broken(&self) {
        if !self.broke_http_2.swap(true, Ordering::Relaxed) {
            self.metrics.upstream_broke_http2.set(1);
            tracing::warn!(
                "the service sent what HTTP/2 forbids, such as a control byte in a field, which ends a \
                 connection with all its requests; from now on each connection serves one user or client only"
            );
        }
    }

    /// Notes that the body of `last` was taken for a part of the request that followed it.
    pub(crate) fn body_was_left(&self, last: &LastRequest) {
        if !self.left_body.swap(true, Ordering::Relaxed) {
            self.metrics.upstream_left_body.set(1);
            tracing::warn!(
                method = %last.method, path = %LoggedPath(&last.target),
                "the service left the body of a request unread, and took it for a part of the next request; from \
                 now on its connections end after bodies"
            );
        }
    }

    /// Notes a failure after a body that may have another cause.
    pub(crate) fn body_may_be_left(&self, now: Instant) {
        *self.doubted.lock() = Some(now);
    }
}

/// Returns true for a status with which services respond to a request line that they cannot read.
pub(crate) fn is_of_misread_request(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 405 | 501 | 505)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_behind_a_body_is_a_body_that_was_left() {
        for has_body in [false, true] {
            let conduct = Conduct::default();
            let last = LastRequest::new(http::Method::POST, b"/orders", has_body);
            conduct.surplus_after(&last);
            assert!(conduct.has_sent_surplus());
            assert_eq!(conduct.has_left_body(), has_body);
        }
    }
}
