//! A client's connection, as HTTP reads and writes it.
//!
//! Heads that are too slow or too large are rejected here. HTTP/2 passes unchanged; the rejections of
//! its library are reported.

mod connection_info;
mod ended_responses;
mod h2_error_sniffer;
mod pipelined;

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use pingora::protocols::{ALPN, Shutdown, Stream};
use runtime::net::connection_slots::Activity;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use wire::http::framing::requests::RequestBoundaries;
use wire::rejection::Rejection;

pub(crate) use self::connection_info::ConnectionInfo;
use self::ended_responses::WindowDeadline;
pub(crate) use self::ended_responses::{EndedResponses, Generation};
use self::h2_error_sniffer::{BareRejection, BareRejections};
use self::pipelined::Pipelined;
use crate::downstream::head_limits::HeadLimiter;
use crate::downstream::transport::ClientTransport;

/// Beginning of every HTTP/2 connection (RFC 9113 §3.4), and of no HTTP/1.1 request.
const HTTP_2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Large enough for most HTTP/1.1 heads, so that peeking costs no extra system call.
const PEEK_BYTES: usize = 2048;
/// Wait for a client that is still sending: closing earlier would reset the connection before it
/// reads the response.
const LINGER: Duration = Duration::from_secs(2);

/// Rejects and reports requests that could not be parsed.
pub(crate) trait RejectUnparsed: std::fmt::Debug + Send + Sync {
    /// Reports the rejection, and returns the whole response, head and body.
    fn reject(&self, rejection: Rejection, client: Option<IpAddr>) -> Bytes;

    /// Reports a rejection that another layer has sent already, as a response or as a reset.
    fn on_rejected(&self, rejection: Rejection, client: Option<IpAddr>, has_response: bool);
}

/// Transport of a client's connection, with the checks of this module.
#[derive(Debug)]
pub(crate) struct ClientStream {
    transport: ClientTransport,
    reject_unparsed: Arc<dyn RejectUnparsed>,
    activity: Activity,
    /// True from the first filter of a request to its last.
    handling: AtomicBool,
    /// True once a request was handled since `head` began.
    handled: AtomicBool,
    /// Number of requests handled, including the present one.
    requests_handled: AtomicU64,
    head: HeadLimiter,
    /// Bytes that were read to detect HTTP/2, and that its reader has not read yet.
    peeked: Bytes,
    has_peeked: bool,
    /// Bytes that arrived behind a whole request that is being handled.
    pipelined: Pipelined,
    is_http_2: bool,
    /// The part of the preface that is still to come after TLS negotiated HTTP/2.
    preface: &'static [u8],
    /// True once a tunnel is open.
    is_tunnel: AtomicBool,
    requests: RequestBoundaries,
    bare_rejections: BareRejections,
    window_deadline: WindowDeadline,
    /// The unsent part of our rejection; `None` until there is one.
    rejection: Option<Bytes>,
}

impl ClientStream {
    /// Wraps `transport`. `head_timeout` limits the arrival of a head, `write_timeout` how long an
    /// HTTP/2 client may hold back responses by its windows.
    pub(crate) fn new(
        transport: ClientTransport,
        reject_unparsed: Arc<dyn RejectUnparsed>,
        head_timeout: Duration,
        write_timeout: Option<Duration>,
    ) -> Self {
        let is_http_2 = transport.alpn() == Some(ALPN::H2);
        Self {
            is_http_2,
            preface: if is_http_2 { HTTP_2_PREFACE } else { &[] },
            transport,
            reject_unparsed,
            activity: Activity::default(),
            peeked: Bytes::new(),
            has_peeked: false,
            pipelined: Pipelined::default(),
            handling: AtomicBool::new(false),
            handled: AtomicBool::new(false),
            requests_handled: AtomicU64::new(0),
            head: HeadLimiter::first(head_timeout),
            is_tunnel: AtomicBool::new(false),
            requests: RequestBoundaries::default(),
            bare_rejections: BareRejections::default(),
            window_deadline: WindowDeadline::new(write_timeout),
            rejection: None,
        }
    }

    /// Publishes when the connection waits and when it serves.
    pub(crate) fn publishing(self, activity: Activity) -> Self {
        if self.is_http_2 {
            activity.speaks_http_2();
        }
        Self { activity, ..self }
    }

    /// Publishes that the connection waits for the rest of a request that has its response.
    pub(crate) fn waits_for_rest(&self) {
        self.activity.waits_for_rest();
    }

    /// Publishes that a request of HTTP/1 is handled: bytes behind it belong to the next one.
    pub(crate) fn set_handling(&self, handling: bool) {
        self.handling.store(handling, Ordering::Relaxed);
        if handling {
            self.activity.serves();
            self.requests_handled.fetch_add(1, Ordering::Relaxed);
        } else {
            self.handled.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the checks of requests: the client sends the bytes of a tunnel from now on.
    pub(crate) fn set_tunnel(&self) {
        self.is_tunnel.store(true, Ordering::Relaxed);
    }

    /// Returns true for HTTP/2, once it is detected.
    pub(crate) async fn begins_http_2(&mut self) -> io::Result<bool> {
        if self.transport.tls.is_none() {
            self.peek().await?;
        }
        Ok(self.is_http_2)
    }

    /// Returns true if the bytes that were read end within a head, which has its own timeout.
    pub(crate) fn is_within_head(&self) -> bool {
        self.requests.is_within_head()
    }

    /// Rejects bytes that are no head; the response leaves when the connection is shut down.
    pub(crate) fn reject_head(&mut self, rejection: Rejection) {
        self.rejection = Some(self.reject(rejection));
    }

    /// Reads until the bytes are the HTTP/2 preface or differ from it, if only by the first byte: a
    /// request of HTTP/1.0 may be shorter than the preface.
    async fn peek(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.has_peeked, true) {
            return Ok(());
        }
        let mut peeked = Vec::new();
        while peeked.len() < HTTP_2_PREFACE.len() && HTTP_2_PREFACE.starts_with(&peeked) {
            let read = poll_fn(|cx| {
                // On the stack: an idle connection holds no buffer.
                let mut buffer = [MaybeUninit::uninit(); PEEK_BYTES];
                let mut buffer = ReadBuf::uninit(&mut buffer);
                ready!(self.poll_read_head(cx, &mut buffer))?;
                peeked.extend_from_slice(buffer.filled());
                Poll::Ready(io::Result::Ok(buffer.filled().len()))
            });
            if read.await? == 0 {
                break;
            }
        }
        self.is_http_2 = peeked.starts_with(HTTP_2_PREFACE);
        if self.is_http_2 {
            self.activity.speaks_http_2();
        }
        self.peeked = peeked.into();
        Ok(())
    }

    fn poll_read_head(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.handled.swap(false, Ordering::Relaxed) {
            self.head = self.head.next(self.requests.is_within_head());
        }
        if self.head.is_too_large() {
            return self.give_up(Some(Rejection::RequestHeaderTooLarge));
        }
        let before = buffer.filled().len();
        if let Poll::Ready(read) = self.pipelined.poll_read(&mut self.transport, cx, buffer) {
            let received = buffer.filled().get(before..).unwrap_or_default();
            self.head.received(received);
            self.activity.received();
            return Poll::Ready(read);
        }
        if self.head.has_begun() {
            self.activity.waits_for_rest();
        } else {
            self.activity.waits_for_request();
        }
        let rejection = ready!(self.head.poll_overdue(cx));
        self.give_up(rejection)
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_http_2 && self.window_deadline.poll_overdue(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if take_from(&mut self.peeked, buffer) {
            return Poll::Ready(Ok(()));
        }
        if self.is_http_2 && !self.preface.is_empty() {
            return self.poll_read_preface(cx, buffer);
        }
        let handling = self.handling.load(Ordering::Relaxed);
        if !self.is_http_2 && !handling {
            return self.poll_read_head(cx, buffer);
        }
        if !self.is_http_2 && self.has_whole_request() {
            return self.pipelined.poll_left(&mut self.transport, cx);
        }
        let read = self.pipelined.poll_read(&mut self.transport, cx, buffer);
        if self.is_http_2 && read.is_pending() {
            self.activity.waits_for_request();
        }
        read
    }

    /// Limits the wait for the preface; Pingora closes a connection that begins in another way.
    fn poll_read_preface(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.poll_read_head(cx, buffer))?;
        let received = buffer.filled().get(before..).unwrap_or_default();
        let (begun, rest) = self
            .preface
            .split_at(received.len().min(self.preface.len()));
        if received.starts_with(begun) {
            self.preface = rest;
        } else {
            self.preface = &[];
            let client = client_ip(&self.transport);
            self.reject_unparsed
                .on_rejected(Rejection::RequestMalformed, client, false);
        }
        Poll::Ready(Ok(()))
    }

    /// Returns true once all of the present request was read: further bytes belong to the next one.
    fn has_whole_request(&self) -> bool {
        let handled = self.requests_handled.load(Ordering::Relaxed);
        !self.is_tunnel.load(Ordering::Relaxed) && self.requests.whole() >= handled
    }

    /// Returns the end of the stream, so that its reader closes the connection; over HTTP/1 our
    /// rejection is sent first.
    fn give_up(&mut self, rejection: Option<Rejection>) -> Poll<io::Result<()>> {
        if let Some(rejection) = rejection.filter(|_| self.rejection.is_none()) {
            if self.is_http_2 {
                let client = client_ip(&self.transport);
                self.reject_unparsed.on_rejected(rejection, client, false);
            } else {
                self.rejection = Some(self.reject(rejection));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn reject(&self, rejection: Rejection) -> Bytes {
        self.reject_unparsed
            .reject(rejection, client_ip(&self.transport))
    }

    fn report_bare_rejections(&mut self, written: &[u8]) {
        let Self {
            bare_rejections,
            reject_unparsed,
            transport,
            ..
        } = self;
        bare_rejections.scan(written, |rejection| {
            let has_response = rejection == BareRejection::Response;
            let client = client_ip(transport);
            reject_unparsed.on_rejected(Rejection::RequestMalformed, client, has_response);
        });
    }

    fn poll_send_rejection(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(response) = self
            .rejection
            .as_mut()
            .filter(|response| response.has_remaining())
        {
            let written = ready!(Pin::new(&mut self.transport.io).poll_write(cx, response))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            response.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send_rejection(cx))?;
        let written = Pin::new(&mut self.transport.io).poll_write(cx, data);
        self.window_deadline.written(written.is_pending());
        let written = ready!(written)?;
        if self.is_http_2 {
            self.report_bare_rejections(data.get(..written).unwrap_or_default());
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send_rejection(cx))?;
        let flushed = Pin::new(&mut self.transport.io).poll_flush(cx);
        self.window_deadline.written(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send_rejection(cx))?;
        Pin::new(&mut self.transport.io).poll_shutdown(cx)
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.poll_receive(cx, buffer))?;
        if !self.is_http_2 && !self.is_tunnel.load(Ordering::Relaxed) {
            let received = buffer.filled().get(before..).unwrap_or_default();
            // What is no request, its reader rejects.
            let _ = self.requests.follow(received);
        }
        Poll::Ready(Ok(()))
    }
}

#[async_trait]
impl Shutdown for ClientStream {
    async fn shutdown(&mut self) {
        let is_rejected = self.rejection.is_some();
        if is_rejected {
            let _ = tokio::time::timeout(LINGER, self.flush()).await;
        }
        self.transport.close().await;
        if is_rejected {
            // Until the client has closed its side too, or the timeout.
            let _ = tokio::time::timeout(LINGER, discard(&mut self.transport.io)).await;
        }
    }
}

/// Moves the bytes that fit; returns false if there are none.
fn take_from(kept: &mut Bytes, buffer: &mut ReadBuf<'_>) -> bool {
    if kept.is_empty() {
        return false;
    }
    let length = kept.len().min(buffer.remaining());
    buffer.put_slice(&kept.split_to(length));
    length > 0
}

pub(crate) fn client_ip(transport: &ClientTransport) -> Option<IpAddr> {
    peer_ip(transport.socket())
}

pub(crate) fn peer_ip(stream: &Stream) -> Option<IpAddr> {
    let digest = stream.get_socket_digest()?;
    digest.peer_addr()?.as_inet().map(SocketAddr::ip)
}

async fn discard(mut transport: impl AsyncRead + Unpin) {
    let mut sink = [0; 4096];
    while matches!(transport.read(&mut sink).await, Ok(1..)) {}
}

#[cfg(test)]
mod tests;
