//! Pingora's phases of one request. Each delegates: [`crate::auth::authorize`] decides about the
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
use contract::rejection::Rejection;
use http::{HeaderMap, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::proxy::{FailToProxy, ProxyHttp, Session};
use pingora::upstreams::peer::{HttpPeer, Peer};
use pingora::{Error, ErrorType};

use self::context::RequestContext;
use self::decision::Action;
use self::downstream_session::{
    address_of, allow_pipelining, client_stream, has_response, has_tls, set_handling,
};
use crate::auth::strip_token;
use crate::background::Draining;
use crate::config::live::CurrentRules;
use crate::downstream::limits::InFlight;
use crate::downstream::stream::EndedResponses;
use crate::headers::forwarded::Client;
use crate::keys::issuer_keys::IssuerKeys;
use crate::proxy::response::LocalResponse;
use crate::proxy::stream_deadline;
use crate::request::head;
use crate::request::kind::RequestKind;
use crate::telemetry::access_log::{LoggedPath, RequestRecord};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::outcome::{Completion, Outcome};
use crate::telemetry::request_id::{CorrelationPolicy, RequestIds};
use crate::telemetry::request_log::RequestLogger;
use crate::telemetry::request_span::{RequestSpan, SpanHead};
use crate::upstream::errors;
use crate::upstream::response;
use crate::upstream::{Sent, Tries, Upstream};

/// The proxy in front of the service. Shared by all requests, without a lock.
#[derive(Debug, Clone)]
pub(crate) struct AuthProxy {
    pub(crate) rules: Arc<CurrentRules>,
    pub(crate) keys: Arc<IssuerKeys>,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) request_logger: RequestLogger,
    pub(crate) request_body_timeout: Option<Duration>,
    pub(crate) send_timeout: Option<Duration>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) end_streams: bool,
    pub(crate) metrics: Metrics,
    pub(crate) correlation: CorrelationPolicy,
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
        let now = Instant::now();
        RequestContext {
            rules: self.rules.load(),
            forward: None,
            permit: None,
            outcome: Outcome::Aborted,
            tries: Tries::default(),
            failed_at: None,
            ids: RequestIds::default(),
            began: now,
            decided: now,
            counted: Some(self.metrics.request_began()),
            upstream_duration: None,
            span: RequestSpan::default(),
        }
    }

    /// Adds no module: the default one, compression, allocates for each request.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn request_filter(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> pingora::Result<bool> {
        set_handling(session, true);
        allow_pipelining(session);
        if session.is_http2() {
            // For each stream, beside the write timeout of the connection.
            session.set_write_timeout(self.send_timeout);
        }
        self.limit_connection(session);
        let request = session.req_header();
        ctx.ids = self.correlation.ids(&request.headers);
        let head = SpanHead {
            method: &request.method,
            target: request.raw_path(),
            version: request.version,
            headers: &request.headers,
            tls: has_tls(session),
        };
        ctx.span = RequestSpan::begin(head, &mut ctx.ids);
        let mut decision = self.authorize_session(session, &ctx.rules.auth_policy, ctx.began);
        if decision == Err(Rejection::TokenKeyUnknown.into())
            && let Some(fetch) = self.early_fetch_for(session, &ctx.rules.auth_policy)
        {
            // Its issuer may have a newer key.
            let fetch = fetch.wait(Instant::now());
            decision = match self.while_waiting(session.is_http2(), fetch).await {
                Some(()) => self.authorize_session(session, &ctx.rules.auth_policy, Instant::now()),
                None => Err(Rejection::ServerBusy.into()),
            };
        }
        if let Err(refusal) = decision {
            decision = head::with_request_head(session.as_downstream(), |head| {
                self.or_reported(refusal, &ctx.rules.auth_policy, head)
            });
        }
        ctx.decided = Instant::now();
        self.metrics
            .decided(ctx.decided.saturating_duration_since(ctx.began));
        let action = self.act_on(decision, &ctx.rules.auth_policy, ctx.decided);
        let (outcome, response) = match action {
            Action::Forward(forward, permit) => {
                self.prepare(session, &forward, &ctx.ids);
                ctx.forward(forward, permit, EndedResponses::of(session));
                return Ok(false);
            }
            Action::Respond(outcome, response) => (outcome, response),
        };
        ctx.outcome = outcome;
        let response = response
            .challenging(ctx.rules.auth_policy.resource.as_deref())
            .with(Self::common_response_headers(
                &ctx.rules,
                &ctx.ids,
                &session.req_header().headers,
            ));
        let is_http2 = session.is_http2();
        let sent = self.while_waiting(is_http2, response.send(session)).await;
        if !matches!(sent, Some(Ok(()))) {
            session.set_keepalive(None);
        }
        Ok(true)
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
        if forward.kind != RequestKind::WebSocket {
            self.upstream.has_chosen(request.version);
        }
        ctx.rules.upstream_request.rewrite_request(
            request,
            session.req_header().version,
            forward,
            &ctx.ids,
            &ctx.rules.auth_policy,
            &Client::new(address_of(session), has_tls(session)),
        )
    }

    async fn request_body_filter(
        &self,
        session: &mut Session,
        _body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut RequestContext,
    ) -> pingora::Result<()> {
        if let Some(RequestKind::EventStream | RequestKind::Grpc) = ctx.kind() {
            // The service may wait for the whole body before it responds.
            stream_deadline::extend_response_deadline(self.upstream.read_timeout());
        }
        if session.is_http2() && ctx.kind() != Some(RequestKind::Grpc) {
            let within = self.request_body_timeout.filter(|_| !end_of_stream);
            stream_deadline::expect_body(within, || self.request_record(session, &ctx.ids));
        }
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut RequestContext,
    ) -> pingora::Result<()> {
        if response.status == StatusCode::SWITCHING_PROTOCOLS
            && ctx.kind() != Some(RequestKind::WebSocket)
        {
            // The client did not request a tunnel.
            return Err(Error::new_up(ErrorType::InvalidHTTPHeader));
        }
        response::unify_length(response)?;
        if !response.status.is_informational() {
            let after = ctx.decided.elapsed();
            self.metrics.service_responded(after);
            ctx.upstream_duration = Some(after);
        }
        Ok(())
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut RequestContext,
    ) -> pingora::Result<()> {
        if let Some(forward) = &mut ctx.forward {
            self.on_response_header(session, response, forward, &ctx.ids);
        }
        if response.status == StatusCode::SWITCHING_PROTOCOLS {
            session.set_read_timeout(None);
            if let Some(stream) = client_stream(session) {
                stream.set_tunnel();
            }
            let offered = &session.req_header().headers;
            let sources = ctx.rules.auth_policy.interceptor.sources();
            strip_token::choose_protocol(response, sources, offered)?;
        }
        response::correct(response, session.req_header().version);
        if response::ends_connection(response, session.req_header()) {
            session.set_keepalive(None);
        }
        if let Some((name, value)) = ctx.ids.echo() {
            response.insert_header(name, value)?;
        }
        if self.draining.is_on() {
            session.set_keepalive(None);
        }
        Ok(())
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
        if session.is_http2()
            && let Some(permit) = &ctx.permit
        {
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
        session.set_keepalive(None);
        if let Some(rejection) = rejection.filter(|_| !has_response(session)) {
            // An error means that the client is gone.
            let response = LocalResponse::rejection(rejection).with(Self::common_response_headers(
                &ctx.rules,
                &ctx.ids,
                &session.req_header().headers,
            ));
            let _ = response.send(session).await;
        }
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
        let client = || self.client_ip(address_of(session), &request.headers);
        let mut span = std::mem::take(&mut ctx.span);
        span.end(&completion, client, || error.map(errors::log_cause));
        let record = || RequestRecord {
            request: Some((&request.method, request.raw_path())),
            client: client(),
            status: completion.status,
            user: self.logged_user(&ctx.rules, ctx.forward.as_ref()),
            duration: completion.duration,
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
                .request_ended_by_reported_rejection(ctx.outcome, record);
        } else {
            self.request_logger.request_ended(completion, record);
        }
        set_handling(session, false);
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
