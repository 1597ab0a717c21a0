//! A client's connection below HTTP: its socket, with TLS or without. Every write has a timeout.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pingora::protocols::Stream;
use runtime::net::write_deadline::WriteDeadline;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// `tcp_states.h` of Linux.
const TCP_ESTABLISHED: u8 = 1;

/// Socket with a write timeout, below TLS, so that the timeout covers its records too.
pub(crate) type Socket = WriteDeadline<Stream>;

/// Wraps `stream` with the write timeout; without one a write may wait forever.
pub(crate) fn socket(stream: Stream, write_timeout: Option<Duration>) -> Socket {
    WriteDeadline::new(stream, write_timeout.unwrap_or(Duration::MAX))
}

/// Byte stream below HTTP. Boxed, so that a plain connection does not take the memory of TLS.
#[derive(Debug)]
pub(crate) struct ClientTransport(Either<Socket, Box<TlsStream<Socket>>>);

impl ClientTransport {
    pub(crate) const fn plain(socket: Socket) -> Self {
        Self(Either::Left(socket))
    }

    pub(crate) fn encrypted(stream: TlsStream<Socket>) -> Self {
        Self(Either::Right(Box::new(stream)))
    }

    pub(crate) const fn has_tls(&self) -> bool {
        matches!(self.0, Either::Right(_))
    }

    /// Returns true if TLS negotiated HTTP/2.
    pub(crate) fn chose_http_2(&self) -> bool {
        match &self.0 {
            Either::Left(_) => false,
            Either::Right(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }

    fn socket(&self) -> &Stream {
        match &self.0 {
            Either::Left(socket) => socket.get_ref(),
            Either::Right(stream) => stream.get_ref().0.get_ref(),
        }
    }

    /// Returns the address of the peer.
    pub(crate) fn peer_ip(&self) -> Option<IpAddr> {
        peer_ip(self.socket())
    }

    /// Returns true once the client has closed or reset its side, even behind unread bytes.
    pub(crate) fn has_left(&self) -> bool {
        let digest = self.socket().get_socket_digest();
        let info = digest.and_then(|digest| digest.tcp_info());
        info.is_some_and(|info| info.tcpi_state != TCP_ESTABLISHED)
    }

    /// Closes the connection, over TLS with a `close_notify`, which proves that nothing was cut
    /// off.
    pub(crate) async fn close(&mut self) {
        let _ = self.0.shutdown().await;
    }
}

/// Returns the address of the peer of a socket.
pub(crate) fn peer_ip(stream: &Stream) -> Option<IpAddr> {
    let digest = stream.get_socket_digest()?;
    digest.peer_addr()?.as_inet().map(SocketAddr::ip)
}

impl AsyncRead for ClientTransport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ClientTransport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
