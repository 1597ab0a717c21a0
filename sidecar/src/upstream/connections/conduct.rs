//! The conduct of the service at the ends of messages, as its responses show it. A violation is
//! remembered until the sidecar restarts.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use http::StatusCode;
use pingora::connectors::TransportConnector;
use runtime::logs::access_log::LoggedPath;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::LastRequest;
use crate::telemetry::metrics::Metrics;
use crate::upstream::ServicePeer;

/// Bodies that a service has to read in a row before another holder follows one on its connection.
const READ_IN_A_ROW: u32 = 32;
/// A request line behind the body `a=1`, as a service finds it that has not read the body.
const SPOILED_LINE: &[u8] =
    b"a=1OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
/// Time of the service to respond to it.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The record of a service of HTTP/1.x.
#[derive(Default)]
pub(crate) struct Conduct {
    metrics: Metrics,
    sent_surplus: AtomicBool,
    left_body: AtomicBool,
    read_in_a_row: AtomicU32,
    /// True once it has read a body.
    has_read: AtomicBool,
    has_been_doubted: AtomicBool,
    /// True if a body that was left unread would be seen by the response to the next request.
    rejects_spoiled_lines: AtomicBool,
}

impl Conduct {
    /// Begins with a service of which nothing is known.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        Self {
            metrics: metrics.clone(),
            ..Self::default()
        }
    }

    /// Returns true if each connection serves one holder only.
    pub(super) fn has_sent_surplus(&self) -> bool {
        self.sent_surplus.load(Ordering::Relaxed)
    }

    /// Returns true if connections end behind bodies.
    pub(crate) fn has_left_body(&self) -> bool {
        self.left_body.load(Ordering::Relaxed)
    }

    /// Returns true if a body on a connection is no reason against another holder.
    pub(super) fn reads_bodies(&self) -> bool {
        self.read_in_a_row.load(Ordering::Relaxed) == READ_IN_A_ROW
            && self.rejects_spoiled_lines.load(Ordering::Relaxed)
    }

    /// Notes bytes that followed the response to `last`.
    pub(crate) fn surplus_after(&self, last: &LastRequest) {
        if !self.sent_surplus.swap(true, Ordering::Relaxed) {
            self.metrics.upstream_sent_surplus.set(1);
            tracing::warn!(
                method = %last.method, path = %LoggedPath(&last.target),
                "the service sent bytes after the end of a response; from now on each connection to it serves \
                 one client or user only"
            );
        }
        if last.has_body {
            self.body_was_left(last);
        }
    }

    /// Notes that the body of `last` was taken for a part of the request that followed it.
    pub(crate) fn body_was_left(&self, last: &LastRequest) {
        if !self.left_body.swap(true, Ordering::Relaxed) {
            self.metrics.upstream_left_body.set(1);
            tracing::warn!(
                method = %last.method, path = %LoggedPath(&last.target),
                "the service left the body of a request unread, and took it for a part of the next request; from \
                 now on its connections end behind bodies"
            );
        }
    }

    /// Notes a failure behind the body of `last` that may have another cause. It takes back what the
    /// service has earned; the second one counts if it has not read any body before.
    pub(crate) fn body_may_be_left(&self, last: &LastRequest) {
        self.read_in_a_row.store(0, Ordering::Relaxed);
        let was_doubted = self.has_been_doubted.swap(true, Ordering::Relaxed);
        if was_doubted && !self.has_read.load(Ordering::Relaxed) {
            self.body_was_left(last);
        }
    }

    /// Notes a sound response behind a body; returns true if it was the last one that the service needs.
    pub(crate) fn body_was_read(&self) -> bool {
        self.has_read.store(true, Ordering::Relaxed);
        let one_more = |read| (read < READ_IN_A_ROW).then_some(read + 1);
        let counter = &self.read_in_a_row;
        counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            == Ok(READ_IN_A_ROW - 1)
    }

    /// Sends the service a request as it would find it behind an unread body. Only the responses of one
    /// that rejects it say anything of bodies.
    pub(super) async fn probe(&self, connector: &TransportConnector, peer: &ServicePeer) {
        let rejects = timeout(RESPONSE_TIMEOUT, rejects_spoiled_line(connector, peer));
        let rejects = rejects.await.is_ok_and(|rejects| rejects);
        self.rejects_spoiled_lines.store(rejects, Ordering::Relaxed);
    }
}

async fn rejects_spoiled_line(connector: &TransportConnector, peer: &ServicePeer) -> bool {
    let Ok(mut stream) = connector.new_stream(&peer.http_1).await else {
        return false;
    };
    if stream.write_all(SPOILED_LINE).await.is_err() || stream.flush().await.is_err() {
        return false;
    }
    let mut version_and_status = *b"HTTP/1.1 200";
    match stream.read_exact(&mut version_and_status).await {
        Ok(_) => StatusCode::from_bytes(&version_and_status[9..]).is_ok_and(may_be_misread),
        // It closed the connection instead.
        Err(_) => true,
    }
}

/// Returns true for a status with which services respond to a request line that they cannot read.
pub(crate) fn may_be_misread(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 405 | 501 | 505)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(has_body: bool) -> LastRequest {
        LastRequest::new(http::Method::POST, b"/orders", has_body)
    }

    #[test]
    fn doubt_takes_back_what_a_service_has_earned_or_marks_it() {
        for (reads, is_marked) in [(0, true), (1, false)] {
            let conduct = Conduct::default();
            for _ in 0..reads {
                assert!(!conduct.body_was_read());
            }
            conduct.body_may_be_left(&last(true));
            assert!(!conduct.has_left_body());
            conduct.body_may_be_left(&last(true));
            assert_eq!(conduct.has_left_body(), is_marked, "{reads}");
            assert!(!conduct.has_sent_surplus());
        }
    }

    #[test]
    fn a_service_is_trusted_after_bodies_in_a_row_and_a_probe() {
        let conduct = Conduct::default();
        let read = |times: u32| (0..times).filter(|_| conduct.body_was_read()).count();
        assert_eq!(read(READ_IN_A_ROW - 1), 0);
        conduct.body_may_be_left(&last(true));
        assert_eq!(read(READ_IN_A_ROW - 1), 0);
        assert_eq!(read(10), 1);
        assert!(!conduct.reads_bodies());
        conduct.rejects_spoiled_lines.store(true, Ordering::Relaxed);
        assert!(conduct.reads_bodies());
    }

    #[test]
    fn surplus_behind_a_body_is_a_body_that_was_left() {
        for has_body in [false, true] {
            let conduct = Conduct::default();
            conduct.surplus_after(&last(has_body));
            assert!(conduct.has_sent_surplus());
            assert_eq!(conduct.has_left_body(), has_body);
        }
    }
}
