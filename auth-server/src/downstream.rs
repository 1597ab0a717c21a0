//! Accepts connections and shuts down gracefully; `connection` serves each of them.

mod connection;
mod draining;
mod http1_guard;

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use runtime::net::connection_slots::{ConnectionSlots, Slot};
use runtime::net::listener;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use self::connection::Serving;
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
    slots: &ConnectionSlots,
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
            (stream, peer, slot) = accept(&listener, slots, &serving.logger) => {
                let activity = slot.activity().clone();
                let served = serving.clone().serve(stream, peer, activity);
                tokio::spawn(async move { slot.serve(pin!(served), || ()).await });
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

/// Accepts the next connection that gets a slot.
async fn accept(
    listener: &TcpListener,
    slots: &ConnectionSlots,
    logger: &RequestLogger,
) -> (TcpStream, IpAddr, Slot) {
    loop {
        let (stream, peer) = listener::accept(listener, "public port").await;
        let is_proxy = logger.trusted_proxies.trusts(peer.ip());
        match slots.take(peer.ip(), is_proxy).await {
            Some(slot) => return (stream, peer.ip(), slot),
            None => logger.metrics.connection_rejected(),
        }
    }
}

#[cfg(test)]
mod tests;
