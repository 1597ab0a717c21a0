//! A port that speaks HTTP/1.1: its connections, their slots, handshakes and timeouts, its end.
//!
//! The port is served by hyper on the runtime of the caller: the auth server's own, or the runtime of a
//! Pingora background service. Checks that hyper does not make are in the stream below it ([`http1_guard`]).

mod http1_guard;
mod in_flight;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::HeaderValue;
use http::header::CONNECTION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use postern_http::invalid::InvalidRequest;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tower::ServiceExt;
use tracing::{debug, info, warn};

use self::http1_guard::Http1Guard;
pub use self::in_flight::InFlightBody;
use crate::drain::{DrainTrigger, DrainWatcher, Phase};
use crate::net::connection_slots::{Activity, OpenStream, Slot};
use crate::net::listener::{self, CLIENT_IDLE};
use crate::net::shares::{Holder, Shares};
use crate::net::unfinished;
use crate::net::write_deadline::WriteDeadline;
use crate::tls::ServerTls;
use crate::tls::first_bytes::{FirstBytes, Socket};
use postern_process::supervisor::Supervisor;

/// Limits of a head as in most servers: 100 fields, 16 KiB.
const MAX_HEADER_FIELDS: usize = 100;
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// Max time and bytes for which a rejected upload is read after its response, so that the response arrives.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 8 * 1024 * 1024;

/// Writes the response to a client's bytes that are no request.
pub type Reject = Arc<dyn Fn(InvalidRequest, IpAddr) -> Vec<u8> + Send + Sync>;

/// The certificate that the client of a request has presented, in DER.
#[derive(Debug, Clone)]
pub struct PeerCertificate(pub Arc<[u8]>);

/// A port, its routes and timeouts.
#[derive(Clone)]
pub struct HttpPort {
    /// The name of the port in the log.
    pub name: &'static str,
    /// The routes. Their requests have the extensions `ConnectInfo<SocketAddr>` and [`Activity`], and with
    /// TLS [`PeerCertificate`] if the client has a certificate.
    pub routes: Router,
    /// The TLS settings; `None` for a port without TLS.
    pub tls: Option<Arc<ServerTls>>,
    /// Timeout of a handshake, of a head, and of a blocked write.
    pub timeout: Duration,
    /// True for many requests a connection, false for one.
    pub keep_alive: bool,
    /// True where a connection is busy until its response has left; otherwise its route decides.
    pub is_busy_with_requests: bool,
    /// Longest wait for requests in flight at the end.
    pub drain_timeout: Duration,
    /// The drain, which only the port's connections watch.
    pub drain: DrainTrigger,
    /// Budget for incomplete heads.
    pub unfinished: Shares,
    /// See [`Reject`].
    pub reject: Reject,
}

impl HttpPort {
    /// Makes a port without TLS, of one request a connection; other bytes get a mere status.
    #[must_use]
    pub fn new(name: &'static str, routes: Router, timeout: Duration) -> Self {
        Self {
            name,
            routes,
            tls: None,
            timeout,
            keep_alive: false,
            is_busy_with_requests: false,
            drain_timeout: timeout,
            drain: DrainTrigger::default(),
            unfinished: unfinished::budget(),
            reject: Arc::new(|rejection, _| {
                format!(
                    "HTTP/1.1 {}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                    rejection.status()
                )
                .into_bytes()
            }),
        }
    }

    /// Serves in a task of its own, until its drain stops accepting. The end of the program waits for the end
    /// of this task.
    pub fn spawn<F: Future<Output = Option<Slot>> + Send>(
        self,
        listener: StdListener,
        slot: impl Fn(IpAddr) -> F + Send + Sync + 'static,
        background: &Supervisor,
    ) -> JoinHandle<()> {
        let mut drain = self.drain.watcher();
        background.spawn_critical_until_shutdown(self.name, async move {
            // This block owns the watcher and drops it at its end: `serve` waits until all are dropped.
            let stopped = async move { drain.reached(Phase::Closing).await };
            self.serve(listener, slot, stopped)
                .await
                .map_err(|error| error.to_string())
        })
    }

    /// Serves until `shutdown` completes, then finishes the requests in flight; returns the output of
    /// `shutdown`. `slot` takes the slot of each connection; without a slot the connection is closed.
    ///
    /// # Errors
    /// When the listener cannot be given to the runtime.
    pub async fn serve<T, F: Future<Output = Option<Slot>>>(
        self,
        listener: StdListener,
        slot: impl Fn(IpAddr) -> F,
        shutdown: impl Future<Output = T>,
    ) -> io::Result<T> {
        let listener = TcpListener::from_std(listener)?;
        let watcher = self.drain.watcher();
        let port = Arc::new(self);
        tokio::pin!(shutdown);
        let reason = loop {
            tokio::select! {
                reason = &mut shutdown => break reason,
                (slot, stream, peer) = listener::accept(&listener, port.name, &slot) => {
                    let connection = Connection {
                        port: Arc::clone(&port),
                        peer,
                        activity: slot.activity().clone(),
                        drain: watcher.clone(),
                    };
                    let served = connection.serve(stream);
                    // Each connection is a task of its own, which outlives this loop.
                    tokio::spawn(async move { slot.serve(pin!(served), || ()).await });
                }
            }
        };
        // No connection is accepted any more, and `closed` waits for the open connections alone.
        drop((listener, watcher));
        info!(
            connections = port.drain.watchers(),
            port = port.name,
            "draining"
        );
        if port.drain.close(port.drain_timeout).await {
            info!(port = port.name, "drained: every connection is closed")
        } else {
            warn!(
                connections = port.drain.watchers(),
                port = port.name,
                "closing connections that did not finish in time"
            )
        }
        Ok(reason)
    }
}

/// A connection that is served.
struct Connection {
    port: Arc<HttpPort>,
    peer: SocketAddr,
    activity: Activity,
    drain: DrainWatcher,
}

impl Connection {
    /// Serves the connection until it ends; in a drain, until its last response is written.
    async fn serve(self, stream: TcpStream) {
        // A response may be two writes; the second must not wait for the acknowledgement of the
        // first.
        let _ = stream.set_nodelay(true);
        let stream = WriteDeadline::new(stream, self.port.timeout);
        match self.port.tls.clone() {
            None => self.serve_requests(stream, None).await,
            // Boxed, because otherwise each plain connection would reserve room for TLS too.
            Some(tls) => Box::pin(self.serve_tls(&tls, stream)).await,
        }
    }

    async fn serve_tls(self, tls: &ServerTls, stream: Socket) {
        match self.handshake(tls, stream).await {
            Ok(FirstBytes::Tls(stream)) => {
                let (_, session) = stream.get_ref();
                let certificate = session
                    .peer_certificates()
                    .and_then(<[_]>::first)
                    .map(|leaf| PeerCertificate(leaf.as_ref().into()));
                self.serve_requests(*stream, certificate).await;
            }
            // The response names the remedy.
            Ok(FirstBytes::Plain(mut stream)) => {
                let _ = stream
                    .write_all(&self.reject(InvalidRequest::Malformed))
                    .await;
                linger(stream).await;
            }
            // Logged there, or a probe that has left.
            Err(_) => {}
        }
    }

    /// Shakes hands within the timeout, and aborts soon after a stop: the client has requested nothing yet.
    async fn handshake(&self, tls: &ServerTls, stream: Socket) -> io::Result<FirstBytes> {
        let mut drain = self.drain.clone();
        tokio::select! {
            begun = tls.begin(stream, self.peer.ip(), self.port.timeout) => begun,
            () = self.port.last_request(&mut drain) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    fn reject(&self, rejection: InvalidRequest) -> Vec<u8> {
        (self.port.reject)(rejection, self.peer.ip())
    }

    async fn serve_requests<S>(mut self, stream: S, certificate: Option<PeerCertificate>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let port = Arc::clone(&self.port);
        let read_activity = if port.is_busy_with_requests {
            self.activity.clone()
        } else {
            Activity::default()
        };
        let guarded = Http1Guard::new(
            (stream, port.tls.is_none().then_some(self.peer.ip())),
            (port.timeout, CLIENT_IDLE),
            port.unfinished
                .nothing_for(Holder::for_address(Some(self.peer.ip()))),
            read_activity,
        );
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // The stream below has a timer that knows if a head has begun.
            .header_read_timeout(None)
            .keep_alive(port.keep_alive)
            .max_headers(MAX_HEADER_FIELDS)
            .max_header_size(MAX_HEADER_BYTES)
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(TokioIo::new(guarded), service_fn(self.service(certificate)));

        // Polled, and not awaited: the future would close the socket while a client is still sending.
        let ended = tokio::select! {
            ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => ended,
            () = port.last_request(&mut self.drain) => {
                // The request in flight still gets its response.
                Pin::new(&mut connection).graceful_shutdown();
                poll_fn(|cx| connection.poll_without_shutdown(cx)).await
            }
        };
        let (mut stream, mut missing_response) =
            connection.into_parts().io.into_inner().into_parts();
        if let Err(error) = ended {
            debug!(%error, peer = %self.peer, "{}: connection ended", port.name);
            if error.is_parse_version_h2() {
                // hyper has no response of its own to the preface of HTTP/2.
                missing_response = Some(InvalidRequest::Malformed);
            }
        }
        if let Some(rejection) = missing_response {
            // A client that is gone needs no response.
            let _ = stream.write_all(&self.reject(rejection)).await;
        }
        self.activity.waits_for_rest();
        Box::pin(linger(stream)).await;
    }

    /// Returns the service that responds to the requests of the connection.
    fn service(
        &self,
        certificate: Option<PeerCertificate>,
    ) -> impl Fn(http::Request<hyper::body::Incoming>) -> PinnedResponse + Send + 'static {
        let (port, peer) = (Arc::clone(&self.port), self.peer);
        let activity = self.activity.clone();
        move |request| {
            let in_flight = port.is_busy_with_requests.then(|| activity.stream());
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(activity.clone());
            if let Some(certificate) = certificate.clone() {
                request.extensions_mut().insert(certificate);
            }
            let (port, activity) = (Arc::clone(&port), activity.clone());
            Box::pin(async move {
                let mut response = port.routes.clone().oneshot(request).await?;
                if port.drain.has_begun() {
                    // The last response announces the close (RFC 9112 §9.6).
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(CONNECTION, close);
                }
                if in_flight.is_none() {
                    activity.waits_for_request();
                }
                // The request is in flight until the last byte of its response is written.
                Ok(response.map(|body| InFlightBody::new(body, in_flight)))
            })
        }
    }
}

type InFlightResponse = http::Response<InFlightBody<Option<OpenStream>>>;
type PinnedResponse = Pin<Box<dyn Future<Output = Result<InFlightResponse, Infallible>> + Send>>;

impl HttpPort {
    /// Waits until an idle connection is to end. No other request comes on one that is for one.
    async fn last_request(&self, drain: &mut DrainWatcher) {
        let phase = if self.keep_alive {
            Phase::Ending
        } else {
            Phase::Closing
        };
        drain.reached(phase).await;
    }
}

/// Closes for writing and reads on for a moment: closing with unread bytes resets the connection,
/// and an unread response is lost. A TLS client also still sends its own close.
async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let parting = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(LINGER_BYTES), &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(LINGER, parting).await;
}

#[cfg(test)]
mod tests;
