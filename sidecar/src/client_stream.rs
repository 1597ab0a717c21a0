//! A client's connection, as Pingora sees it.
//!
//! Pingora refuses by itself what it cannot parse: without envelope, reason code, log line and
//! metric, and in its own name. Whatever it writes while no request is being handled is such a
//! refusal, and is replaced here by ours. A head that is too slow or too large is refused here
//! as well. HTTP/2, once it is recognised, passes as it is; Pingora's refusals are reported.

mod bare_refusals;
mod transport;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use contract::rejection::Rejection;
use pingora::protocols::{ALPN, Shutdown, Stream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use self::bare_refusals::{BareRefusal, BareRefusals};
use crate::request_head::ArrivingHead;

/// How Pingora's refusal begins.
const OWN_REFUSAL: &[u8] = b"HTTP/1.1 400 ";
/// How every HTTP/2 connection begins (RFC 9113 §3.4), and no HTTP/1.1 request.
const HTTP_2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Most heads of HTTP/1.1 fit, so that looking for the preface costs no system call.
const PEEK_BYTES: usize = 2048;
/// A client that is still sending reads our answer only when it is done; closing earlier would reset
/// the connection under it.
const LINGER: Duration = Duration::from_secs(2);

/// Says what is sent to a client whose request never became one, and takes note of it.
pub(crate) trait UnreadRequests: std::fmt::Debug + Send + Sync {
    /// The whole answer, head and body.
    fn refuse(&self, rejection: Rejection) -> Bytes;

    /// It has been answered already, in another way, or reset without an answer.
    fn was_refused(&self, rejection: Rejection, was_answered: bool);
}

/// Wraps the transport.
#[derive(Debug)]
pub(crate) struct ClientStream {
    transport: Stream,
    unread: Arc<dyn UnreadRequests>,
    /// On from the first filter of a request to its last.
    handling: AtomicBool,
    /// On when a request was handled since `head` was begun.
    handled: AtomicBool,
    head: ArrivingHead,
    /// What was read to recognise HTTP/2 and not handed on yet.
    peeked: Bytes,
    is_http_2: bool,
    bare_refusals: BareRefusals,
    /// What is left to send of our refusal; `None` as long as there was no need for it.
    refusal: Option<Bytes>,
}

impl ClientStream {
    /// `head_timeout` is how long the head of a request may take to arrive.
    pub(crate) fn new(
        transport: Stream,
        unread: Arc<dyn UnreadRequests>,
        head_timeout: Duration,
    ) -> Self {
        Self {
            is_http_2: transport.selected_alpn_proto() == Some(ALPN::H2),
            transport,
            unread,
            peeked: Bytes::new(),
            handling: AtomicBool::new(false),
            handled: AtomicBool::new(false),
            head: ArrivingHead::first(head_timeout),
            bare_refusals: BareRefusals::default(),
            refusal: None,
        }
    }

    /// Tells whose answers are written from now on: a request's, or Pingora's own. Nobody tells on HTTP/2.
    pub(crate) fn set_handling(&self, handling: bool) {
        self.handling.store(handling, Ordering::Relaxed);
        if !handling {
            self.handled.store(true, Ordering::Relaxed);
        }
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
        if let Poll::Ready(read) = Pin::new(&mut self.transport).poll_read(cx, buffer) {
            let received = buffer.filled().get(before..).unwrap_or_default();
            self.head.received(received);
            return Poll::Ready(read);
        }
        let rejection = ready!(self.head.poll_overdue(cx));
        self.give_up(rejection)
    }

    /// Pingora gets to see a client that has left, and closes the connection; on the way out our
    /// refusal is sent, if there is one.
    fn give_up(&mut self, rejection: Option<Rejection>) -> Poll<io::Result<()>> {
        if self.refusal.is_none() {
            self.refusal = rejection.map(|rejection| self.unread.refuse(rejection));
        }
        Poll::Ready(Ok(()))
    }

    fn report_refusals(&mut self, written: &[u8]) {
        let Self {
            bare_refusals,
            unread,
            ..
        } = self;
        bare_refusals.in_written(written, |refusal| {
            let was_answered = refusal == BareRefusal::Answer;
            unread.was_refused(Rejection::RequestMalformed, was_answered);
        });
    }

    fn poll_send_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(refusal) = self
            .refusal
            .as_mut()
            .filter(|refusal| refusal.has_remaining())
        {
            let written = ready!(Pin::new(&mut self.transport).poll_write(cx, refusal))?;
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
            self.refusal = Some(self.unread.refuse(self.head.why_refused()));
            return Poll::Ready(Ok(data.len()));
        }
        ready!(self.poll_send_refusal(cx))?;
        let written = ready!(Pin::new(&mut self.transport).poll_write(cx, data))?;
        if self.is_http_2 {
            self.report_refusals(data.get(..written).unwrap_or_default());
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send_refusal(cx))?;
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send_refusal(cx))?;
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.peeked.is_empty() {
            let length = self.peeked.len().min(buffer.remaining());
            buffer.put_slice(&self.peeked.split_to(length));
            return Poll::Ready(Ok(()));
        }
        if self.is_http_2 || self.handling.load(Ordering::Relaxed) {
            return Pin::new(&mut self.transport).poll_read(cx, buffer);
        }
        self.poll_read_head(cx, buffer)
    }
}

#[async_trait]
impl Shutdown for ClientStream {
    async fn shutdown(&mut self) {
        let refused = self.refusal.is_some();
        if refused {
            let _ = tokio::time::timeout(LINGER, self.flush()).await;
        }
        Shutdown::shutdown(self.transport.as_mut()).await;
        if refused {
            // Until the client has closed its side too, or the time is up.
            let _ = tokio::time::timeout(LINGER, discard(&mut self.transport)).await;
        }
    }
}

async fn discard(transport: &mut Stream) {
    let mut sink = [0; 4096];
    while matches!(transport.read(&mut sink).await, Ok(1..)) {}
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use pingora::protocols::Peek;
    use tokio::io::DuplexStream;

    use super::*;
    use crate::request_head::MAX_HEAD_BYTES;

    #[derive(Debug)]
    struct Ours;

    impl UnreadRequests for Ours {
        fn refuse(&self, rejection: Rejection) -> Bytes {
            format!("our refusal: {rejection}").into()
        }

        fn was_refused(&self, _: Rejection, _: bool) {}
    }

    fn connection(capacity: usize) -> (ClientStream, DuplexStream) {
        connection_with(capacity, Duration::from_secs(3600))
    }

    fn connection_with(capacity: usize, head_timeout: Duration) -> (ClientStream, DuplexStream) {
        let (transport, client) = tokio::io::duplex(capacity);
        let stream = ClientStream::new(Box::new(transport), Arc::new(Ours), head_timeout);
        (stream, client)
    }

    async fn received(mut client: DuplexStream) -> String {
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        text
    }

    const PINGORAS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nServer: Pingora\r\n\r\n";

    #[tokio::test]
    async fn a_refusal_outside_of_any_request_is_replaced() {
        // A transport that takes three bytes at a time must not lose the rest.
        let (mut stream, client) = connection(3);
        let reader = tokio::spawn(received(client));
        stream.write_all(PINGORAS).await.unwrap();
        stream.flush().await.unwrap();
        drop(stream);
        assert_eq!(reader.await.unwrap(), "our refusal: request_malformed");
    }

    #[tokio::test]
    async fn what_a_request_is_answered_passes_even_if_it_looks_the_same() {
        let (mut stream, client) = connection(1024);
        stream.set_handling(true);
        stream.write_all(PINGORAS).await.unwrap();
        drop(stream);
        assert_eq!(received(client).await.as_bytes(), PINGORAS);
    }

    #[tokio::test]
    async fn http_2_passes_whatever_a_write_begins_with() {
        let (mut stream, mut client) = connection(1024);
        client.write_all(HTTP_2_PREFACE).await.unwrap();
        assert!(stream.try_peek(&mut [0; 24]).await.unwrap());
        stream.write_all(PINGORAS).await.unwrap();
        stream.flush().await.unwrap();
        drop(stream);
        assert_eq!(received(client).await.as_bytes(), PINGORAS);
    }

    #[tokio::test]
    async fn the_connection_lingers_until_the_client_has_read_its_refusal() {
        let (mut stream, mut client) = connection(1024);
        stream.write_all(PINGORAS).await.unwrap();
        let closing = tokio::spawn(async move { Shutdown::shutdown(&mut stream).await });
        client.write_all(&[0; 100_000]).await.unwrap();
        assert!(!closing.is_finished());
        AsyncWriteExt::shutdown(&mut client).await.unwrap();
        assert_eq!(received(client).await, "our refusal: request_malformed");
        closing.await.unwrap();
    }

    #[tokio::test]
    async fn a_head_that_takes_too_long_looks_like_a_client_that_left_and_is_told_why() {
        let (mut stream, mut client) = connection_with(1024, Duration::from_millis(1));
        client.write_all(b"GET / HT").await.unwrap();
        let mut read = [0; 16];
        assert_eq!(stream.read(&mut read).await.unwrap(), 8);
        assert_eq!(stream.read(&mut read).await.unwrap(), 0);
        stream.flush().await.unwrap();
        drop(stream);
        assert_eq!(received(client).await, "our refusal: request_timeout");
    }

    #[tokio::test]
    async fn a_request_that_is_being_handled_may_take_its_time_and_so_may_the_next_one() {
        let (mut stream, mut client) = connection_with(1024, Duration::from_millis(1));
        let mut read = [0; 16];
        client.write_all(b"GET / HT").await.unwrap();
        assert_eq!(stream.read(&mut read).await.unwrap(), 8);
        for handling in [true, false] {
            stream.set_handling(handling);
            let patience = Duration::from_millis(50);
            let waiting = tokio::time::timeout(patience, stream.read(&mut read)).await;
            assert!(waiting.is_err(), "handling: {handling}");
        }
    }

    #[tokio::test]
    async fn a_connection_is_recognised_by_its_first_bytes_and_loses_none_of_them() {
        for (pieces, is_http_2) in [
            (&["GET / HTTP/1.0\r\n\r\n"][..], false),
            (&["P", "OST / HTTP/1.1\r\n"], false),
            (&["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], true),
            (&["PRI * HT", "TP/2.0\r\n\r\nSM\r\n\r\nmore"], true),
            (&["PRI * HTTP/2.0\r\n\r\nSM\r\n\r!"], false),
            (&["\r"], false),
            (&[], false),
        ] {
            let (mut stream, mut client) = connection(1024);
            let sent = pieces.concat();
            let sending = async move {
                for piece in pieces {
                    client.write_all(piece.as_bytes()).await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            let mut peeked = [0; 24];
            let (peek, ()) = tokio::join!(stream.try_peek(&mut peeked), sending);
            assert!(peek.unwrap());
            assert_eq!(peeked == HTTP_2_PREFACE, is_http_2, "{pieces:?}");
            let mut read = String::new();
            stream.read_to_string(&mut read).await.unwrap();
            assert_eq!(read, sent);
        }
    }

    #[tokio::test]
    async fn half_a_preface_is_a_head_that_takes_too_long() {
        let (mut stream, mut client) = connection_with(1024, Duration::from_millis(1));
        client.write_all(b"PRI * ").await.unwrap();
        assert!(stream.try_peek(&mut [0; 24]).await.unwrap());
        stream.flush().await.unwrap();
        drop(stream);
        assert_eq!(received(client).await, "our refusal: request_timeout");
    }

    #[tokio::test]
    async fn of_a_head_that_is_too_large_no_more_is_read() {
        let (mut stream, mut client) = connection(2 * MAX_HEAD_BYTES);
        client
            .write_all(&vec![b'a'; 2 * MAX_HEAD_BYTES])
            .await
            .unwrap();
        let mut read = vec![0; MAX_HEAD_BYTES + 1];
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(stream.read(&mut read).await.unwrap(), 0);
        // The client goes on writing while it is told.
        let answer = tokio::spawn(async move {
            stream.flush().await.unwrap();
            drop(stream);
        });
        assert_eq!(
            received(client).await,
            "our refusal: request_header_too_large"
        );
        answer.await.unwrap();
    }
}
