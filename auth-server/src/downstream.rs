//! Accepts connections and shuts down gracefully; `connection` serves each of them.

mod connection;
mod connection_limit;
mod draining;
mod http1_guard;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use runtime::net::listener;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use self::connection::Serving;
pub(crate) use self::connection_limit::ConnectionLimit;
pub(crate) use self::draining::Draining;
use crate::http::middleware::access_log::RequestLogger;
use crate::http::unfinished::Unfinished;

/// Longest wait for requests in flight. They are short, and orchestrators grant 10 to 30 seconds in
/// all.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct ServerParts {
    pub(crate) router: Router,
    /// Logs requests that never reach the router.
    pub(crate) logger: RequestLogger,
    /// `None` for plain HTTP.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Timeout of a TLS handshake, of a request's head, of its body, and of a blocked write.
    pub(crate) request_timeout: Duration,
    pub(crate) draining: Draining,
    /// Budget for incomplete heads.
    pub(crate) unfinished: Unfinished,
}

/// Serves until `shutdown` resolves, then finishes the requests in flight; returns its output.
pub(crate) async fn serve<T>(
    listener: TcpListener,
    served: ServerParts,
    limit: &ConnectionLimit,
    shutdown: impl Future<Output = T>,
) -> T {
    let (stop, stopped) = watch::channel(());
    let serving = Serving {
        router: served.router,
        logger: served.logger,
        tls: served.tls.map(TlsAcceptor::from),
        request_timeout: served.request_timeout,
        draining: served.draining,
        unfinished: served.unfinished,
        stop: stopped,
    };
    tokio::pin!(shutdown);
    let reason = loop {
        tokio::select! {
            reason = &mut shutdown => break reason,
            (stream, peer, permit) = accept(&listener, limit) => {
                let serving = serving.clone();
                tokio::spawn(async move {
                    serving.serve(stream, peer).await;
                    drop(permit);
                });
            }
        }
    };
    drop((listener, serving));
    // Each connection holds a receiver until it ends.
    info!(connections = stop.receiver_count(), "draining");
    stop.send_replace(());
    match tokio::time::timeout(DRAIN_TIMEOUT, stop.closed()).await {
        Ok(()) => info!("drained: every connection is closed"),
        Err(_) => warn!(
            connections = stop.receiver_count(),
            "closing connections that did not finish in time"
        ),
    }
    reason
}

/// Waits for a permit, then accepts the next connection.
async fn accept(
    listener: &TcpListener,
    limit: &ConnectionLimit,
) -> (TcpStream, IpAddr, Option<OwnedSemaphorePermit>) {
    let permit = limit.permit().await;
    let (stream, peer) = listener::accept(listener, "public port").await;
    (stream, peer.ip(), permit)
}

#[cfg(test)]
mod tests;
