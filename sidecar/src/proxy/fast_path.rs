//! The common request without `pingora-proxy`: HTTP/1.1 on both sides, no upgrade.
//!
//! Decision, rules, limits and responses are the same as the proxy's. HTTP/2, upgrades and
//! ambiguous heads go to Pingora's proxy with all their bytes, before any byte goes to the service,
//! and the connection stays there.

mod chunks;
mod connection;
mod download;
mod exchange;
mod head_search;
mod pool;
mod request;
mod request_head;
mod response_head;
mod service_head;
mod timer;
mod upload;

use std::time::{Duration, Instant};

use bytes::Bytes;
use pingora::connectors::TransportConnector;
use pingora::protocols::{Shutdown, Stream};
use pingora::upstreams::peer::Peer;
use pingora::{Error, ErrorType};
use tokio_util::sync::CancellationToken;
use wire::rejection::Rejection;

use self::connection::Connection;
use self::exchange::Limits;
use self::pool::Pool;
use self::request::{Authorized, Progress, Request};
use self::response_head::ResponseHead;
use self::upload::Upload;
use super::phases::AuthProxy;
use crate::auth::authorize::{Decision, Forward, Rejected};
use crate::downstream::stream::ClientStream;
use crate::headers::forwarded::Client;
use crate::request::kind::RequestKind;
use crate::telemetry::access_log::RequestRecord;
use crate::telemetry::metrics::Departure;
use crate::telemetry::outcome::Completion;

/// The end of the fast path on a connection.
pub(crate) enum Left {
    /// The connection is over.
    Closed,
    /// Pingora continues with these bytes, which were read and not used.
    ToPingora(Departure, Bytes),
}

/// Server of HTTP/1.1 connections in front of an HTTP/1.1 service.
pub(crate) struct FastPath {
    proxy: AuthProxy,
    connector: TransportConnector,
    pool: Pool,
    closing: CancellationToken,
}

/// A connection to the service.
struct Connected {
    stream: Stream,
    pool_key: u64,
    /// True if the connection has carried a previous request.
    is_reused: bool,
}

impl FastPath {
    /// Creates the fast path; so many connections to the service may wait `idle_timeout` for their
    /// next request.
    pub(crate) fn new(proxy: AuthProxy, max_idle: usize, idle_timeout: Duration) -> Self {
        Self {
            proxy,
            connector: TransportConnector::new(None),
            pool: Pool::new(max_idle, idle_timeout),
            closing: CancellationToken::new(),
        }
    }

    /// Returns the token that closes the connections that wait for their next request.
    pub(crate) fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    /// Serves the requests of one connection, up to the first that is not for the fast path.
    pub(crate) async fn serve(&self, stream: &mut ClientStream, client: Client) -> Left {
        let left = Connection::new(self, stream, client).serve().await;
        if matches!(left, Left::Closed) {
            stream.shutdown().await;
        }
        left
    }

    /// Decides about a request; waits for a fetch if the token names an unknown key.
    async fn decide(&self, request: &Request, client: &Client) -> Result<Decision, Rejected> {
        let rules = &request.rules.auth_policy;
        let mut decision = self.decide_at(request, request.began);
        if decision == Err(Rejection::TokenKeyUnknown.into()) {
            // Upgrades are not for the fast path.
            let fetch = self
                .proxy
                .on_demand_fetch(rules, &request.head.headers, false);
            if let Some(fetch) = fetch {
                let client = Some(request.client(&self.proxy, client));
                let fetch = fetch.wait(Instant::now());
                decision = match self.proxy.in_flight.while_waiting(client, fetch).await {
                    Some(()) => self.decide_at(request, Instant::now()),
                    None => Err(Rejection::ServerBusy.into()),
                };
            }
        }
        decision.or_else(|rejected| {
            self.proxy
                .forward_if_reporting(rejected, rules, request.head.for_decision())
        })
    }

    fn decide_at(&self, request: &Request, now: Instant) -> Result<Decision, Rejected> {
        let rules = &request.rules.auth_policy;
        self.proxy
            .authorize(rules, request.head.for_decision(), now)
    }

    /// Takes an idle connection to the service, or opens one; retries for a second while the
    /// service restarts.
    async fn connect(&self, progress: &mut Progress) -> pingora::Result<Connected> {
        loop {
            if let Some(pause) = progress.tries.pause() {
                tokio::time::sleep(pause).await;
            }
            let error = match self.connect_once(progress).await {
                Ok(connected) => return Ok(connected),
                Err(error) => error.into_up(),
            };
            if !progress.tries.after_connecting(&error, Instant::now()) {
                return Err(error);
            }
        }
    }

    async fn connect_once(&self, progress: &mut Progress) -> pingora::Result<Connected> {
        let upstream = &self.proxy.upstream;
        let unresolved = || Error::explain(ErrorType::ConnectError, "no address");
        let (address, pool_key) = upstream.http_1_pool().ok_or_else(unresolved)?;
        progress.service = Some(address);
        if let Some(stream) = self.pool.take(pool_key, Instant::now()) {
            return Ok(Connected {
                stream,
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
            stream,
            pool_key: peer.reuse_hash(),
            is_reused: false,
        })
    }

    /// Returns the timeouts of each side until the response begins.
    fn limits(&self, authorized: &Authorized) -> Limits {
        Limits {
            body: self.proxy.request_body_timeout,
            response: self.proxy.upstream.read_timeout(),
            token: match authorized.forward.kind {
                RequestKind::EventStream => self.end_of_token(authorized),
                _ => None,
            },
            revocation: match authorized.forward.kind {
                RequestKind::EventStream => self.proxy.revocation(&authorized.forward),
                _ => None,
            },
        }
    }

    /// Sets the limits for the rest of the response: an event stream may be silent, and ends with
    /// its token. Returns the time that the service took.
    fn response_began(
        &self,
        authorized: &Authorized,
        head: &ResponseHead,
        limits: &mut Limits,
    ) -> Duration {
        let after = authorized.decided.elapsed();
        self.proxy.metrics.service_responded(after);
        let may_be_silent = authorized.forward.kind == RequestKind::EventStream;
        limits.token = None;
        let revocation = limits.revocation.take();
        if head.is_event_stream {
            limits.token = self.end_of_token(authorized);
            limits.revocation = revocation.or_else(|| self.proxy.revocation(&authorized.forward));
            limits.response = limits.response.filter(|_| !may_be_silent);
        } else if may_be_silent {
            limits.response = self.proxy.part_timeout();
        }
        after
    }

    fn end_of_token(&self, authorized: &Authorized) -> Option<tokio::time::Instant> {
        let left = self.proxy.token_time_left(&authorized.forward)?;
        tokio::time::Instant::now().checked_add(left)
    }

    /// Keeps the service's connection for another request, if it is reusable.
    fn keep(&self, connected: Connected, request: &Request, upload: &Upload, progress: &Progress) {
        let is_reusable = progress.download.leaves_connection_usable();
        if upload.is_sent() && !request.closes_service && is_reusable {
            self.pool
                .put(connected.stream, connected.pool_key, progress.ended());
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
        let (head, rules) = (&request.head, &request.rules.auth_policy);
        logger.request_ended(&completion, span, || RequestRecord {
            request: Some((&head.method, head.target())),
            client: self.proxy.client_ip(client.address, &head.headers),
            user: self.proxy.logged_user(&request.rules, forward),
            // Upgrades are not for the fast path.
            issuer: rules.issuer_name(forward, &head.headers, false),
            upstream_duration: progress.upstream_duration,
            bytes: completion.status.map(|_| progress.sent_bytes()),
            upstream: self
                .proxy
                .failed_upstream_addr(outcome, progress.service.as_ref()),
            cause: progress.cause.clone(),
            request_id: request.ids.request_id().cloned(),
            trace_id: request.ids.trace_id(&head.headers),
        });
    }
}
