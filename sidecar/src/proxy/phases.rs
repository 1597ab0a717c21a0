//! Pingora's phases of one request of HTTP/2. Each delegates: [`crate::auth::authorize`] decides about the
//! request, [`crate::proxy::response`] writes our own responses.

mod context;
mod deadlines;
pub(super) mod decision;
mod downstream_session;
mod log_fields;
mod own_response;
mod upstream_response;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::proxy::{FailToProxy, ProxyHttp, Session};
use pingora::upstreams::peer::{HttpPeer, Peer};
use pingora::{Error, ErrorType};

use self::context::RequestContext;
use self::decision::Action;
use self::downstream_session::{address_of, has_response, has_tls};
use crate::background::Draining;
use crate::config::live::CurrentRules;
use crate::downstream::in_flight::InFlight;
use crate::downstream::stream::EndedResponses;
use crate::headers::forwarded::Client;
use crate::keys::issuer_keys::IssuerKeys;
use crate::proxy::stream_deadline;
use crate::telemetry::access_log::{LoggedPath, RequestRecord};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::outcome::{Completion, Outcome};
use crate::telemetry::request_log::RequestLogger;
use crate::upstream::errors;
use crate::upstream::{Sent, Upstream};

/// The proxy in front of the service. Shared by all requests, without a lock.
#[derive(Debug, Clone)]
pub(crate) struct AuthProxy {
    pub(crate) rules: Arc<CurrentRules>,
    pub(crate) keys: Arc<IssuerKeys>,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) request_logger: RequestLogger,
    pub(crate) request_body_timeout: Option<Duration>,
    pub(crate) downstream_write_timeout: Option<Duration>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) close_streams_on_expiry: bool,
    pub(crate) metrics: Metrics,
    pub(crate) request_ids: bool,
    pub(crate) draining: Draining,
}

/// Returns the error of a phase that only an authorized request may reach.
fn not_authorized() -> Box<Error> {
    Error::new_in(ErrorType::InternalError)
}

#[async_trait]
impl ProxyHttp for AuthProxy {
    type CTX = RequestContext;

    fn new_ctx(&self) -> RequestContext {
        RequestContext::new(self.rules.load(), self.metrics.request_began())
    }

    /// Adds no module: the default one, compression, allocates for each request.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn request_filter(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> pingora::Result<bool> {
        self.begin(session, ctx);
        let decision = self.decide(session, ctx).await;
        let client = || self.client_of(session);
        match self.act_on(decision, client, &ctx.rules.auth_policy, ctx.decided) {
            Action::Forward(forward, permit) => {
                self.prepare(session, &forward, &ctx.ids);
                ctx.forward(forward, permit, EndedResponses::of(session));
                Ok(false)
            }
            Action::Respond(outcome, response) => {
                ctx.outcome = outcome;
                self.respond(session, ctx, response).await;
                Ok(true)
            }
        }
    }

    async fn upstream_peer(
        &self,
        _session: &mut Session,
        ctx: &mut RequestContext,
    ) -> pingora::Result<Box<HttpPeer>> {
        if let Some(pause) = ctx.tries.pause() {
            tokio::time::sleep(pause).await;
        }
        let forward = ctx.forward.as_ref().ok_or_else(not_authorized)?;
        if let Some(peer) = self.upstream.peer(forward.kind) {
            return Ok(peer);
        }
        let mut error = Error::explain(ErrorType::ConnectError, "no address").into_up();
        error.set_retry(ctx.tries.after_connecting(&error, Instant::now()));
        Err(error)
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        peer: &HttpPeer,
        ctx: &mut RequestContext,
        mut error: Box<Error>,
    ) -> Box<Error> {
        self.upstream.unreachable(peer);
        ctx.failed_at = Some(peer.address().clone());
        error.set_retry(ctx.tries.after_connecting(&error, Instant::now()));
        error
    }

    fn error_while_proxy(
        &self,
        peer: &HttpPeer,
        session: &mut Session,
        mut error: Box<Error>,
        ctx: &mut RequestContext,
        reused: bool,
    ) -> Box<Error> {
        let sent = Sent {
            method: &session.req_header().method,
            reused,
            repeatable: !session.as_ref().retry_buffer_truncated() && !has_response(session),
        };
        let again = ctx.tries.after_sending(&error, sent, Instant::now());
        error.set_retry(again);
        ctx.failed_at = Some(peer.address().clone());
        error
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut RequestContext,
    ) -> pingora::Result<()> {
        let forward = ctx.forward.as_ref().ok_or_else(not_authorized)?;
        self.upstream.has_chosen(request.version);
        ctx.rules.upstream_request.rewrite_request(
            request,
            session.req_header().version,
            forward,
            &ctx.ids,
            &ctx.rules.auth_policy,
            &Client::new(
                address_of(session),
                has_tls(session),
                &self.request_logger.trusted_proxies,
            ),
        )
    }

    async fn request_body_filter(
        &self,
        session: &mut Session,
        _body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut RequestContext,
    ) -> pingora::Result<()> {
        self.on_request_body(session, end_of_stream, ctx);
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut RequestContext,
    ) -> pingora::Result<()> {
        self.on_upstream_response(response, ctx)
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut RequestContext,
    ) -> pingora::Result<()> {
        self.adapt_response(session, response, ctx)
    }

    fn response_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut RequestContext,
    ) -> pingora::Result<Option<Duration>> {
        self.extend_response_deadline(end_of_stream);
        if end_of_stream {
            self.on_response_end(session, ctx);
        }
        if let Some(permit) = &ctx.permit {
            *body = body.take().map(|data| permit.held_by(data));
        }
        Ok(None)
    }

    async fn response_trailer_filter(
        &self,
        session: &mut Session,
        _trailers: &mut HeaderMap,
        ctx: &mut RequestContext,
    ) -> pingora::Result<Option<Bytes>> {
        self.on_response_end(session, ctx);
        Ok(None)
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut RequestContext,
    ) -> FailToProxy {
        let rejection = errors::rejection_of(error);
        ctx.outcome = rejection.map_or(Outcome::Aborted, Outcome::Rejected);
        self.respond_to_error(session, ctx, rejection).await;
        FailToProxy {
            error_code: rejection.map_or(0, |rejection| rejection.status().as_u16()),
            can_reuse_downstream: false,
        }
    }

    async fn logging(
        &self,
        session: &mut Session,
        error: Option<&Error>,
        ctx: &mut RequestContext,
    ) {
        let request = session.req_header();
        let completion = Completion {
            outcome: ctx.outcome,
            status: session.response_written().map(|head| head.status.as_u16()),
            duration: Some(ctx.began.elapsed()),
        };
        let span = stream_deadline::take_span();
        let record = || RequestRecord {
            request: Some((&request.method, request.raw_path())),
            client: self.client_ip(address_of(session), &request.headers),
            user: self.logged_user(&ctx.rules, ctx.forward.as_ref()),
            issuer: ctx.rules.auth_policy.issuer_name(
                ctx.forward.as_ref(),
                &request.headers,
                false,
            ),
            upstream_duration: ctx.upstream_duration,
            bytes: completion
                .status
                .and_then(|_| session.body_bytes_sent().try_into().ok()),
            upstream: self.failed_upstream_addr(ctx.outcome, ctx.failed_at.as_ref()),
            cause: error.map(errors::log_cause),
            request_id: ctx.ids.request_id().cloned(),
            trace_id: ctx.ids.trace_id(&request.headers),
        };
        if error.is_some_and(errors::was_reset_for_framing) {
            self.request_logger
                .request_ended_by_reported_rejection(&completion, span, record);
        } else {
            self.request_logger.request_ended(&completion, span, record);
        }
    }

    /// Suppresses Pingora's own error log: the access log has the error.
    fn suppress_error_log(&self, _: &Session, _: &RequestContext, _: &Error) -> bool {
        true
    }

    /// Returns a summary without the query, unlike Pingora's own.
    fn request_summary(&self, session: &Session, _ctx: &RequestContext) -> String {
        let request = session.req_header();
        format!("{} {}", request.method, LoggedPath(request.raw_path()))
    }
}
