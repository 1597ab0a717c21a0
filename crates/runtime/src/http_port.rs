//! A port that speaks HTTP/1.1: its connections, their slots, handshakes and timeouts, its end.
//!
//! Served by hyper, whose timeout for heads `axum::serve` lacks, on the runtime of the caller: the
//! auth server's own, or the one of a Pingora background service.

use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::net::connection_slots::{Activity, ConnectionSlots};
use crate::net::listener;
use crate::net::write_deadline::WriteDeadline;
use crate::process::supervisor::Supervisor;
use crate::tls::clients::ClientTls;

/// A port, its routes and timeouts.
#[derive(Debug, Clone)]
pub struct HttpPort {
    /// Its name in the log.
    pub name: &'static str,
    /// Their requests have the extensions `ConnectInfo<SocketAddr>` and [`Activity`].
    pub routes: Router,
    /// `None` for a port without TLS.
    pub tls: Option<Arc<ClientTls>>,
    /// Of a handshake, of a head, and of a blocked write.
    pub timeout: Duration,
    /// Of the next head of a kept connection; `None` for one request a connection.
    pub keep_alive: Option<Duration>,
    /// Of requests in flight at the end.
    pub drain_timeout: Duration,
}

impl HttpPort {
    /// Serves in a task of its own, until `stop` is sent to. The end of the program waits for that.
    pub fn spawn(
        self,
        listener: StdListener,
        slots: impl Fn(IpAddr) -> ConnectionSlots + Send + Sync + 'static,
        stop: &watch::Sender<()>,
        background: &Supervisor,
    ) -> JoinHandle<()> {
        let mut stop = stop.subscribe();
        background.spawn_critical_until_shutdown(self.name, async move {
            let stopped = async { _ = stop.changed().await };
            let served = self.serve(listener, slots, stopped).await;
            served.map_err(|error| error.to_string())
        })
    }

    /// Serves until `shutdown` resolves, then finishes the requests in flight. Each peer has its slot
    /// of those that `slots` names.
    ///
    /// # Errors
    /// When the listener cannot be given to the runtime.
    pub async fn serve(
        self,
        listener: StdListener,
        slots: impl Fn(IpAddr) -> ConnectionSlots,
        shutdown: impl Future<Output = ()>,
    ) -> std::io::Result<()> {
        let listener = TcpListener::from_std(listener)?;
        let connections = GracefulShutdown::new();
        tokio::pin!(shutdown);
        loop {
            let next = async {
                let (stream, peer) = listener::accept(&listener, self.name).await;
                let ip = peer.ip().to_canonical();
                (slots(ip).take(ip, false).await, stream, peer)
            };
            tokio::select! {
                () = &mut shutdown => break,
                (slot, stream, peer) = next => if let Some(slot) = slot {
                    let (activity, watcher) = (slot.activity().clone(), connections.watcher());
                    let served = self.clone().serve_connection(stream, peer, activity, watcher);
                    tokio::spawn(async move { slot.serve(pin!(served), || ()).await });
                }
            }
        }
        drop(listener);
        // A peer that still reads after that is cut off.
        let _ = tokio::time::timeout(self.drain_timeout, connections.shutdown()).await;
        Ok(())
    }

    async fn serve_connection(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        activity: Activity,
        watcher: Watcher,
    ) {
        let stream = WriteDeadline::new(stream, self.timeout);
        let Some(tls) = &self.tls else {
            return self.serve_requests(stream, peer, activity, watcher).await;
        };
        match tls.accept(stream, self.timeout).await {
            Ok(stream) => self.serve_requests(stream, peer, activity, watcher).await,
            Err(error) => tracing::debug!(%error, %peer, "{}: TLS handshake failed", self.name),
        }
    }

    async fn serve_requests(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        peer: SocketAddr,
        activity: Activity,
        watcher: Watcher,
    ) {
        let routes = TowerToHyperService::new(self.routes.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            let activity = activity.clone();
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(activity.clone());
            let response = routes.call(request);
            async move {
                let response = response.await;
                activity.waits_for_request();
                response
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.keep_alive.unwrap_or(self.timeout))
            .keep_alive(self.keep_alive.is_some())
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, %peer, "{}: connection ended", self.name);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    /// A client whose connection is served so patiently, and for as long as the second is held.
    async fn connected_to(
        routes: Router,
        milliseconds: u64,
    ) -> (TcpStream, GracefulShutdown, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (stream, peer) = listener.accept().await.unwrap();
        let port = HttpPort {
            name: "a port",
            routes,
            tls: None,
            timeout: Duration::from_millis(milliseconds),
            keep_alive: None,
            drain_timeout: LONG,
        };
        let slots = ConnectionSlots::new("a port", 1);
        let slot = slots.take(peer.ip(), false).await.unwrap();
        let activity = slot.activity().clone();
        let connections = GracefulShutdown::new();
        let served = port.serve_connection(stream, peer, activity, connections.watcher());
        (client.unwrap(), connections, tokio::spawn(served))
    }

    #[tokio::test]
    async fn a_header_that_never_ends_is_cut_off() {
        let (mut client, _connections, served) = connected_to(Router::new(), 20).await;

        client.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
        let mut response = Vec::new();
        client.read_to_end(&mut response).await.unwrap();
        assert!(!response.starts_with(b"HTTP/1.1 200"));
        served.await.unwrap();
    }

    #[tokio::test]
    async fn a_response_that_no_client_reads_is_given_up() {
        let large = Router::new().route("/", get(async || vec![b'x'; 32 * 1024 * 1024]));
        let (mut client, _connections, served) = connected_to(large, 200).await;

        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        client.write_all(request).await.unwrap();
        tokio::time::timeout(LONG, served).await.unwrap().unwrap();
    }
}
