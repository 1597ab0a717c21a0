//! Connections to the service, in the version of HTTP that it speaks.

pub(crate) mod conduct;
pub(crate) mod http2;
mod pool;
mod socket;

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, Request};
use pingora::connectors::TransportConnector;
use pingora::protocols::ALPN;
use pingora::protocols::l4::socket::SocketAddr as ServiceAddress;
use pingora::upstreams::peer::Peer;
use pingora::{Error, ErrorType, OrErr};
use postern_transport::net::shares::Holder;

use self::conduct::Conduct;
use self::http2::Shared;
use self::pool::{Idle, Kept, Pool};
use self::socket::{Dial, Socket};
use super::Upstream;
use super::service::{Http2Stream, Service};

/// The connections that more than one request uses.
pub(crate) struct Connections {
    connector: TransportConnector,
    open: Pool,
    pub(crate) conduct: Arc<Conduct>,
}

/// A connection for one request.
pub(crate) struct Connected {
    pub(crate) service: Service,
    key: u64,
    socket: Option<Socket>,
    /// True if no other holder may use it.
    is_exclusive: bool,
    /// True if the connection has carried a previous request.
    pub(crate) is_reused: bool,
    /// The request before this one, if it had a body that the service may have left unread.
    pub(crate) behind: Option<LastRequest>,
}

/// The properties of a request that decide which connections it may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NextRequest {
    pub(crate) holder: Holder,
    /// True if it may be carried out twice, as where the service takes it for something else at first.
    pub(crate) is_idempotent: bool,
}

/// The last request on a connection of HTTP/1.1, whose response or body may reach beyond it.
pub(crate) struct LastRequest {
    method: Method,
    /// The begin of its target, for the log.
    target: Box<[u8]>,
    has_body: bool,
}

/// Longer than what the log shows of a path.
const MAX_TARGET: usize = 192;

impl LastRequest {
    /// Notes a request; `has_body` for a body that the service may leave unread.
    pub(crate) fn new(method: Method, target: &[u8], has_body: bool) -> Self {
        Self {
            method,
            target: target.get(..MAX_TARGET).unwrap_or(target).into(),
            has_body,
        }
    }
}

impl Connections {
    /// Keeps so many connections for `idle_timeout`.
    pub(crate) fn new(conduct: Conduct, max_idle: usize, idle_timeout: Duration) -> Self {
        let conduct = Arc::new(conduct);
        Self {
            connector: TransportConnector::new(None),
            open: Pool::new(Arc::clone(&conduct), max_idle, idle_timeout),
            conduct,
        }
    }

    /// Takes a connection that is open, or opens one, to the address that `tried` gets. Without `next`
    /// no open connection of HTTP/1.1 is taken. Over TLS the service chooses the version, except of a request
    /// `only_in_http_1`. Over HTTP/2 the `head` is sent: its argument is true over TLS, and it returns
    /// true if it is the whole request. A long one may end its connection, and no other request with it.
    pub(crate) async fn connect(
        &self,
        upstream: &Upstream,
        next: Option<NextRequest>,
        only_in_http_1: bool,
        head: &impl Fn(bool) -> pingora::Result<(Request<()>, bool)>,
        tried: &mut Option<ServiceAddress>,
    ) -> pingora::Result<Connected> {
        let peer = upstream
            .peer()
            .ok_or_else(|| Error::explain(ErrorType::ConnectError, "no address"))?;
        // Before the try, because the log of a failure names it.
        *tried = Some(peer.any.address().clone());
        let is_tls = peer.any.is_tls();
        // Boxed, as what opens a connection: they would be most of what an idle connection takes.
        let new_head = || head(is_tls).map(Box::new);
        let connected = |service, is_reused| Connected {
            service,
            key: peer.key,
            socket: None,
            is_exclusive: false,
            is_reused,
            behind: None,
        };
        let in_http_1 = only_in_http_1 || upstream.speaks_http_1();
        let mut prepared = None;
        if in_http_1 {
            if let Some(next) = next
                && let Some(idle) = self.open.take(peer.key, next, Instant::now())
            {
                return Ok(Connected {
                    socket: idle.socket,
                    is_exclusive: idle.is_exclusive,
                    behind: idle.last.has_body.then_some(idle.last),
                    ..connected(Service::Http1(idle.stream), true)
                });
            }
        } else {
            let head = new_head()?;
            if http2::is_short(&head.0)
                && let Some(slot) = self.open.take_slot(peer.key, Instant::now())
            {
                let stream = Http2Stream::begin(slot, *head)?;
                return Ok(connected(Service::Http2(Box::new(stream)), true));
            }
            prepared = Some(head);
        }
        let settings = if only_in_http_1 {
            &peer.http_1
        } else {
            &peer.any
        };
        let dial = Arc::new(Dial::default());
        let mut settings = Box::new(settings.clone());
        // A Unix socket delays no acknowledgement.
        if settings.address().as_inet().is_some() {
            settings.options.custom_l4 = Some(Arc::clone(&dial) as _);
        }
        let opened = Box::pin(self.connector.new_stream(&*settings)).await;
        // The next try uses another address.
        let opened = opened.inspect_err(|_| upstream.unreachable(&peer))?;
        // Without TLS, the settings chose the version.
        let is_http_2 = if is_tls {
            opened.selected_alpn_proto() == Some(ALPN::H2)
        } else {
            !in_http_1
        };
        // Only a connection for which the service had the choice.
        if is_tls && !only_in_http_1 {
            upstream.has_chosen(is_http_2);
        }
        if !is_http_2 {
            return Ok(Connected {
                socket: dial.opened(),
                ..connected(Service::Http1(opened), false)
            });
        }
        let head = prepared.map_or_else(new_head, Ok)?;
        let shared = Box::pin(Shared::begin(opened))
            .await
            .or_err(ErrorType::HandshakeError, "HTTP/2")?;
        let slot = shared.slot();
        // A long head may end its connection, so no other request shares it.
        if http2::is_short(&head.0) {
            self.open.put(Kept::Http2(shared), peer.key, Instant::now());
        }
        let stream = Http2Stream::begin(slot, *head)?;
        Ok(connected(Service::Http2(Box::new(stream)), false))
    }

    /// Keeps a connection of HTTP/1.1 for another request; those of HTTP/2 stay by themselves.
    pub(crate) fn keep(
        &self,
        connected: Connected,
        holder: Holder,
        last: LastRequest,
        now: Instant,
    ) {
        if let Service::Http1(stream) = connected.service {
            let idle = Idle {
                stream,
                socket: connected.socket,
                holder,
                last,
                is_exclusive: connected.is_exclusive,
                acknowledged: None,
            };
            self.open.put(Kept::Http1(idle), connected.key, now);
        }
    }
}
