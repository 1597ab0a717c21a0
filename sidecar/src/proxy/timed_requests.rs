//! Requests with deadlines, which end them in any phase.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::proxy::HttpProxy;
use pingora::server::ShutdownWatch;
use wire::rejection::Rejection;

use super::phases::AuthProxy;
use super::stream_deadline::{ExpiredDeadline, TimedOut, within_deadlines};
use crate::downstream::stream::ConnectionInfo;
use crate::telemetry::access_log::RequestRecord;
use crate::telemetry::outcome::{Completion, Outcome};
use crate::telemetry::request_log::RequestLogger;
use crate::upstream::Upstream;

/// The proxy, with deadlines around each request.
pub(crate) struct TimedRequests {
    pub(crate) proxy: Arc<HttpProxy<AuthProxy>>,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) request_logger: RequestLogger,
}

impl TimedRequests {
    /// Reports a request that a deadline ended: the proxy's own last phase is not reached.
    fn ended(&self, timed_out: TimedOut) {
        let TimedOut {
            expired,
            request,
            span,
            after,
        } = timed_out;
        let (outcome, cause) = match expired {
            ExpiredDeadline::Token => {
                self.request_logger.metrics.stream_ended();
                (Outcome::Verified, "the token of the stream has expired")
            }
            ExpiredDeadline::Revocation => {
                self.request_logger.metrics.stream_ended();
                (Outcome::Verified, "the token of the stream was revoked")
            }
            ExpiredDeadline::Body => (
                Outcome::Rejected(Rejection::RequestTimeout),
                "the request body timed out",
            ),
            ExpiredDeadline::Response => (
                Outcome::Rejected(Rejection::UpstreamTimeout),
                "the response timed out",
            ),
        };
        let request = request.as_ref();
        let completion = Completion {
            outcome,
            status: None,
            duration: Some(after),
        };
        self.request_logger
            .request_ended(&completion, span, || RequestRecord {
                request: request.map(|request| (&request.method, &*request.target)),
                client: request.and_then(|request| request.client),
                upstream: (expired == ExpiredDeadline::Response)
                    .then(|| self.upstream.address().to_string()),
                cause: Some(cause.to_owned()),
                request_id: request.and_then(|request| request.request_id.clone()),
                trace_id: request.and_then(|request| request.trace_id),
                ..RequestRecord::default()
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
        let stream = ConnectionInfo::of(session.digest());
        let _open = stream.map(|connection| connection.activity.stream());
        let request = self.proxy.process_new_http(session, shutdown);
        within_deadlines(request).await.unwrap_or_else(|timed_out| {
            self.ended(timed_out);
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
