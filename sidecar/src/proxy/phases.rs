//! Pingora's phases of one request. Each delegates: [`crate::auth::authorize`] decides about the
//! request, [`crate::proxy::response`] writes our own responses.

mod deadlines;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use contract::rejection::Rejection;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::protocols::http::ServerSession;
use pingora::protocols::l4::socket::SocketAddr as ServiceAddress;
use pingora::proxy::{FailToProxy, ProxyHttp, Session};
use pingora::upstreams::peer::{HttpPeer, Peer};
use pingora::{Error, ErrorType};
use runtime::clock::unix_now;
use runtime::listener::CLIENT_IDLE;

use crate::auth::authorize::{AuthPolicy, Decision, Forward, Refusal};
use crate::auth::strip_token;
use crate::background::Draining;
use crate::config::live::{CurrentRules, Rules};
use crate::downstream::limits::{InFlight, InFlightPermit};
use crate::downstream::stream::{ClientStream, EndedResponses};
use crate::downstream::unsent::SharedPermit;
use crate::headers::forwarded::Client;
use crate::keys::issuer_keys::IssuerKeys;
use crate::keys::on_demand::OnDemandRefresh;
use crate::proxy::response::LocalResponse;
use crate::proxy::stream_deadline;
use crate::request::head::{self, RequestHead};
use crate::request::kind::RequestKind;
use crate::telemetry::access_log::{LoggedPath, RequestRecord};
use crate::telemetry::metrics::{Counted, Metrics};
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

/// State of one request, passed from phase to phase.
#[derive(Debug)]
pub(crate) struct RequestContext {
    /// The rules at the begin of the request: a reload does not change them.
    rules: Arc<Rules>,
    /// Set once the request is authorized: no other request reaches the service.
    forward: Option<Forward>,
    /// Set once the request may be forwarded.
    permit: Option<SharedPermit>,
    outcome: Outcome,
    tries: Tries,
    /// The upstream address of the last failure.
    failed_at: Option<ServiceAddress>,
    ids: RequestIds,
    began: Instant,
    /// The time of the decision.
    decided: Instant,
    /// Moves into the permit once there is one.
    counted: Option<Counted>,
    /// Time of the service up to the head of its response.
    upstream_duration: Option<Duration>,
    span: RequestSpan,
}

impl RequestContext {
    fn forward(&mut self, forward: Forward, permit: InFlightPermit, ended: Option<EndedResponses>) {
        self.outcome = forward.outcome();
        self.forward = Some(forward);
        self.permit = Some(SharedPermit::new(permit, self.counted.take(), ended));
    }

    fn kind(&self) -> Option<RequestKind> {
        self.forward.as_ref().map(|forward| forward.kind)
    }
}

/// Next step of a request after the decision.
pub(super) enum Action {
    Forward(Forward, InFlightPermit),
    Respond(Outcome, LocalResponse),
}

impl AuthProxy {
    /// Takes a permit for an authorized request, or prepares our own response.
    pub(super) fn act_on(
        &self,
        decision: Result<Decision, Refusal>,
        rules: &AuthPolicy,
        now: Instant,
    ) -> Action {
        let (outcome, response) = match decision {
            Ok(Decision::Forward(forward)) => match self.in_flight.take(forward.has_token(), now) {
                Some(permit) => return Action::Forward(forward, permit),
                None => rejected(Rejection::ServerBusy),
            },
            Ok(Decision::Respond(body)) => (Outcome::Responded, LocalResponse::success(body)),
            Ok(Decision::Preflight) => (Outcome::Responded, LocalResponse::preflight()),
            Err(refusal) => self.reject(&refusal, rules, now),
        };
        Action::Respond(outcome, response)
    }

    /// Decides about a request by the keys at `now`.
    pub(super) fn authorize(
        &self,
        rules: &AuthPolicy,
        head: RequestHead<'_>,
        now: Instant,
    ) -> Result<Decision, Refusal> {
        rules.authorize(head, self.keys.at(now), unix_now())
    }

    /// Returns the fetch of newer keys for the token of a request, from its issuer alone.
    pub(super) fn early_fetch(
        &self,
        rules: &AuthPolicy,
        headers: &HeaderMap,
        opens_websocket: bool,
    ) -> Option<&OnDemandRefresh> {
        let issuer = rules.keys_of_token(headers, opens_websocket)?;
        Some(self.keys.get(issuer)?.early_fetch())
    }

    /// Forwards a rejected request in report-only mode.
    pub(super) fn or_reported(
        &self,
        refusal: Refusal,
        rules: &AuthPolicy,
        head: RequestHead<'_>,
    ) -> Result<Decision, Refusal> {
        let rule = rules.rule_of(&refusal);
        let decision = rules.or_reported(refusal, head, unix_now());
        if let (Ok(_), Some(rule)) = (&decision, rule) {
            self.metrics.rule_refused(&rule.name);
        }
        decision
    }

    fn authorize_session(
        &self,
        session: &Session,
        rules: &AuthPolicy,
        now: Instant,
    ) -> Result<Decision, Refusal> {
        head::with_request_head(session.as_downstream(), |head| {
            self.authorize(rules, head, now)
        })
    }

    fn early_fetch_for(&self, session: &Session, rules: &AuthPolicy) -> Option<&OnDemandRefresh> {
        let head = session.req_header();
        let kind = RequestKind::of(&head.method, head.version, &head.headers);
        self.early_fetch(rules, &head.headers, kind == RequestKind::WebSocket)
    }

    /// Rejects a request; without usable keys `Retry-After` is the time of their next fetch.
    fn reject(
        &self,
        refusal: &Refusal,
        rules: &AuthPolicy,
        now: Instant,
    ) -> (Outcome, LocalResponse) {
        let (outcome, response) = rejected(refusal.rejection);
        let rule = rules.rule_of(refusal);
        if let Some(rule) = rule {
            self.metrics.rule_refused(&rule.name);
        }
        match refusal.rejection {
            Rejection::InsufficientScope => {
                let scope = rule.map(|rule| rule.requirement.scope.as_slice());
                (outcome, response.required_scope(scope.unwrap_or_default()))
            }
            Rejection::AuthKeysUnavailable
            | Rejection::AuthKeysStale
            | Rejection::RevocationsStale => {
                let seconds = self.keys.seconds_until_next(now);
                (outcome, response.retry_after(seconds))
            }
            _ => (outcome, response),
        }
    }

    /// Returns the client's IP, through trusted proxies.
    pub(super) fn client_ip(
        &self,
        address: Option<IpAddr>,
        received: &HeaderMap,
    ) -> Option<IpAddr> {
        let proxies = &self.request_logger.trusted_proxies;
        Some(proxies.client(address?, received))
    }

    /// Returns the name of a verified user for the access log.
    pub(super) fn logged_user(&self, rules: &Rules, forward: Option<&Forward>) -> Option<String> {
        let verified = forward?.verified.as_ref()?;
        let header = &rules.auth_policy.user_header;
        let details = || header.user(&verified.identity).ok();
        self.request_logger.logged_user.name(details)
    }

    /// Returns the headers of all our own responses: CORS and the request id.
    pub(super) fn common_response_headers(
        rules: &Rules,
        ids: &RequestIds,
        received: &HeaderMap,
    ) -> Vec<(HeaderName, HeaderValue)> {
        let origins = rules.auth_policy.interceptor.allowed_origins();
        let mut fields = origins.answer_fields(received);
        fields.extend(ids.echo());
        fields
    }

    /// Completes `work` for a request that is not forwarded. On HTTP/2 it takes a permit while it
    /// waits, because one connection could hold a hundred heads in memory; `None` if no permit is
    /// free.
    async fn while_waiting<T>(&self, is_http2: bool, work: impl Future<Output = T>) -> Option<T> {
        if is_http2 {
            self.in_flight.while_waiting(work).await
        } else {
            Some(work.await)
        }
    }

    /// Returns the address at which the upstream failed, or the configured one if it has no
    /// address.
    pub(super) fn failed_upstream_addr(
        &self,
        outcome: Outcome,
        failed_at: Option<&ServiceAddress>,
    ) -> Option<String> {
        use Rejection::{UpstreamMalformed, UpstreamTimeout, UpstreamUnavailable};
        let Outcome::Rejected(UpstreamMalformed | UpstreamTimeout | UpstreamUnavailable) = outcome
        else {
            return None;
        };
        Some(failed_at.map_or_else(|| self.upstream.address().to_string(), ToString::to_string))
    }

    fn on_response_end(&self, session: &mut Session, ctx: &mut RequestContext) {
        if let Some(forward) = &mut ctx.forward {
            self.treat_as_plain(session, forward, &ctx.ids);
        }
    }

    /// Limits how long the connection may stay open between requests.
    fn limit_connection(&self, session: &mut Session) {
        if self.draining.is_on() {
            session.set_keepalive(None);
        } else if session.get_keepalive().is_some() {
            // `Connection: close` and HTTP/1.0 have no keep-alive.
            session.set_keepalive(Some(CLIENT_IDLE.as_secs()));
        }
    }
}

/// Returns the stream below the session; `None` for HTTP/2.
fn client_stream(session: &Session) -> Option<&ClientStream> {
    let stream = session.as_downstream().stream()?;
    (**stream).as_any().downcast_ref()
}

/// Marks what is written as the response of a request, until its end.
fn set_handling(session: &Session, handling: bool) {
    if let Some(stream) = client_stream(session) {
        stream.set_handling(handling);
    }
}

/// Allows bytes behind the present request: the next one (RFC 9112 §9.3.2), or an empty line after
/// a body. Pingora would fail the present request otherwise, which the service may have carried out
/// by then.
fn allow_pipelining(session: &mut Session) {
    if let ServerSession::H1(connection) = session.as_downstream_mut() {
        connection.set_pipelining_enabled(true);
    }
}

fn address_of(session: &Session) -> Option<IpAddr> {
    let address = session.client_addr()?;
    address.as_inet().map(SocketAddr::ip)
}

fn has_tls(session: &Session) -> bool {
    let digest = session.digest();
    digest.is_some_and(|digest| digest.ssl_digest.is_some())
}

fn rejected(rejection: Rejection) -> (Outcome, LocalResponse) {
    (
        Outcome::Rejected(rejection),
        LocalResponse::rejection(rejection),
    )
}

/// Returns the error of a phase that only an authorized request may reach.
fn not_authorized() -> Box<Error> {
    Error::new_in(ErrorType::InternalError)
}

/// Returns true once the final response has begun or a tunnel is open: no response of ours may
/// follow.
fn has_response(session: &Session) -> bool {
    session.response_written().is_some_and(|head| {
        !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS
    })
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
