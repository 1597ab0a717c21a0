//! The one way of every request: to a service of HTTP/1.x or HTTP/2, and back to a client of either.

mod action;
mod auth_proxy;
mod chunks;
mod client_head;
mod download;
mod handshake;
pub(crate) mod head_search;
mod held;
mod http2_connections;
mod malformed_head;
mod one_exchange;
mod pace;
mod pool;
pub(crate) mod request;
pub(crate) mod response;
mod response_head;
mod serve;
mod service;
pub(crate) mod side;
pub(crate) mod timer;
pub(crate) mod upload;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Version;
use pingora::connectors::TransportConnector;
use pingora::protocols::ALPN;
use pingora::upstreams::peer::Peer;
use pingora::{Error, ErrorType, OrErr};
use tokio_util::sync::CancellationToken;
use wire::rejection::Rejection;

use self::http2_connections::Http2Connections;
use self::one_exchange::Limits;
use self::pace::Pace;
use self::pool::Pool;
use self::request::{Authorized, Progress, Request};
use self::response_head::ResponseHead;
use self::service::{Http2Stream, Service};
use self::upload::Upload;
use crate::app::App;
use crate::decision::authorize::{Decision, Forward, Rejected};
use crate::identity::forwarded::Client;
use crate::request::kind::RequestKind;
use crate::telemetry::access_log::RequestRecord;
use crate::telemetry::outcome::{Completion, Outcome};
use crate::telemetry::request_span::RequestSpan;

/// Server of requests.
pub(crate) struct Exchanges {
    pub(crate) proxy: Arc<App>,
    connector: TransportConnector,
    http_2: Http2Connections,
    pool: Pool,
    /// Closes the connections that wait for their next request.
    pub(crate) closing: CancellationToken,
}

/// A connection to the service.
struct Connected {
    service: Service,
    pool_key: u64,
    /// True if the connection has carried a previous request.
    is_reused: bool,
}

fn unresolved() -> Box<Error> {
    Error::explain(ErrorType::ConnectError, "no address")
}

impl Exchanges {
    /// Creates the server; so many connections to the service may wait `idle_timeout` for their
    /// next request.
    pub(crate) fn new(proxy: Arc<App>, max_idle: usize, idle_timeout: Duration) -> Self {
        Self {
            proxy,
            connector: TransportConnector::new(None),
            http_2: Http2Connections::new(idle_timeout),
            pool: Pool::new(max_idle, idle_timeout),
            closing: CancellationToken::new(),
        }
    }

    /// Reports a request that could not be parsed.
    pub(crate) fn report_unparsed(
        &self,
        rejection: Rejection,
        client: Option<IpAddr>,
        has_response: bool,
    ) {
        let completion = Completion {
            outcome: Outcome::Rejected(rejection),
            status: has_response.then(|| rejection.status().as_u16()),
            duration: None,
        };
        let logger = &self.proxy.request_logger;
        logger.request_ended(&completion, RequestSpan::default(), || RequestRecord {
            client,
            ..RequestRecord::default()
        });
    }

    /// Decides about a request; waits for a fetch if the token names an unknown key. A key that a
    /// later fetch may still bring is no reason to throw the token away.
    async fn decide(&self, request: &Request, client: &Client) -> Result<Decision, Rejected> {
        let rules = &request.rules.auth_policy;
        let unknown = Err(Rejection::TokenKeyUnknown.into());
        let mut decision = self.decide_at(request, request.began);
        let fetch = (decision == unknown)
            .then(|| {
                let headers = &request.head.headers;
                self.proxy
                    .on_demand(rules, headers, request.opens_websocket())
            })
            .flatten();
        if let Some((token, fetch)) = fetch {
            let client = Some(request.client(&self.proxy, client));
            let fetched = fetch.wait(token, Instant::now());
            decision = match self.proxy.in_flight.while_waiting(client, fetched).await {
                Some(fetched) => match self.decide_at(request, Instant::now()) {
                    decision if decision != unknown || fetch.is_absent(token, fetched) => decision,
                    _ => Err(Rejection::AuthKeysUnavailable.into()),
                },
                None => Err(Rejection::ServerBusy.into()),
            };
        }
        decision.or_else(|rejected| {
            self.proxy
                .forward_if_reporting(rejected, rules, &request.head)
        })
    }

    fn decide_at(&self, request: &Request, now: Instant) -> Result<Decision, Rejected> {
        let rules = &request.rules.auth_policy;
        self.proxy.authorize(rules, &request.head, now)
    }

    /// Takes an idle connection to the service, or opens one; retries for a second while the
    /// service restarts.
    async fn connect(
        &self,
        kind: RequestKind,
        progress: &mut Progress,
    ) -> pingora::Result<Connected> {
        loop {
            if let Some(pause) = progress.tries.pause() {
                tokio::time::sleep(pause).await;
            }
            let error = match self.connect_once(kind, progress).await {
                Ok(connected) => return Ok(connected),
                Err(error) => error.into_up(),
            };
            if !progress.tries.after_connecting(&error, Instant::now()) {
                return Err(error);
            }
        }
    }

    async fn connect_once(
        &self,
        kind: RequestKind,
        progress: &mut Progress,
    ) -> pingora::Result<Connected> {
        let upstream = &self.proxy.upstream;
        if kind != RequestKind::WebSocket && !upstream.speaks_http_1() {
            return self.connect_to_chosen(progress).await;
        }
        let (address, pool_key) = upstream.http_1_pool().ok_or_else(unresolved)?;
        progress.service = Some(address);
        if let Some(stream) = self.pool.take(pool_key, Instant::now()) {
            return Ok(Connected {
                service: Service::Http1(stream),
                pool_key,
                is_reused: true,
            });
        }
        let peer = upstream.http_1_peer().ok_or_else(unresolved)?;
        progress.service = Some(peer.address().clone());
        // Boxed: with TLS in it, it would be most of what an idle connection takes.
        let stream = Box::pin(self.connector.new_stream(&*peer)).await;
        let stream = stream.inspect_err(|error| {
            upstream.unreachable(&peer);
            if *error.etype() == ErrorType::TLSHandshakeFailure {
                upstream.forget_choice();
            }
        })?;
        Ok(Connected {
            service: Service::Http1(stream),
            pool_key: peer.reuse_hash(),
            is_reused: false,
        })
    }

    /// Opens a stream of a connection of HTTP/2, or a connection of the version that the service
    /// chooses over TLS.
    async fn connect_to_chosen(&self, progress: &mut Progress) -> pingora::Result<Connected> {
        let upstream = &self.proxy.upstream;
        let peer = upstream.peer().ok_or_else(unresolved)?;
        progress.service = Some(peer.address().clone());
        let (key, scheme) = (
            peer.reuse_hash(),
            if peer.is_tls() { "https" } else { "http" },
        );
        let stream = |slot| Service::Http2(Box::new(Http2Stream::new(slot, scheme)));
        if let Some(slot) = self.http_2.take(key) {
            return Ok(Connected {
                service: stream(slot),
                pool_key: key,
                is_reused: true,
            });
        }
        let opened = Box::pin(self.connector.new_stream(&*peer)).await;
        let opened = opened.inspect_err(|_| upstream.unreachable(&peer))?;
        // Without TLS, the settings chose HTTP/2.
        let is_http_2 = !peer.is_tls() || opened.selected_alpn_proto() == Some(ALPN::H2);
        let (version, service, pool_key) = if is_http_2 {
            let slot = self.http_2.begin(opened, key).await;
            let slot = slot.or_err(ErrorType::HandshakeError, "HTTP/2");
            (
                Version::HTTP_2,
                stream(slot.map_err(|error| error.into_up())?),
                key,
            )
        } else {
            let (_, pool_key) = upstream.http_1_pool().ok_or_else(unresolved)?;
            (Version::HTTP_11, Service::Http1(opened), pool_key)
        };
        upstream.has_chosen(version);
        Ok(Connected {
            service,
            pool_key,
            is_reused: false,
        })
    }

    /// Returns the timeouts of each side until the response begins.
    fn limits(&self, request: &Request, authorized: &Authorized) -> Limits {
        let stream = (authorized.forward.kind != RequestKind::Plain).then_some(authorized);
        // The parts of a call have the timeout of its response.
        let is_call = authorized.forward.kind == RequestKind::Grpc;
        let may_last = request.is_call() || request.is_long_upload(&authorized.forward);
        Limits {
            pace: (!may_last).then(Pace::default),
            body: self.proxy.request_body_timeout.filter(|_| !is_call),
            response: self.proxy.upstream.read_timeout(),
            token: stream.and_then(|stream| self.end_of_token(stream)),
            revocation: stream.and_then(|stream| self.proxy.revocation(&stream.forward)),
        }
    }

    /// Sets the limits for the rest of the response: event streams and tunnels may be silent, and
    /// end with their token. The service took the time `after`.
    fn response_began(
        &self,
        authorized: &Authorized,
        head: &ResponseHead,
        after: Duration,
        limits: &mut Limits,
    ) {
        if !head.opens_tunnel() {
            self.proxy.metrics.service_responded(after);
        }
        let may_be_silent = authorized.forward.kind != RequestKind::Plain;
        limits.token = None;
        let revocation = limits.revocation.take();
        if head.is_stream {
            limits.token = self.end_of_token(authorized);
            limits.revocation = revocation.or_else(|| self.proxy.revocation(&authorized.forward));
            limits.response = limits.response.filter(|_| !may_be_silent);
        } else if may_be_silent {
            limits.body = self.proxy.request_body_timeout;
            limits.response = self.proxy.part_timeout();
        }
    }

    fn end_of_token(&self, authorized: &Authorized) -> Option<tokio::time::Instant> {
        let left = self.proxy.token_time_left(&authorized.forward)?;
        tokio::time::Instant::now().checked_add(left)
    }

    /// Keeps the service's connection for another request, if it is reusable.
    fn keep(&self, connected: Connected, request: &Request, upload: &Upload, progress: &Progress) {
        let is_reusable = progress.download.leaves_connection_usable();
        if let Service::Http1(stream) = connected.service
            && upload.is_sent()
            && !request.closes_service
            && is_reusable
        {
            self.pool.put(stream, connected.pool_key, progress.ended());
        }
    }

    /// Counts and logs the request, and records a rejection.
    fn record(
        &self,
        request: &mut Request,
        client: &Client,
        forward: Option<&Forward>,
        progress: &Progress,
    ) {
        let outcome = progress.outcome;
        let completion = Completion {
            outcome,
            status: progress.sent_status(),
            duration: Some(progress.ended().saturating_duration_since(request.began)),
        };
        let logger = &self.proxy.request_logger;
        let span = std::mem::take(&mut request.span);
        let opens_websocket = request.opens_websocket();
        let (head, rules) = (&request.head, &request.rules.auth_policy);
        let record = || RequestRecord {
            request: Some((&head.method, head.target())),
            client: self.proxy.client_ip(client.address, &head.headers),
            user: self.proxy.logged_user(&request.rules, forward),
            issuer: rules.issuer_name(forward, &head.headers, opens_websocket),
            upstream_duration: progress.upstream_duration,
            bytes: completion.status.map(|_| progress.sent_bytes()),
            upstream: self
                .proxy
                .failed_upstream_addr(outcome, progress.service.as_ref()),
            cause: progress.cause.clone(),
            request_id: request.ids.request_id().cloned(),
            trace_id: request.ids.trace_id(&head.headers),
        };
        if progress.is_reported {
            logger.request_ended_by_reported_rejection(&completion, span, record);
        } else {
            logger.request_ended(&completion, span, record);
        }
    }
}
