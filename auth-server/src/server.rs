//! Accepts connections and ends them gracefully. What happens on one of them is `connection`'s.

mod connection;
mod connection_limit;
mod draining;
mod http1_guard;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use runtime::listener;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_rustls::TlsAcceptor;
use tracing::warn;

use self::connection::Serving;
pub(crate) use self::connection_limit::ConnectionLimit;
pub(crate) use self::draining::Draining;
use crate::http::middleware::access_log::Reports;
use crate::http::unfinished::Unfinished;

/// In-flight requests are short (the longest is a body that arrives slowly), and orchestrators
/// grant 10 to 30 seconds in all.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// What is served, and how.
pub(crate) struct Served {
    pub(crate) router: Router,
    /// Hears of what never reaches the router.
    pub(crate) reports: Reports,
    /// `None`: the port speaks plainly.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// For a TLS handshake, for a request's header, again for its body, and for a client to read on.
    pub(crate) request_timeout: Duration,
    pub(crate) draining: Draining,
    /// For the heads that come in pieces.
    pub(crate) unfinished: Unfinished,
}

/// Serves until `shutdown` resolves, then finishes what is in flight. Why it resolved is for the caller.
pub(crate) async fn serve<T>(
    listener: TcpListener,
    served: Served,
    limit: &ConnectionLimit,
    shutdown: impl Future<Output = T>,
) -> T {
    let (stop, stopped) = watch::channel(());
    let serving = Serving {
        router: served.router,
        reports: served.reports,
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
            (stream, peer, place) = accept(&listener, limit) => {
                let serving = serving.clone();
                tokio::spawn(async move {
                    serving.serve(stream, peer).await;
                    drop(place);
                });
            }
        }
    };
    drop((listener, serving));
    stop.send_replace(());
    // Each connection holds a receiver to its end.
    if tokio::time::timeout(DRAIN_TIMEOUT, stop.closed())
        .await
        .is_err()
    {
        warn!("connections that did not finish in time are cut off");
    }
    reason
}

/// The next connection, once there is a place for it.
async fn accept(
    listener: &TcpListener,
    limit: &ConnectionLimit,
) -> (TcpStream, IpAddr, Option<OwnedSemaphorePermit>) {
    let place = limit.place().await;
    let (stream, peer) = listener::accept(listener, "public port").await;
    (stream, peer.ip(), place)
}

#[cfg(test)]
mod tests;
