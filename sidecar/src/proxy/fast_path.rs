//! The common request without `pingora-proxy`: HTTP/1.1 on both sides, no upgrade.
//!
//! The decision, the rules, the limits and the responses of the sidecar are those of the proxy. Whatever is not
//! plain – HTTP/2, an upgrade, a head that can be read in two ways – goes to Pingora's proxy with its
//! bytes, before any went to the service, and the connection stays there.

mod chunks;
mod connection;
mod download;
mod exchange;
mod pool;
mod request_head;
mod response_head;
mod timer;
mod upload;

use std::time::{Duration, Instant};

use bytes::Bytes;
use contract::rejection::Rejection;
use pingora::connectors::TransportConnector;
use pingora::protocols::{Shutdown, Stream};
use pingora::upstreams::peer::Peer;
use pingora::{Error, ErrorType};
use runtime::clock::unix_now;
use tokio_util::sync::CancellationToken;

use self::connection::{Connection, Progress, Request};
use self::pool::Pool;
use super::phases::AuthProxy;
use crate::auth::authorize::Decision;
use crate::downstream::stream::ClientStream;
use crate::headers::forwarded::Client;
use crate::request::head::{RawHead, RequestHead};
use crate::request::kind::RequestKind;

/// Why a connection goes to Pingora's proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It speaks HTTP/2.
    Http2,
    /// Its next head is none that can be read beyond doubt.
    Malformed,
    /// CONNECT or TRACE.
    Method,
    /// The target or several `Host` fields say who is asked.
    Authority,
    /// The length of the body does not stand in one plain field.
    Framing,
    /// An upgrade, or other fields for the next hop than `Connection: close` and `keep-alive`.
    HopByHop,
}

impl Departure {
    /// All of them.
    pub(crate) const ALL: [Self; 6] = [
        Self::Http2,
        Self::Malformed,
        Self::Method,
        Self::Authority,
        Self::Framing,
        Self::HopByHop,
    ];

    /// The label in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Http2 => "http2",
            Self::Malformed => "malformed",
            Self::Method => "method",
            Self::Authority => "authority",
            Self::Framing => "framing",
            Self::HopByHop => "hop_by_hop",
        }
    }
}

/// How the fast path left a connection.
pub(crate) enum Left {
    /// Nothing more comes over it.
    Closed,
    /// Pingora goes on with these bytes, which were read and not used.
    ToPingora(Departure, Bytes),
}

/// Serves connections of HTTP/1.1 to a service that speaks it too.
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
    /// It has carried another request before.
    is_reused: bool,
}

impl FastPath {
    /// `idle_timeout` is how long a connection to the service may wait for its next request.
    pub(crate) fn new(proxy: AuthProxy, idle_timeout: Duration) -> Self {
        for departure in Departure::ALL {
            // There from the start: a rate needs a first value.
            proxy.metrics.fast_path_left(departure.as_str(), 0);
        }
        Self {
            proxy,
            connector: TransportConnector::new(None),
            pool: Pool::new(idle_timeout),
            closing: CancellationToken::new(),
        }
    }

    /// Closes the connections that wait for their next request.
    pub(crate) fn close_idle(&self) {
        self.closing.cancel();
    }

    /// Serves the requests of one connection, up to the first that is not for the fast path.
    pub(crate) async fn serve(&self, stream: &mut ClientStream, client: Client) -> Left {
        match stream.begins_http_2().await {
            Ok(false) => {}
            Ok(true) => return Left::ToPingora(Departure::Http2, Bytes::new()),
            Err(_) => return Left::Closed,
        }
        let left = Connection::new(self, stream, client).serve().await;
        if matches!(left, Left::Closed) {
            stream.shutdown().await;
        }
        left
    }

    /// Decides about a request; one whose token names an unknown key waits for a fetch.
    async fn decide(&self, request: &Request) -> Result<Decision, Rejection> {
        let decision = self.decide_now(request);
        if decision != Err(Rejection::TokenKeyUnknown) {
            return decision;
        }
        self.proxy.keys.early_fetch().wait(Instant::now()).await;
        self.decide_now(request)
    }

    fn decide_now(&self, request: &Request) -> Result<Decision, Rejection> {
        let keys = self.proxy.keys.load();
        let keys = self.proxy.keys.usable(keys.as_deref(), Instant::now());
        let head = RequestHead {
            method: &request.head.method,
            version: request.head.version,
            headers: &request.head.headers,
            wire: RawHead::Http1(&request.raw),
            target_to_send: request.head.raw_path(),
        };
        request.rules.auth_policy.authorize(head, keys, unix_now())
    }

    /// Takes an idle connection to the service, or opens one; a service that is being restarted has a second.
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
        let Some(peer) = upstream.peer(kind) else {
            return Err(Error::explain(ErrorType::ConnectError, "no address"));
        };
        let pool_key = peer.reuse_hash();
        progress.service = Some(peer.address().clone());
        if let Some(stream) = self.pool.take(pool_key, Instant::now()) {
            return Ok(Connected {
                stream,
                pool_key,
                is_reused: true,
            });
        }
        let stream = self.connector.new_stream(&*peer).await;
        let stream = stream.inspect_err(|_| {
            upstream.unreachable(&peer);
        })?;
        Ok(Connected {
            stream,
            pool_key,
            is_reused: false,
        })
    }
}
