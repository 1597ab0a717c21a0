//! The beginning of a connection to a port with TLS: a handshake, or plain HTTP of a client that was given the wrong
//! scheme.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use postern_process::logs::once_a_minute::OnceAMinute;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tracing::info;

use super::ServerTls;
use crate::net::write_deadline::WriteDeadline;

/// A socket with a write timeout, below TLS, so that the timeout covers its records too.
pub type Socket = WriteDeadline<TcpStream>;

/// The errors of a client that has left, or never sent anything.
const LEFT: [ErrorKind; 3] = [
    ErrorKind::UnexpectedEof,
    ErrorKind::ConnectionReset,
    ErrorKind::TimedOut,
];

/// The beginning of a connection.
pub enum FirstBytes {
    /// A handshake that was completed.
    Tls(Box<TlsStream<Socket>>),
    /// Letters, as in a method of plain HTTP.
    Plain(Socket),
}

impl ServerTls {
    /// Completes the handshake within `limit`, unless plain HTTP comes.
    ///
    /// # Errors
    /// A failed handshake, which is logged, or the timeout.
    pub async fn begin(
        &self,
        socket: Socket,
        peer: IpAddr,
        limit: Duration,
    ) -> io::Result<FirstBytes> {
        let begun = match tokio::time::timeout(limit, self.read_first_bytes(socket)).await {
            Ok(begun) => begun,
            Err(_) => Err(ErrorKind::TimedOut.into()),
        };
        match &begun {
            Ok(FirstBytes::Tls(_)) => {}
            Ok(FirstBytes::Plain(_)) => {
                log_failure(peer, &"plain HTTP came, and this port has --tls-cert");
            }
            // Probes of load balancers connect, and leave or wait.
            Err(error) if LEFT.contains(&error.kind()) => {}
            Err(error) => log_failure(peer, error),
        }
        begun
    }

    async fn read_first_bytes(&self, socket: Socket) -> io::Result<FirstBytes> {
        let mut first = [0];
        socket.get_ref().peek(&mut first).await?;
        // A TLS handshake begins with the byte 22, which is no letter.
        if first.iter().all(u8::is_ascii_alphabetic) {
            return Ok(FirstBytes::Plain(socket));
        }
        Ok(FirstBytes::Tls(Box::new(self.accept(socket).await?)))
    }
}

/// Logs that a plain port got a TLS handshake, if these are the first bytes of a connection.
pub fn note_handshake(peer: IpAddr, received: &[u8]) {
    if let [22, 3, ..] = received {
        log_failure(
            peer,
            &"a TLS handshake came, and this port has no --tls-cert",
        );
    }
}

/// Logs a connection that does not come about, once a minute: any client can cause it.
fn log_failure(peer: IpAddr, cause: &dyn Display) {
    static LINE: Mutex<OnceAMinute> = Mutex::new(OnceAMinute::NEVER);
    if LINE.lock().is_due(Instant::now()) {
        info!(client = %peer, %cause, "no connection with TLS");
    }
}
