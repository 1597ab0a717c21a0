//! One HTTP/1.1 connection: its limits, its time-outs, and an end at which the client still gets to
//! read the answer.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use contract::rejection::Rejection;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tower::ServiceExt;
use tracing::debug;

use super::automatic_answers::AutomaticAnswers;
use crate::http::client_address::Peer;
use crate::http::rejection_on_the_wire;

/// As in most servers: 100 fields, 64 KiB. A token has its own, lower limit.
const MAX_HEADER_FIELDS: usize = 100;
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// How long, and for how much, a refused upload is read on, so that the refusal arrives.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 8 * 1024 * 1024;

/// Serves the connection until it ends, or after `stop` changed until its last answer is out.
pub(super) async fn serve(
    stream: TcpStream,
    peer: IpAddr,
    router: Router,
    request_timeout: Duration,
    mut stop: watch::Receiver<()>,
) {
    // An answer may be two writes; the second must not wait for the first one's acknowledgement.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(peer));
        Box::pin(router.clone().oneshot(request))
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(request_timeout)
        .max_headers(MAX_HEADER_FIELDS)
        .max_header_size(MAX_HEADER_BYTES)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(AutomaticAnswers::new(stream)), service);

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
    let mut stream = parts.io.into_inner().into_inner();
    if let Err(error) = ended {
        debug!(%error, "connection ended");
        if let Some(rejection) = unanswered(&error, &parts.read_buf) {
            let _ = stream.write_all(&rejection_on_the_wire(rejection)).await;
        }
    }
    linger(stream).await;
}

/// What hyper gives up without a word. Half a header: the client waits for an answer; an idle
/// connection just ends.
fn unanswered(error: &hyper::Error, unread: &[u8]) -> Option<Rejection> {
    if error.is_timeout() && !unread.is_empty() {
        Some(Rejection::RequestTimeout)
    } else {
        error
            .is_parse_version_h2()
            .then_some(Rejection::RequestMalformed)
    }
}

/// Closes for writing and reads on for a moment: closing with unread bytes resets the connection,
/// and the client loses an answer that it has not read yet.
async fn linger(mut stream: TcpStream) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let rest =
        async { tokio::io::copy(&mut stream.take(LINGER_BYTES), &mut tokio::io::sink()).await };
    let _ = tokio::time::timeout(LINGER, rest).await;
}
