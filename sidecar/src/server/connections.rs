//! Accepts connections of clients: counts each, and serves it in its version of HTTP.

use std::net::Ipv6Addr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::ServerApp;
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use runtime::net::connection_slots::{Activity, ConnectionSlots};
use runtime::net::listener::LAST_REQUEST;
use runtime::tls::ServerTls;
use tokio::sync::Notify;
use tokio_util::either::Either;
use wire::rejection::Rejection::RequestMalformed;

use crate::exchange::Exchanges;
use crate::exchange::response::raw_http1_response;
use crate::http1::transport::{self, ClientTransport, Socket, peer_ip};
use crate::http1::{self, Http1Side};
use crate::http2;
use crate::identity::forwarded::Client;
use crate::telemetry::metrics::Counted;

/// Handler of accepted connections.
pub(crate) struct ClientConnections {
    pub(crate) requests: Arc<Exchanges>,
    pub(crate) tls: Option<Arc<ServerTls>>,
    pub(crate) slots: ConnectionSlots,
    pub(crate) head_timeout: Duration,
}

impl ClientConnections {
    /// Returns the transport for HTTP; `None` after a failed TLS handshake.
    async fn secured(&self, socket: Socket) -> Option<ClientTransport> {
        let Some(tls) = &self.tls else {
            return Some(Either::Left(socket));
        };
        tls.accept(socket, self.head_timeout)
            .await
            .inspect_err(|error| tracing::debug!(%error, "no TLS connection"))
            .map(|stream| Either::Right(Box::new(stream)))
            .ok()
    }

    /// Serves a connection to its end, or until it makes room for another one.
    async fn serve(&self, stream: Stream, shutdown: &ShutdownWatch) {
        let app = &self.requests.app;
        let peer = peer_ip(&stream).unwrap_or(Ipv6Addr::UNSPECIFIED.into());
        let is_proxy = app.request_logger.trusted_proxies.trusts(peer);
        let Some(slot) = self.slots.take(peer, is_proxy).await else {
            app.metrics.connections_rejected.inc();
            return;
        };
        let _open = Counted::among(&app.metrics.connections);
        let activity = slot.activity().clone();
        let goodbye = Notify::new();
        let serving = pin!(self.serve_requests(stream, activity, &goodbye, shutdown));
        slot.serve(serving, || goodbye.notify_one()).await;
    }

    async fn serve_requests(
        &self,
        stream: Stream,
        activity: Activity,
        goodbye: &Notify,
        shutdown: &ShutdownWatch,
    ) {
        let requests = &self.requests;
        // Without a timeout a write may wait forever.
        let timeout = requests.app.downstream_write_timeout;
        let address = peer_ip(&stream);
        let socket = Socket::new(stream, timeout.unwrap_or(Duration::MAX));
        // Boxed: most connections have no handshake, and none for long.
        let secured = Box::pin(self.secured(socket));
        let Some(transport) = secured.await else {
            return;
        };
        let proxies = &requests.app.request_logger.trusted_proxies;
        // The client's choice over TLS, which its first bytes have to keep.
        let chose = transport::chose_http_2(&transport);
        let client = Client::new(address, chose.is_some(), proxies);
        let mut side = Http1Side::new(transport, activity, self.head_timeout);
        let is_http_2 = match chose {
            Some(false) => Ok(false),
            _ => side.begins_http_2(&requests.closing).await,
        };
        match is_http_2 {
            Ok(true) => {
                let serving = http2::serve(requests, side, client, goodbye, shutdown.clone());
                // Boxed: most connections speak HTTP/1.1.
                Box::pin(serving).await;
            }
            Ok(false) if chose != Some(true) => http1::serve(requests, &mut side, &client).await,
            Ok(false) if side.received.is_empty() => {}
            Ok(false) => requests.report_unparsed(RequestMalformed, client.address, false),
            Err(why) if chose == Some(true) => requests.report_unparsed(why, client.address, false),
            Err(why) => {
                requests.report_unparsed(why, client.address, true);
                Box::pin(side.reject(raw_http1_response(why))).await;
            }
        }
    }
}

#[async_trait]
impl ServerApp for ClientConnections {
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        // Pingora's own task has room for a TLS handshake as long as the connection lasts.
        let (connections, shutdown) = (Arc::clone(self), shutdown.clone());
        tokio::spawn(async move { connections.serve(stream, &shutdown).await });
        None
    }

    /// Closes idle connections, after a while in which the last request of a client that does not
    /// know of the stop arrives and ends its connection.
    async fn cleanup(&self) {
        let idle = self.requests.closing.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LAST_REQUEST).await;
            idle.cancel();
        });
    }
}
