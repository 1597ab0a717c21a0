//! A client's connection below HTTP: its socket, with TLS or without. Every write has a timeout.

use std::os::fd::AsRawFd;
use std::time::Duration;

use pingora::protocols::l4::ext::get_tcp_info;
use postern_token::digest::{Digest, sha256};
use postern_transport::tls::first_bytes::Socket;
use rustix::net::sockopt::set_socket_linger;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// States of connections in `tcp_states.h` of Linux: open, and closed by both sides or with a reset.
const TCP_ESTABLISHED: u8 = 1;
const TCP_CLOSE: u8 = 7;

/// Byte stream below HTTP. Boxed, so that a plain connection does not take the memory of TLS.
pub(crate) type ClientTransport = Either<Socket, Box<TlsStream<Socket>>>;

/// Returns true if TLS negotiated HTTP/2; `None` without TLS.
pub(crate) fn chose_http_2(transport: &ClientTransport) -> Option<bool> {
    match transport {
        Either::Left(_) => None,
        Either::Right(stream) => Some(stream.get_ref().1.alpn_protocol() == Some(b"h2")),
    }
}

/// Returns the SHA-256 of the certificate that the client presented in the handshake, if any.
pub(crate) fn client_certificate(transport: &ClientTransport) -> Option<Digest> {
    let Either::Right(stream) = transport else {
        return None;
    };
    stream.get_ref().1.peer_certificates()?.first().map(sha256)
}

/// The part of a connection that its client has closed, even after unread bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// Its own side, at least: it may still read.
    OwnSide,
    /// All of it, by a reset or a failure.
    Whole,
}

/// Returns what the client has closed; `None` while it is there.
pub(super) fn closed_by_client(transport: &ClientTransport) -> Option<Closed> {
    let info = get_tcp_info(socket_of(transport).as_raw_fd());
    // An unreadable state does not prove that the client has left.
    match info.ok()?.tcpi_state {
        TCP_ESTABLISHED => None,
        TCP_CLOSE => Some(Closed::Whole),
        _ => Some(Closed::OwnSide),
    }
}

/// Lets the connection end with a reset, even if it ends with the process, or in order again.
pub(super) fn end_with_reset(transport: &ClientTransport, resets: bool) {
    // The call fails only for a connection that has ended.
    let _ = set_socket_linger(socket_of(transport), resets.then_some(Duration::ZERO));
}

fn socket_of(transport: &ClientTransport) -> &TcpStream {
    match transport {
        Either::Left(socket) => socket.get_ref(),
        Either::Right(stream) => stream.get_ref().0.get_ref(),
    }
}
