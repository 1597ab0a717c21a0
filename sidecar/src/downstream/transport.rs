//! A client's connection below HTTP: its socket, with TLS or without. Every write has a timeout:
//! Pingora limits the bodies of responses alone.

use std::sync::Arc;
use std::time::Duration;

use pingora::protocols::tls::SslDigest;
use pingora::protocols::{ALPN, Stream};
use runtime::net::write_deadline::WriteDeadline;
use tokio::io::AsyncWriteExt;
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

/// Byte stream below HTTP.
#[derive(Debug)]
pub(crate) struct ClientTransport {
    /// Boxed, so that a plain connection does not take the memory of TLS.
    pub(crate) io: Either<Socket, Box<TlsStream<Socket>>>,
    /// Set, it keeps Pingora from detecting HTTP/2 by its preface.
    pub(crate) tls: Option<Arc<SslDigest>>,
}

impl ClientTransport {
    pub(crate) const fn plain(socket: Socket) -> Self {
        Self {
            io: Either::Left(socket),
            tls: None,
        }
    }

    pub(crate) fn encrypted(stream: TlsStream<Socket>) -> Self {
        let version = match stream.get_ref().1.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        };
        let digest = SslDigest::new("", version, None, None, Vec::new());
        Self {
            io: Either::Right(Box::new(stream)),
            tls: Some(Arc::new(digest)),
        }
    }

    /// Returns the HTTP version that TLS negotiated.
    pub(crate) fn alpn(&self) -> Option<ALPN> {
        let Either::Right(stream) = &self.io else {
            return None;
        };
        match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Some(ALPN::H2),
            Some(_) => Some(ALPN::H1),
            None => None,
        }
    }

    /// Returns the socket.
    pub(crate) fn socket(&self) -> &Stream {
        match &self.io {
            Either::Left(socket) => socket.get_ref(),
            Either::Right(stream) => stream.get_ref().0.get_ref(),
        }
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
        let _ = self.io.shutdown().await;
    }
}
