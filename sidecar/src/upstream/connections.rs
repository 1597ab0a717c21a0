//! Connections to the service, in the version of HTTP that it speaks.

pub(crate) mod http2;
mod pool;

use std::time::{Duration, Instant};

use http::Request;
use pingora::connectors::TransportConnector;
use pingora::protocols::ALPN;
use pingora::protocols::l4::socket::SocketAddr as ServiceAddress;
use pingora::upstreams::peer::Peer;
use pingora::{Error, ErrorType, OrErr};

use self::http2::Http2Connections;
use self::pool::Pool;
use super::Upstream;
use super::service::{Http2Stream, Service};

/// The connections that more than one request uses.
pub(crate) struct Connections {
    connector: TransportConnector,
    http_2: Http2Connections,
    idle: Pool,
}

/// A connection for one request.
pub(crate) struct Connected {
    pub(crate) service: Service,
    key: u64,
    /// True if the connection has carried a previous request.
    pub(crate) is_reused: bool,
}

impl Connections {
    /// Keeps so many connections for `idle_timeout`.
    pub(crate) fn new(max_idle: usize, idle_timeout: Duration) -> Self {
        Self {
            connector: TransportConnector::new(None),
            http_2: Http2Connections::new(idle_timeout),
            idle: Pool::new(max_idle, idle_timeout),
        }
    }

    /// Takes a connection that is open, or opens one, to the address that `tried` gets. A tunnel needs
    /// HTTP/1.1; over TLS the service chooses the version until it has chosen that. Over HTTP/2 the
    /// `head` for the scheme selects it: a long one may end its connection, and no other request with it.
    pub(crate) async fn connect(
        &self,
        upstream: &Upstream,
        opens_tunnel: bool,
        head: &impl Fn(&str) -> pingora::Result<Request<()>>,
        tried: &mut Option<ServiceAddress>,
    ) -> pingora::Result<Connected> {
        match self.connect_once(upstream, opens_tunnel, head, tried).await {
            // It may have another version than the one it chose.
            Err(error)
                if *error.etype() == ErrorType::TLSHandshakeFailure && upstream.forget_choice() =>
            {
                Box::pin(self.connect_once(upstream, opens_tunnel, head, tried)).await
            }
            connected => connected,
        }
    }

    async fn connect_once(
        &self,
        upstream: &Upstream,
        opens_tunnel: bool,
        head: &impl Fn(&str) -> pingora::Result<Request<()>>,
        tried: &mut Option<ServiceAddress>,
    ) -> pingora::Result<Connected> {
        let peer = upstream.peer();
        let peer = peer.ok_or_else(|| Error::explain(ErrorType::ConnectError, "no address"))?;
        *tried = Some(peer.any.address().clone());
        let in_http_1 = opens_tunnel || upstream.speaks_http_1();
        let scheme = if peer.any.is_tls() { "https" } else { "http" };
        // Boxed, as what opens a connection: they would be most of what an idle connection takes.
        let head = (!in_http_1).then(|| head(scheme).map(Box::new));
        let head = head.transpose()?;
        let is_shared = head.as_deref().is_some_and(http2::is_short);
        let stream = |slot| Service::Http2(Box::new(Http2Stream::new(slot, head.map(|it| *it))));
        let connected = |service, is_reused| Connected {
            service,
            key: peer.key,
            is_reused,
        };
        if in_http_1 && let Some(open) = self.idle.take(peer.key, Instant::now()) {
            return Ok(connected(Service::Http1(open), true));
        }
        if is_shared && let Some(slot) = self.http_2.take(peer.key) {
            return Ok(connected(stream(slot), true));
        }
        let settings = if in_http_1 { &peer.http_1 } else { &peer.any };
        let opened = Box::pin(self.connector.new_stream(settings)).await;
        let opened = opened.inspect_err(|_| upstream.unreachable(&peer))?;
        // Without TLS, the settings chose HTTP/2.
        let is_http_2 =
            !in_http_1 && (!peer.any.is_tls() || opened.selected_alpn_proto() == Some(ALPN::H2));
        let service = if is_http_2 {
            let key = is_shared.then_some(peer.key);
            let slot = Box::pin(self.http_2.begin(opened, key)).await;
            stream(slot.or_err(ErrorType::HandshakeError, "HTTP/2")?)
        } else {
            Service::Http1(opened)
        };
        if !in_http_1 {
            upstream.has_chosen(is_http_2);
        }
        Ok(connected(service, false))
    }

    /// Keeps a connection of HTTP/1.1 for another request; those of HTTP/2 stay by themselves.
    pub(crate) fn keep(&self, connected: Connected, now: Instant) {
        if let Service::Http1(stream) = connected.service {
            self.idle.put(stream, connected.key, now);
        }
    }
}
