//! A client's connection below HTTP: its socket, with TLS or without. A client that takes nothing of
//! what is written loses it, whatever is being written: Pingora bounds the bodies of answers alone.

use std::sync::Arc;
use std::time::Duration;

use pingora::protocols::tls::SslDigest;
use pingora::protocols::{ALPN, Stream};
use runtime::write_deadline::WriteDeadline;
use tokio::io::AsyncWriteExt;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// `tcp_states.h` of Linux.
const TCP_ESTABLISHED: u8 = 1;

/// Below TLS, whose own bytes are to be taken as well.
pub(crate) type Socket = WriteDeadline<Stream>;

/// Limits how long a client may take nothing; for ever where there is no limit.
pub(crate) fn socket(stream: Stream, send_timeout: Option<Duration>) -> Socket {
    WriteDeadline::new(stream, send_timeout.unwrap_or(Duration::MAX))
}

/// The stream that HTTP is spoken over.
#[derive(Debug)]
pub(crate) struct ClientTransport {
    /// Boxed, or each plain connection would have room for TLS too.
    pub(crate) io: Either<Socket, Box<TlsStream<Socket>>>,
    /// Pingora does not look for the preface of HTTP/2 without TLS where there is one of these.
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

    /// The HTTP that was agreed on with TLS.
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

    /// The socket itself.
    pub(crate) fn socket(&self) -> &Stream {
        match &self.io {
            Either::Left(socket) => socket.get_ref(),
            Either::Right(stream) => stream.get_ref().0.get_ref(),
        }
    }

    /// Finds a client that has closed its side or broken off even where unread bytes precede that.
    pub(crate) fn has_left(&self) -> bool {
        let digest = self.socket().get_socket_digest();
        let info = digest.and_then(|digest| digest.tcp_info());
        info.is_some_and(|info| info.tcpi_state != TCP_ESTABLISHED)
    }

    /// Closes the connection, over TLS with a `close_notify`: nothing was cut off.
    pub(crate) async fn close(&mut self) {
        let _ = self.io.shutdown().await;
    }
}
