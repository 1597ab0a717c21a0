//! One HTTP/1.1 connection: limits, timeouts, and a close that does not lose the last response.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use runtime::net::connection_slots::Activity;
use runtime::net::listener::LAST_REQUEST;
use runtime::net::shares::Holder;
use runtime::net::write_deadline::WriteDeadline;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::ServiceExt;
use tracing::debug;
use wire::rejection::Rejection;

use super::draining::Draining;
use super::http1_guard::Http1Guard;
use crate::http::middleware::access_log::RequestLogger;
use crate::http::middleware::client_ip::Peer;
use crate::http::middleware::in_flight::InFlightBody;
use crate::http::raw_http1_response;
use crate::http::unfinished::Unfinished;

/// Limits of a head as in most servers: 100 fields, 16 KiB. A token has a lower limit of its own.
const MAX_HEADER_FIELDS: usize = 100;
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// Bounds the reading of a rejected upload after its response, so that the response arrives.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 8 * 1024 * 1024;

type Socket = WriteDeadline<TcpStream>;

#[derive(Clone)]
pub(super) struct Serving {
    pub(super) router: Router,
    pub(super) logger: RequestLogger,
    /// `None` for plain HTTP.
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) request_timeout: Duration,
    pub(super) draining: Draining,
    pub(super) unfinished: Unfinished,
    pub(super) stop: watch::Receiver<()>,
}

impl Serving {
    /// Serves the connection until it ends; after `stop` changed, until its last response is
    /// written.
    pub(super) async fn serve(self, stream: TcpStream, peer: IpAddr, activity: Activity) {
        // A response may be two writes; the second must not wait for the acknowledgement of the
        // first.
        let _ = stream.set_nodelay(true);
        let stream = WriteDeadline::new(stream, self.request_timeout);
        match self.tls.clone() {
            None => serve(stream, (peer, activity), self).await,
            // Boxed, or each plain connection would reserve room for it too.
            Some(tls) => Box::pin(self.serve_tls(tls, stream, (peer, activity))).await,
        }
    }

    async fn serve_tls(self, tls: TlsAcceptor, stream: Socket, client: (IpAddr, Activity)) {
        let peer = client.0;
        match self.handshake(&tls, stream).await {
            Ok(FirstBytes::Tls(stream)) => serve(*stream, client, self).await,
            Ok(FirstBytes::Plain(stream)) => self.reject_plain(stream, peer).await,
            Err(error) => debug!(%error, %peer, "TLS handshake failed"),
        }
    }

    /// Responds to `http://` on a TLS port; the response names the remedy.
    async fn reject_plain(self, mut stream: Socket, peer: IpAddr) {
        let rejection = Rejection::RequestMalformed;
        self.logger.log_unparsed(rejection, peer);
        let _ = stream.write_all(&raw_http1_response(rejection)).await;
        linger(stream).await;
    }

    /// Shakes hands within the request timeout, and aborts soon after a shutdown: nothing was
    /// requested yet.
    async fn handshake(&self, tls: &TlsAcceptor, stream: Socket) -> io::Result<FirstBytes> {
        let mut stop = self.stop.clone();
        tokio::select! {
            handshake = tokio::time::timeout(self.request_timeout, detect_tls(tls, stream)) => {
                handshake.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            }
            () = last_request(&mut stop) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

/// The begin of a connection to a TLS port.
enum FirstBytes {
    Tls(Box<TlsStream<Socket>>),
    /// Letters, as in a method of plain HTTP.
    Plain(Socket),
}

async fn detect_tls(tls: &TlsAcceptor, stream: Socket) -> io::Result<FirstBytes> {
    let mut first = [0];
    stream.get_ref().peek(&mut first).await?;
    if first.iter().all(u8::is_ascii_alphabetic) {
        return Ok(FirstBytes::Plain(stream));
    }
    let stream = tls.accept(stream).await?;
    Ok(FirstBytes::Tls(Box::new(stream)))
}

async fn serve<S>(stream: S, (peer, activity): (IpAddr, Activity), serving: Serving)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Serving {
        router,
        logger,
        request_timeout,
        draining,
        unfinished,
        mut stop,
        ..
    } = serving;
    let requests = activity.clone();
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let in_flight = requests.stream();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(peer));
        let draining = draining.clone();
        let response = router.clone().oneshot(request);
        Box::pin(async move {
            let response = draining.mark(response.await?);
            // In flight until the last of it is written.
            Ok::<_, Infallible>(response.map(|body| InFlightBody::new(body, in_flight)))
        })
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // The stream below has a timer that knows if a head has begun.
        .header_read_timeout(None)
        .max_headers(MAX_HEADER_FIELDS)
        .max_header_size(MAX_HEADER_BYTES)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(
            TokioIo::new(Http1Guard::new(
                stream,
                request_timeout,
                unfinished.nothing_held(Holder::at(Some(peer))),
                activity.clone(),
                {
                    let logger = logger.clone();
                    move |rejection| logger.log_unparsed(rejection, peer)
                },
            )),
            service,
        );

    // Not as a future: that would close the socket while a client is still sending.
    let ended = tokio::select! {
        ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => Some(ended),
        () = last_request(&mut stop) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            poll_fn(|cx| connection.poll_without_shutdown(cx)).await
        }
    };
    let parts = connection.into_parts();
    let stream = parts.io.into_inner();
    let partial_head = stream.has_partial_head();
    let mut stream = stream.into_inner();
    if let Err(error) = ended {
        debug!(%error, "connection ended");
        if let Some(rejection) = missing_response(&error, partial_head) {
            logger.log_unparsed(rejection, peer);
            let _ = stream.write_all(&raw_http1_response(rejection)).await;
        }
    }
    activity.waits_for_rest();
    Box::pin(linger(stream)).await;
}

/// Waits for a stop, and for the last request of a client that does not know of it.
async fn last_request(stop: &mut watch::Receiver<()>) {
    let _ = stop.changed().await;
    tokio::time::sleep(LAST_REQUEST).await;
}

/// Returns the rejection for errors that hyper leaves without a response.
fn missing_response(error: &hyper::Error, partial_head: bool) -> Option<Rejection> {
    if partial_head {
        Some(Rejection::RequestTimeout)
    } else {
        error
            .is_parse_version_h2()
            .then_some(Rejection::RequestMalformed)
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
