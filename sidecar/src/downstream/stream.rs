//! A client's connection, as Pingora sees it.
//!
//! Pingora refuses by itself what it cannot parse: without envelope, reason code, log line and
//! metric, and in its own name. Whatever it writes while no request is being handled is such a
//! refusal, and is replaced here by ours. A head that is too slow or too large is refused here
//! as well, and what Pingora would read more leniently than others is spoilt for it. HTTP/2, once it is
//! recognised, passes as it is; Pingora's refusals are reported.

mod connection_info;
mod ended_responses;
mod h2_error_sniffer;
mod pipelined;

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use contract::http::framing::requests::{Part, Refused, Requests};
use contract::rejection::Rejection;
use pingora::protocols::{ALPN, Shutdown};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use self::ended_responses::WindowDeadline;
pub(crate) use self::ended_responses::{EndedResponses, Generation};
use self::h2_error_sniffer::{BareRejection, BareRejections};
use self::pipelined::Early;
use crate::downstream::head_limits::HeadLimiter;
use crate::downstream::transport::ClientTransport;

/// How Pingora's refusal begins.
const OWN_REFUSAL: &[u8] = b"HTTP/1.1 400 ";
/// How every HTTP/2 connection begins (RFC 9113 §3.4), and no HTTP/1.1 request.
const HTTP_2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Most heads of HTTP/1.1 fit, so that looking for the preface costs no system call.
const PEEK_BYTES: usize = 2048;
/// Two of it are out of place wherever Pingora meets them outside of a body's data.
const POISON_BYTE: u8 = b'\r';
/// A client that is still sending reads our answer only when it is done; closing earlier would reset
/// the connection under it.
const LINGER: Duration = Duration::from_secs(2);

/// Says what is sent to a client whose request never became one, and takes note of it.
pub(crate) trait RejectUnparsed: std::fmt::Debug + Send + Sync {
    /// The whole answer, head and body.
    fn reject(&self, rejection: Rejection, client: Option<IpAddr>) -> Bytes;

    /// It has been answered already, in another way, or reset without an answer.
    fn on_rejected(&self, rejection: Rejection, client: Option<IpAddr>, was_answered: bool);
}

/// Wraps the transport.
#[derive(Debug)]
pub(crate) struct ClientStream {
    transport: ClientTransport,
    unread: Arc<dyn RejectUnparsed>,
    /// On from the first filter of a request to its last.
    handling: AtomicBool,
    /// On when a request was handled since `head` was begun.
    handled: AtomicBool,
    /// So many requests were handled, the one at hand included.
    requests_handled: AtomicU64,
    head: HeadLimiter,
    /// What was read to recognise HTTP/2 and not handed on yet.
    peeked: Bytes,
    /// Bytes that came while a whole request was being handled.
    early: Early,
    is_http_2: bool,
    /// How much of the preface is still to come where TLS has agreed on HTTP/2.
    preface: &'static [u8],
    /// On once a tunnel is open.
    is_tunnel: AtomicBool,
    requests: Requests,
    /// Pingora is not to read on.
    is_poisoned: bool,
    bare_refusals: BareRejections,
    window_deadline: WindowDeadline,
    /// What is left to send of our refusal; `None` as long as there was no need for it.
    refusal: Option<Bytes>,
}

impl ClientStream {
    /// `head_timeout` is how long the head of a request may take to arrive, `send_timeout` how long
    /// an HTTP/2 client may hold back responses by its windows.
    pub(crate) fn new(
        transport: ClientTransport,
        unread: Arc<dyn RejectUnparsed>,
        head_timeout: Duration,
        send_timeout: Option<Duration>,
    ) -> Self {
        let is_http_2 = transport.alpn() == Some(ALPN::H2);
        Self {
            is_http_2,
            preface: if is_http_2 { HTTP_2_PREFACE } else { &[] },
            transport,
            unread,
            peeked: Bytes::new(),
            early: Early::default(),
            handling: AtomicBool::new(false),
            handled: AtomicBool::new(false),
            requests_handled: AtomicU64::new(0),
            head: HeadLimiter::first(head_timeout),
            is_tunnel: AtomicBool::new(false),
            requests: Requests::default(),
            is_poisoned: false,
            bare_refusals: BareRejections::default(),
            window_deadline: WindowDeadline::new(send_timeout),
            refusal: None,
        }
    }

    /// Tells whose answers are written from now on: a request's, or Pingora's own. Nobody tells on HTTP/2.
    pub(crate) fn set_handling(&self, handling: bool) {
        self.handling.store(handling, Ordering::Relaxed);
        if handling {
            self.requests_handled.fetch_add(1, Ordering::Relaxed);
        } else {
            self.handled.store(true, Ordering::Relaxed);
        }
    }

    /// Says that what the client sends from now on are no requests.
    pub(crate) fn set_tunnel(&self) {
        self.is_tunnel.store(true, Ordering::Relaxed);
    }

    /// Never on HTTP/2: there a write may begin anywhere within the body of an answer.
    fn is_own_refusal(&self, written: &[u8]) -> bool {
        !self.is_http_2
            && !self.handling.load(Ordering::Relaxed)
            && written.starts_with(OWN_REFUSAL)
    }

    /// Reads until it is clear whether the connection begins as one of HTTP/2. A single byte that does
    /// not fit is enough: HTTP/1.0 has requests that are shorter than the preface.
    async fn peek(&mut self) -> io::Result<()> {
        let mut peeked = Vec::new();
        while peeked.len() < HTTP_2_PREFACE.len() && HTTP_2_PREFACE.starts_with(&peeked) {
            let mut buffer = [0; PEEK_BYTES];
            let mut buffer = ReadBuf::new(&mut buffer);
            poll_fn(|cx| self.poll_read_head(cx, &mut buffer)).await?;
            if buffer.filled().is_empty() {
                break;
            }
            peeked.extend_from_slice(buffer.filled());
        }
        self.is_http_2 = peeked.starts_with(HTTP_2_PREFACE);
        self.peeked = peeked.into();
        Ok(())
    }

    fn poll_read_head(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.handled.swap(false, Ordering::Relaxed) {
            self.head = self.head.next();
        }
        if self.head.is_too_large() {
            return self.give_up(Some(Rejection::RequestHeaderTooLarge));
        }
        let before = buffer.filled().len();
        if let Poll::Ready(read) = self.early.poll_read(&mut self.transport, cx, buffer) {
            let received = buffer.filled().get(before..).unwrap_or_default();
            self.head.received(received);
            return Poll::Ready(read);
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
        if give_out(&mut self.peeked, buffer) {
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
            return self.early.poll_left(&mut self.transport, cx);
        }
        self.early.poll_read(&mut self.transport, cx, buffer)
    }

    /// Bounds the wait for the preface; Pingora closes a connection that begins in another way.
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
            let client = client_of(&self.transport);
            self.unread
                .on_rejected(Rejection::RequestMalformed, client, false);
        }
        Poll::Ready(Ok(()))
    }

    /// Returns true once all of the request at hand was read: what follows belongs to the next one.
    fn has_whole_request(&self) -> bool {
        let handled = self.requests_handled.load(Ordering::Relaxed);
        !self.is_tunnel.load(Ordering::Relaxed) && self.requests.whole() >= handled
    }

    /// Spoils what Pingora must not take for a request, where it stands: it may still be busy with what came
    /// before.
    fn follow(&mut self, received: &mut [u8]) {
        let well_formed_prefix = if self.is_poisoned {
            0
        } else {
            self.well_formed_prefix(received)
        };
        self.is_poisoned |= well_formed_prefix < received.len();
        let spoilt = received.get_mut(well_formed_prefix..).unwrap_or_default();
        spoilt.fill(POISON_BYTE);
    }

    /// How many of the bytes Pingora may read as they are.
    fn well_formed_prefix(&mut self, received: &[u8]) -> usize {
        match self.requests.follow(received) {
            // A filter will refuse it, and can say more about it.
            Err(Refused {
                part: Part::Head,
                rejection: Rejection::RequestFraming,
                ..
            }) => received.len(),
            Err(Refused { passed, .. }) => passed,
            Ok(()) => received.len(),
        }
    }

    /// Pingora gets to see a client that has left, and closes the connection; on the way out our
    /// refusal is sent, if there is one. HTTP/2 is closed without.
    fn give_up(&mut self, rejection: Option<Rejection>) -> Poll<io::Result<()>> {
        if let Some(rejection) = rejection.filter(|_| self.refusal.is_none()) {
            if self.is_http_2 {
                let client = client_of(&self.transport);
                self.unread.on_rejected(rejection, client, false);
            } else {
                self.refusal = Some(self.reject(rejection));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn reject(&self, rejection: Rejection) -> Bytes {
        self.unread.reject(rejection, client_of(&self.transport))
    }

    fn report_refusals(&mut self, written: &[u8]) {
        let Self {
            bare_refusals,
            unread,
            transport,
            ..
        } = self;
        bare_refusals.in_written(written, |refusal| {
            let was_answered = refusal == BareRejection::Answer;
            let client = client_of(transport);
            unread.on_rejected(Rejection::RequestMalformed, client, was_answered);
        });
    }

    fn poll_send_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(refusal) = self
            .refusal
            .as_mut()
            .filter(|refusal| refusal.has_remaining())
        {
            let written = ready!(Pin::new(&mut self.transport.io).poll_write(cx, refusal))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            refusal.advance(written);
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
        if self.is_own_refusal(data) {
            self.refusal = Some(self.reject(self.head.rejection()));
            return Poll::Ready(Ok(data.len()));
        }
        ready!(self.poll_send_refusal(cx))?;
        let written = Pin::new(&mut self.transport.io).poll_write(cx, data);
        self.window_deadline.written(written.is_pending());
        let written = ready!(written)?;
        if self.is_http_2 {
            self.report_refusals(data.get(..written).unwrap_or_default());
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send_refusal(cx))?;
        let flushed = Pin::new(&mut self.transport.io).poll_flush(cx);
        self.window_deadline.written(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send_refusal(cx))?;
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
            self.follow(buffer.filled_mut().get_mut(before..).unwrap_or_default());
        }
        Poll::Ready(Ok(()))
    }
}

#[async_trait]
impl Shutdown for ClientStream {
    async fn shutdown(&mut self) {
        let refused = self.refusal.is_some();
        if refused {
            let _ = tokio::time::timeout(LINGER, self.flush()).await;
        }
        self.transport.close().await;
        if refused {
            // Until the client has closed its side too, or the time is up.
            let _ = tokio::time::timeout(LINGER, discard(&mut self.transport.io)).await;
        }
    }
}

/// Moves what fits; false where there is nothing.
fn give_out(kept: &mut Bytes, buffer: &mut ReadBuf<'_>) -> bool {
    let length = kept.len().min(buffer.remaining());
    buffer.put_slice(&kept.split_to(length));
    length > 0
}

fn client_of(transport: &ClientTransport) -> Option<IpAddr> {
    let digest = transport.socket().get_socket_digest()?;
    digest.peer_addr()?.as_inet().map(SocketAddr::ip)
}

async fn discard(mut transport: impl AsyncRead + Unpin) {
    let mut sink = [0; 4096];
    while matches!(transport.read(&mut sink).await, Ok(1..)) {}
}

#[cfg(test)]
mod tests;
