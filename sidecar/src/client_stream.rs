//! A client's connection, as Pingora sees it.
//!
//! Pingora refuses by itself what it cannot parse: without envelope, reason code, log line and
//! metric, and in its own name. Whatever it writes while no request is being handled is such a
//! refusal, and is replaced here by ours.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// How Pingora's refusal begins.
const OWN_REFUSAL: &[u8] = b"HTTP/1.1 400 ";
/// A client that is still sending reads our answer only when it is done; closing earlier would reset
/// the connection under it.
const LINGER: Duration = Duration::from_secs(2);

/// Says what is sent instead of Pingora's refusal, and takes note of it.
pub(crate) trait MalformedRequests: std::fmt::Debug + Send + Sync {
    /// The whole answer, head and body.
    fn refuse(&self) -> Bytes;
}

/// Wraps the transport.
#[derive(Debug)]
pub(crate) struct ClientStream {
    transport: Stream,
    malformed: Arc<dyn MalformedRequests>,
    /// On from the first filter of a request to its last.
    handling: AtomicBool,
    /// What is left to send of our refusal; `None` as long as there was no need for it.
    refusal: Option<Bytes>,
}

impl ClientStream {
    pub(crate) fn new(transport: Stream, malformed: Arc<dyn MalformedRequests>) -> Self {
        Self {
            transport,
            malformed,
            handling: AtomicBool::new(false),
            refusal: None,
        }
    }

    /// Tells whose answers are written from now on: a request's, or Pingora's own.
    pub(crate) fn set_handling(&self, handling: bool) {
        self.handling.store(handling, Ordering::Relaxed);
    }

    fn is_own_refusal(&self, written: &[u8]) -> bool {
        !self.handling.load(Ordering::Relaxed) && written.starts_with(OWN_REFUSAL)
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
            self.refusal = Some(self.malformed.refuse());
            return Poll::Ready(Ok(data.len()));
        }
        ready!(self.poll_send_refusal(cx))?;
        Pin::new(&mut self.transport).poll_write(cx, data)
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
        Pin::new(&mut self.transport).poll_read(cx, buffer)
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

// The rest is the transport's business.

impl UniqueID for ClientStream {
    fn id(&self) -> UniqueIDType {
        self.transport.id()
    }
}

impl Ssl for ClientStream {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.transport.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.transport.selected_alpn_proto()
    }
}

#[async_trait]
impl Peek for ClientStream {
    async fn try_peek(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        self.transport.try_peek(buffer).await
    }
}

impl GetTimingDigest for ClientStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.transport.get_timing_digest()
    }

    fn get_read_pending_time(&self) -> Duration {
        self.transport.get_read_pending_time()
    }

    fn get_write_pending_time(&self) -> Duration {
        self.transport.get_write_pending_time()
    }
}

impl GetProxyDigest for ClientStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.transport.get_proxy_digest()
    }
}

impl GetSocketDigest for ClientStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.transport.get_socket_digest()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use tokio::io::DuplexStream;

    use super::*;

    #[derive(Debug)]
    struct Ours;

    impl MalformedRequests for Ours {
        fn refuse(&self) -> Bytes {
            Bytes::from_static(b"our refusal")
        }
    }

    fn connection(capacity: usize) -> (ClientStream, DuplexStream) {
        let (transport, client) = tokio::io::duplex(capacity);
        (
            ClientStream::new(Box::new(transport), Arc::new(Ours)),
            client,
        )
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
        assert_eq!(reader.await.unwrap(), "our refusal");
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
    async fn the_connection_lingers_until_the_client_has_read_its_refusal() {
        let (mut stream, mut client) = connection(1024);
        stream.write_all(PINGORAS).await.unwrap();
        let closing = tokio::spawn(async move { Shutdown::shutdown(&mut stream).await });
        client.write_all(&[0; 100_000]).await.unwrap();
        assert!(!closing.is_finished());
        AsyncWriteExt::shutdown(&mut client).await.unwrap();
        assert_eq!(received(client).await, "our refusal");
        closing.await.unwrap();
    }
}
