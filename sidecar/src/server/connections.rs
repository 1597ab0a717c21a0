//! Accepts connections of clients: counts each, and serves it in its version of HTTP.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use postern_contract::rejection::Rejection::{self, RequestMalformed};
use postern_transport::drain::DrainWatcher;
use postern_transport::net::connection_slots::{Activity, ConnectionSlots, Slot};
use postern_transport::net::listener;
use postern_transport::tls::ServerTls;
use postern_transport::tls::first_bytes::{FirstBytes, Socket};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::either::Either;

use crate::downstream::HTTP_2_PREFACE;
use crate::downstream::http1::{self, Http1Downstream};
use crate::downstream::http2::{self, NewConnection};
use crate::downstream::transport::{self, ClientTransport};
use crate::exchange::Exchanges;
use crate::exchange::record::UnparsedResponse::NotSent;
use crate::identity::client::Client;
use crate::telemetry::metrics::Counted;

/// Handler of accepted connections.
pub(crate) struct ClientConnections {
    pub(crate) requests: Arc<Exchanges>,
    pub(crate) tls: Option<Arc<ServerTls>>,
    pub(crate) slots: ConnectionSlots,
    pub(crate) head_timeout: Duration,
}

impl ClientConnections {
    /// Returns the transport for HTTP; `None` for a client that does not complete a handshake. One that sends
    /// plain HTTP gets a response.
    async fn transport_of(
        &self,
        socket: TcpStream,
        peer: IpAddr,
        activity: &Activity,
    ) -> Option<ClientTransport> {
        // Without a timeout a write may wait forever.
        let timeout = self.requests.app.downstream_write_timeout;
        // A response may be two writes; the second must not wait for the acknowledgement of the first.
        let _ = socket.set_nodelay(true);
        let socket = Socket::new(socket, timeout.unwrap_or(Duration::MAX));
        let Some(tls) = &self.tls else {
            return Some(Either::Left(socket));
        };
        let plain = match tls.begin(socket, peer, self.head_timeout).await.ok()? {
            FirstBytes::Tls(stream) => return Some(Either::Right(stream)),
            FirstBytes::Plain(socket) => Either::Left(socket),
        };
        Http1Downstream::new(plain, activity.clone(), self.head_timeout)
            .reject_unparsed(&self.requests, RequestMalformed, Some(peer))
            .await;
        None
    }

    /// Accepts connections, and serves each in a task of its own.
    pub(crate) async fn accept(
        self: Arc<Self>,
        listener: TcpListener,
        drain: DrainWatcher,
    ) -> Infallible {
        loop {
            let (slot, socket, peer) =
                listener::accept(&listener, "public port", |peer| self.slot(peer)).await;
            let (clients, drain) = (Arc::clone(&self), drain.clone());
            tokio::spawn(async move { clients.serve(slot, socket, peer, drain).await });
        }
    }

    /// Takes the slot of a connection; `None` where it is to be closed.
    async fn slot(&self, peer: IpAddr) -> Option<Slot> {
        let app = &self.requests.app;
        let is_proxy = app.trusted_proxies.trusts(peer);
        let slot = self.slots.take(peer, is_proxy).await;
        if slot.is_none() {
            app.metrics.connections_rejected.inc();
        }
        slot
    }

    /// Serves a connection to its end, or until it makes room for another one.
    async fn serve(&self, slot: Slot, socket: TcpStream, peer: SocketAddr, drain: DrainWatcher) {
        let _open = Counted::among(&self.requests.app.metrics.connections);
        let goodbye = Notify::new();
        let serving =
            pin!(self.serve_requests(socket, peer, slot.activity().clone(), &goodbye, drain));
        slot.serve(serving, || goodbye.notify_one()).await;
    }

    async fn serve_requests(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        activity: Activity,
        goodbye: &Notify,
        mut drain: DrainWatcher,
    ) {
        let requests = &self.requests;
        // Boxed: most connections have no handshake, and none for long.
        let Some(transport) = Box::pin(self.transport_of(socket, peer.ip(), &activity)).await
        else {
            return;
        };
        // The client's choice over TLS, which its first bytes have to keep.
        let chose = transport::chose_http_2(&transport);
        let trusted = &requests.app.trusted_proxies;
        let client = Client::new(Some(peer.ip()), chose.is_some(), trusted)
            .with_certificate(transport::client_certificate(&transport));
        let mut downstream = Http1Downstream::new(transport, activity, self.head_timeout);
        let is_http_2 = match chose {
            Some(false) => Ok(false),
            _ => begins_http_2(&mut downstream, &mut drain).await,
        };
        match is_http_2 {
            Ok(true) => {
                let connection = NewConnection {
                    transport: downstream.transport,
                    activity: downstream.activity,
                    received: downstream.received,
                };
                // Boxed: most connections speak HTTP/1.1.
                Box::pin(http2::serve(requests, connection, client, goodbye, drain)).await;
            }
            Ok(false) if chose != Some(true) => {
                http1::serve(requests, &mut downstream, &client, &mut drain).await
            }
            // Closed before the first byte: nothing was requested.
            Ok(false) if downstream.received.is_empty() => {}
            // TLS chose HTTP/2: such a client could not read a response of HTTP/1.1.
            Ok(false) => requests.report_unparsed(RequestMalformed, client.address, NotSent),
            Err(why) if chose == Some(true) => {
                requests.report_unparsed(why, client.address, NotSent)
            }
            Err(why) => {
                Box::pin(downstream.reject_unparsed(requests, why, client.address)).await;
            }
        }
    }
}

/// Reads until the bytes are the preface of HTTP/2 or differ from it, if only by the first byte: a
/// request of HTTP/1.0 may be shorter than the preface.
///
/// # Errors
/// [`Rejection::RequestTimeout`].
async fn begins_http_2(
    downstream: &mut Http1Downstream,
    drain: &mut DrainWatcher,
) -> Result<bool, Rejection> {
    while downstream.received.len() < HTTP_2_PREFACE.len()
        && HTTP_2_PREFACE.starts_with(&downstream.received)
    {
        if !downstream.read_head(drain).await? {
            break;
        }
    }
    Ok(downstream.received.starts_with(HTTP_2_PREFACE))
}
