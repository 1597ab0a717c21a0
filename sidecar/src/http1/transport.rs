//! A client's connection below HTTP: its socket, with TLS or without. Every write has a timeout.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use pingora::protocols::l4::stream::Stream as SocketStream;
use pingora::protocols::{GetSocketDigest, SocketDigest, Stream};
use runtime::net::write_deadline::WriteDeadline;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// `tcp_states.h` of Linux.
const TCP_ESTABLISHED: u8 = 1;

/// Socket with a write timeout, below TLS, so that the timeout covers its records too.
pub(crate) type Socket = WriteDeadline<Stream>;

/// Byte stream below HTTP. Boxed, so that a plain connection does not take the memory of TLS.
pub(crate) type ClientTransport = Either<Socket, Box<TlsStream<Socket>>>;

/// Returns true if TLS negotiated HTTP/2; `None` without TLS.
pub(crate) fn chose_http_2(transport: &ClientTransport) -> Option<bool> {
    match transport {
        Either::Left(_) => None,
        Either::Right(stream) => Some(stream.get_ref().1.alpn_protocol() == Some(b"h2")),
    }
}

/// Wraps the socket of a `peer`. Every reader and writer has a buffer of its own, the stream has none.
pub(crate) fn stream(socket: TcpStream, peer: SocketAddr) -> Stream {
    // A response may be two writes; the second must not wait for the acknowledgement of the first.
    let _ = socket.set_nodelay(true);
    let digest = SocketDigest::from_raw_fd(socket.as_raw_fd());
    let _ = digest.peer_addr.set(Some(peer.into()));
    let mut stream = SocketStream::from(socket);
    stream.set_socket_digest(digest);
    Box::new(stream)
}

/// Returns the address of the peer of a socket.
pub(crate) fn peer_ip(stream: &Stream) -> Option<IpAddr> {
    let digest = stream.get_socket_digest()?;
    digest.peer_addr()?.as_inet().map(SocketAddr::ip)
}

/// Returns true once the client has closed or reset its side, even behind unread bytes.
pub(crate) fn has_left(transport: &ClientTransport) -> bool {
    let socket = match transport {
        Either::Left(socket) => socket.get_ref(),
        Either::Right(stream) => stream.get_ref().0.get_ref(),
    };
    let info = socket
        .get_socket_digest()
        .and_then(|digest| digest.tcp_info());
    info.is_some_and(|info| info.tcpi_state != TCP_ESTABLISHED)
}
