//! Connections to the service, in the version of HTTP that it speaks.

pub(crate) mod conduct;
pub(crate) mod http2;
mod pool;
mod socket;

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use pingora::connectors::TransportConnector;
use pingora::protocols::l4::socket::SocketAddr as ServiceAddress;
use pingora::protocols::{ALPN, Stream};
use pingora::upstreams::peer::Peer;
use pingora::{Error, ErrorType, OrErr};
use postern_transport::net::shares::Holder;

use self::conduct::Conduct;
use self::http2::{Shared, Slot};
use self::pool::{Idle, Kept, Pool};
use self::socket::{Dial, Socket};
use super::errors::log_cause;
use super::service::{Http2Stream, Service, StreamHead};
use super::{ServicePeer, Upstream};

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
    /// True if no other holder may use the connection.
    is_exclusive: bool,
    /// True if the connection has carried a previous request.
    pub(crate) is_reused: bool,
    /// The request before this one, if it had a body that the service may have left unread.
    pub(crate) behind: Option<LastRequest>,
}

/// A connection that was opened, before its first request.
struct Opened {
    stream: Stream,
    dial: Arc<Dial>,
    is_http_2: bool,
}

/// The properties of a request that decide which connections it may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NextRequest {
    pub(crate) holder: Holder,
    /// True if the request may be carried out twice, as when the service misreads it at first.
    pub(crate) is_idempotent: bool,
}

/// The last request on a connection of HTTP/1.1, whose response or body may reach beyond it.
pub(crate) struct LastRequest {
    method: Method,
    /// The beginning of the request's target, for the log.
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

impl Connected {
    const fn new(service: Service, key: u64, is_reused: bool) -> Self {
        Self {
            service,
            key,
            socket: None,
            is_exclusive: false,
            is_reused,
            behind: None,
        }
    }

    /// Uses a connection of HTTP/1.1 again.
    fn again(idle: Idle, key: u64) -> Self {
        Self {
            socket: idle.socket,
            is_exclusive: idle.is_exclusive,
            behind: idle.last.has_body.then_some(idle.last),
            ..Self::new(Service::Http1(idle.stream), key, true)
        }
    }

    /// Begins a stream of HTTP/2 with its head.
    fn stream(slot: Slot, head: StreamHead, key: u64, is_reused: bool) -> pingora::Result<Self> {
        let stream = Box::new(Http2Stream::begin(slot, head)?);
        Ok(Self::new(Service::Http2(stream), key, is_reused))
    }
}

impl Connections {
    /// Keeps up to `max_idle` connections, each for `idle_timeout`.
    pub(crate) fn new(conduct: Conduct, max_idle: usize, idle_timeout: Duration) -> Self {
        let conduct = Arc::new(conduct);
        Self {
            connector: TransportConnector::new(None),
            open: Pool::new(Arc::clone(&conduct), max_idle, idle_timeout),
            conduct,
        }
    }

    /// Takes a connection that is open, or opens one; `tried` gets its address. Without `next` no open
    /// connection of HTTP/1.1 is taken. Over TLS the service chooses the version, except for a request
    /// `only_in_http_1`. Over HTTP/2 the head is sent: `head` gets true over TLS.
    pub(crate) async fn connect(
        &self,
        upstream: &Upstream,
        next: Option<NextRequest>,
        only_in_http_1: bool,
        head: &impl Fn(bool) -> pingora::Result<StreamHead>,
        tried: &mut Option<ServiceAddress>,
    ) -> pingora::Result<Connected> {
        let peer = upstream
            .peer()
            .ok_or_else(|| Error::explain(ErrorType::ConnectError, "no address"))?;
        // `tried` is set before the try, because the log of a failure names the address.
        *tried = Some(peer.any.address().clone());
        // Boxed, as what opens a connection: they would be most of what an idle connection takes.
        let new_head = || head(peer.any.is_tls()).map(Box::new);
        let in_http_1 = only_in_http_1 || upstream.speaks_http_1();
        let mut prepared = None;
        if in_http_1 {
            if let Some(next) = next
                && let Some(idle) = self.open.take(peer.key, next, Instant::now())
            {
                return Ok(Connected::again(idle, peer.key));
            }
        } else {
            let head = new_head()?;
            if http2::is_short(&head.request)
                && let Some(slot) = self.open.take_slot(peer.key, next, Instant::now())
            {
                return Connected::stream(slot, *head, peer.key, true);
            }
            // No connection had room, or the head is long: a new connection gets it.
            prepared = Some(head);
        }
        let opened = Box::pin(self.dial(upstream, &peer, only_in_http_1)).await?;
        if !opened.is_http_2 {
            return Ok(Connected {
                socket: opened.dial.opened(),
                ..Connected::new(Service::Http1(opened.stream), peer.key, false)
            });
        }
        let head = prepared.map_or_else(new_head, Ok)?;
        Box::pin(self.begin_http_2(opened.stream, *head, peer.key, next)).await
    }

    /// Begins HTTP/2 on a new connection, with the head of its first request.
    async fn begin_http_2(
        &self,
        stream: Stream,
        head: StreamHead,
        key: u64,
        next: Option<NextRequest>,
    ) -> pingora::Result<Connected> {
        let next = next.filter(|_| self.conduct.has_broken_http_2());
        let shared = Shared::begin(stream, next.map(|next| next.holder))
            .await
            .or_err(ErrorType::HandshakeError, "HTTP/2")?;
        let slot = shared.slot();
        // A long head may end its connection, so no other request shares it.
        if http2::is_short(&head.request) {
            self.open.put(Kept::Http2(shared), key, Instant::now());
        }
        Connected::stream(slot, head, key, false)
    }

    /// Opens a connection, of the version that the service chooses where it has the choice.
    async fn dial(
        &self,
        upstream: &Upstream,
        peer: &Arc<ServicePeer>,
        only_in_http_1: bool,
    ) -> pingora::Result<Opened> {
        let mut settings = if only_in_http_1 {
            peer.http_1.clone()
        } else {
            peer.any.clone()
        };
        let dial = Arc::new(Dial::default());
        // A Unix socket delays no acknowledgement.
        if settings.address().as_inet().is_some() {
            settings.options.custom_l4 = Some(Arc::clone(&dial) as _);
        }
        let stream = self.connector.new_stream(&settings).await;
        // The next try uses another address.
        let stream = stream.inspect_err(|error| upstream.unreachable(peer, log_cause(error)))?;
        upstream.reached();
        let is_http_2 = if peer.any.is_tls() {
            stream.selected_alpn_proto() == Some(ALPN::H2)
        } else {
            // The settings chose the version.
            !only_in_http_1 && !upstream.speaks_http_1()
        };
        if peer.any.is_tls() && !only_in_http_1 {
            upstream.has_chosen(is_http_2);
        }
        Ok(Opened {
            stream,
            dial,
            is_http_2,
        })
    }

    /// Keeps a connection of HTTP/1.1 for another request; a connection of HTTP/2 is in the pool already.
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
