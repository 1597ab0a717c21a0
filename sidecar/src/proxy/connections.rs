//! Accepts connections of clients: counts each, wraps its transport, then passes it to the proxy.

use std::future::pending;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use pingora::apps::ServerApp;
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use runtime::net::connection_slots::{Activity, ConnectionSlots};
use runtime::net::listener::LAST_REQUEST;
use tokio::sync::{Notify, watch};
use wire::rejection::Rejection;

use crate::downstream::stream::{ClientStream, RejectUnparsed, client_ip, peer_ip};
use crate::downstream::transport::{self, ClientTransport, Socket};
use crate::headers::forwarded::Client;
use crate::proxy::fast_path::FastPath;
use crate::proxy::response;
use crate::proxy::timed_requests::TimedRequests;
use crate::telemetry::access_log::RequestRecord;
use crate::telemetry::outcome::{Completion, Outcome};
use crate::telemetry::request_log::RequestLogger;
use crate::telemetry::request_span::RequestSpan;
use runtime::tls::clients::ClientTls;

/// Handler of accepted connections.
pub(crate) struct ClientConnections {
    http_1: FastPath,
    requests: Arc<TimedRequests>,
    tls: Option<Arc<ClientTls>>,
    reject_unparsed: Arc<dyn RejectUnparsed>,
    slots: ConnectionSlots,
    head_timeout: Duration,
    downstream_write_timeout: Option<Duration>,
}

impl ClientConnections {
    pub(crate) fn new(
        http_1: FastPath,
        http_2: TimedRequests,
        tls: Option<Arc<ClientTls>>,
        slots: ConnectionSlots,
        head_timeout: Duration,
        downstream_write_timeout: Option<Duration>,
    ) -> Self {
        Self {
            http_1,
            tls,
            reject_unparsed: Arc::new(UnparsedRejections(http_2.request_logger.clone())),
            requests: Arc::new(http_2),
            slots,
            head_timeout,
            downstream_write_timeout,
        }
    }

    /// Returns the transport for HTTP; `None` after a failed TLS handshake.
    async fn secured(&self, socket: Socket) -> Option<ClientTransport> {
        let Some(tls) = &self.tls else {
            return Some(ClientTransport::plain(socket));
        };
        tls.accept(socket, self.head_timeout)
            .await
            .inspect_err(|error| tracing::debug!(%error, "no TLS connection"))
            .map(ClientTransport::encrypted)
            .ok()
    }

    /// Serves a connection to its end, or until it makes room for another one.
    async fn serve(&self, stream: Stream, shutdown: &ShutdownWatch) {
        let logger = &self.requests.request_logger;
        let peer = peer_ip(&stream).unwrap_or(Ipv6Addr::UNSPECIFIED.into());
        let is_proxy = logger.trusted_proxies.trusts(peer);
        let Some(slot) = self.slots.take(peer, is_proxy).await else {
            logger.metrics.connection_rejected();
            return;
        };
        let _open = logger.metrics.connection_opened();
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
        let socket = transport::socket(stream, self.downstream_write_timeout);
        // Boxed: most connections have no handshake, and none for long.
        let Some(transport) = Box::pin(self.secured(socket)).await else {
            return;
        };
        let proxies = &self.requests.request_logger.trusted_proxies;
        let client = Client::new(client_ip(&transport), transport.tls.is_some(), proxies);
        let mut stream = ClientStream::new(
            transport,
            Arc::clone(&self.reject_unparsed),
            self.head_timeout,
            self.downstream_write_timeout,
        )
        .publishing(activity);
        let Ok(is_http_2) = stream.begins_http_2().await else {
            return;
        };
        if is_http_2 {
            self.serve_http_2(Box::new(stream), goodbye, shutdown).await;
        } else {
            self.http_1.serve(&mut stream, client).await;
        }
    }

    /// Serves HTTP/2, and sends a GOAWAY at a shutdown or as `goodbye`.
    async fn serve_http_2(&self, stream: Stream, goodbye: &Notify, shutdown: &ShutdownWatch) {
        let (stop, stopped) = watch::channel(false);
        let mut shutdown = shutdown.clone();
        let stopping = async {
            tokio::select! {
                _ = shutdown.changed() => {}
                () = goodbye.notified() => {}
            }
            stop.send_replace(true);
            pending::<()>().await;
        };
        tokio::select! {
            _ = self.requests.process_new(stream, &stopped) => {}
            () = stopping => {}
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
        let requests = Arc::clone(&self.requests);
        let idle = self.http_1.closing();
        tokio::spawn(async move {
            tokio::time::sleep(LAST_REQUEST).await;
            idle.cancel();
            requests.cleanup().await;
        });
    }
}

/// Responses to requests that could not be parsed, reported like any other rejection.
#[derive(Debug)]
struct UnparsedRejections(RequestLogger);

impl RejectUnparsed for UnparsedRejections {
    fn reject(&self, rejection: Rejection, client: Option<IpAddr>) -> Bytes {
        self.on_rejected(rejection, client, true);
        response::raw_http1_response(rejection)
    }

    fn on_rejected(&self, rejection: Rejection, client: Option<IpAddr>, has_response: bool) {
        let completion = Completion {
            outcome: Outcome::Rejected(rejection),
            status: has_response.then(|| rejection.status().as_u16()),
            duration: None,
        };
        let span = RequestSpan::default();
        self.0.request_ended(&completion, span, || RequestRecord {
            client,
            ..RequestRecord::default()
        });
    }
}
