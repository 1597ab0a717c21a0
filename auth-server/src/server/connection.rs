//! One HTTP/1.1 connection: its limits, its time-outs, and an end at which the client still gets to
//! read the answer.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use contract::rejection::Rejection;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use runtime::write_deadline::WriteDeadline;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::ServiceExt;
use tracing::debug;

use super::draining::Draining;
use super::http1_guard::AutomaticAnswers;
use crate::http::middleware::access_log::Reports;
use crate::http::middleware::client_ip::Peer;
use crate::http::rejection_on_the_wire;
use crate::http::unfinished::Unfinished;

/// As in most servers: 100 fields, 16 KiB. A token has its own, lower limit.
const MAX_HEADER_FIELDS: usize = 100;
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// How long, and for how much, a refused upload is read on, so that the refusal arrives.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 8 * 1024 * 1024;

type Socket = WriteDeadline<TcpStream>;

/// What every connection is served with.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) router: Router,
    pub(super) reports: Reports,
    /// `None`: the port speaks plainly.
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) request_timeout: Duration,
    pub(super) draining: Draining,
    pub(super) unfinished: Unfinished,
    pub(super) stop: watch::Receiver<()>,
}

impl Serving {
    /// Serves the connection until it ends, or after `stop` changed until its last answer is out.
    pub(super) async fn serve(self, stream: TcpStream, peer: IpAddr) {
        // An answer may be two writes; the second must not wait for the first one's acknowledgement.
        let _ = stream.set_nodelay(true);
        let stream = WriteDeadline::new(stream, self.request_timeout);
        match self.tls.clone() {
            None => serve(stream, peer, self).await,
            // Boxed, or each plain connection would have room for this too.
            Some(tls) => Box::pin(self.serve_over(tls, stream, peer)).await,
        }
    }

    async fn serve_over(self, tls: TlsAcceptor, stream: Socket, peer: IpAddr) {
        match self.handshake(&tls, stream).await {
            Ok(Greeting::Tls(stream)) => serve(*stream, peer, self).await,
            Ok(Greeting::Plain(stream)) => self.refuse_plain(stream, peer).await,
            Err(error) => debug!(%error, %peer, "no TLS connection"),
        }
    }

    /// Who sent `http://` to this port learns it from the answer's remedy.
    async fn refuse_plain(self, mut stream: Socket, peer: IpAddr) {
        let rejection = Rejection::RequestMalformed;
        self.reports.refused_unread(rejection, peer);
        let _ = stream.write_all(&rejection_on_the_wire(rejection)).await;
        linger(stream).await;
    }

    /// As long as a header may take; who has not said anything of HTTP yet is not waited for at the end.
    async fn handshake(&self, tls: &TlsAcceptor, stream: Socket) -> io::Result<Greeting> {
        let mut stop = self.stop.clone();
        tokio::select! {
            handshake = tokio::time::timeout(self.request_timeout, greet(tls, stream)) => {
                handshake.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            }
            _ = stop.changed() => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

/// How a connection to a port that speaks TLS begins.
enum Greeting {
    Tls(Box<TlsStream<Socket>>),
    /// As a method does, and no handshake.
    Plain(Socket),
}

async fn greet(tls: &TlsAcceptor, stream: Socket) -> io::Result<Greeting> {
    let mut first = [0];
    stream.get_ref().peek(&mut first).await?;
    if first.iter().all(u8::is_ascii_alphabetic) {
        return Ok(Greeting::Plain(stream));
    }
    let stream = tls.accept(stream).await?;
    Ok(Greeting::Tls(Box::new(stream)))
}

async fn serve<S>(stream: S, peer: IpAddr, serving: Serving)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Serving {
        router,
        reports,
        request_timeout,
        draining,
        unfinished,
        mut stop,
        ..
    } = serving;
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(peer));
        let draining = draining.clone();
        let router =
            ServiceExt::<http::Request<Body>>::map_response(router.clone(), move |answer| {
                draining.mark(answer)
            });
        router.oneshot(request)
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // The stream below has one that knows whether a head has begun.
        .header_read_timeout(None)
        .max_headers(MAX_HEADER_FIELDS)
        .max_header_size(MAX_HEADER_BYTES)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(
            TokioIo::new(AutomaticAnswers::new(
                stream,
                request_timeout,
                unfinished.nothing_held(),
                {
                    let reports = reports.clone();
                    move |rejection| reports.refused_unread(rejection, peer)
                },
            )),
            service,
        );

    // Not as a future: that would close the socket in the face of a client that is still sending.
    let ended = tokio::select! {
        ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => Some(ended),
        _ = stop.changed() => None,
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
    let half_a_head = stream.has_half_a_head();
    let mut stream = stream.into_inner();
    if let Err(error) = ended {
        debug!(%error, "connection ended");
        if let Some(rejection) = unanswered(&error, half_a_head) {
            reports.refused_unread(rejection, peer);
            let _ = stream.write_all(&rejection_on_the_wire(rejection)).await;
        }
    }
    Box::pin(linger(stream)).await;
}

/// What hyper gives up without a word, though the client waits for an answer.
fn unanswered(error: &hyper::Error, half_a_head: bool) -> Option<Rejection> {
    if half_a_head {
        Some(Rejection::RequestTimeout)
    } else {
        error
            .is_parse_version_h2()
            .then_some(Rejection::RequestMalformed)
    }
}

/// Closes for writing and reads on for a moment: closing with unread bytes resets the connection,
/// and the client loses an answer that it has not read yet. Of TLS the close itself is something to read.
async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let parting = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(LINGER_BYTES), &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(LINGER, parting).await;
}
