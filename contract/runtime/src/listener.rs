//! Binding a port, saying which one it became, and taking what comes in.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

use crate::exit::Failure;
use crate::telemetry::LogFormat;

/// Connections that wait to be accepted; the system may allow fewer. The standard library asks for 128: of a
/// fleet that connects in the same moment, whom the queue has no place for tries again a second later.
const BACKLOG: i32 = 16_384;
/// Accepting fails for want of file descriptors; trying again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Silence after which a vanished peer is looked for; it is given up a minute later. Without that,
/// a WebSocket or an event stream would keep its place until its token ends. It does not look while something is
/// unacknowledged: `TCP_USER_TIMEOUT` would, but ends the connection of a client that only pauses, too.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;
/// How long a client's connection may be silent between two requests. Longer than the idle time of the usual load
/// balancers (60 s), so that they close first and never send into a connection that is just being closed.
pub const CLIENT_IDLE: Duration = Duration::from_secs(75);

/// One of the two ports of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Where requests are served.
    Public,
    /// Probes and metrics.
    Admin,
}

impl Port {
    const fn flag(self) -> &'static str {
        match self {
            Self::Public => "--listen",
            Self::Admin => "--admin-listen",
        }
    }

    const fn announcement(self) -> &'static str {
        match self {
            Self::Public => "listening",
            Self::Admin => "admin listening",
        }
    }
}

/// The value of a flag that says where to listen. Not a name: which address of several would it be?
///
/// # Errors
/// What is expected, in the place of what the parser missed.
pub fn ip_address_and_port(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse()
        .map_err(|_| "expected an IP address and a port, as in 127.0.0.1:8080")
}

/// A listening socket, already non-blocking as both tokio and Pingora want it.
///
/// # Errors
/// [`Failure::Unavailable`] naming flag and address when the operating system refuses it.
pub fn bind(port: Port, address: SocketAddr) -> Result<TcpListener, Failure> {
    let refused = |error: std::io::Error| {
        let flag = port.flag();
        Failure::Unavailable(format!("{flag}: cannot listen on {address}: {error}"))
    };
    let listener = TcpListener::bind(address).map_err(refused)?;
    rustix::net::listen(&listener, BACKLOG).map_err(|error| refused(error.into()))?;
    keep_alive(&listener).map_err(|error| refused(error.into()))?;
    listener.set_nonblocking(true).map_err(refused)?;
    Ok(listener)
}

/// Sets what every accepted connection inherits, so that none needs a call of its own.
fn keep_alive(listener: &TcpListener) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(listener, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(listener, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(listener, KEEPALIVE_PROBES)?;
    sockopt::set_socket_keepalive(listener, true)
}

/// Announces the address that the listener got: port 0 picks a free one. Text is a line on standard output,
/// JSON a log line, because collectors merge both streams and expect JSON from the first byte.
///
/// # Errors
/// [`Failure::Software`] when the socket has no address. A closed standard output is no reason
/// not to serve.
pub fn announce(
    port: Port,
    listener: &TcpListener,
    format: LogFormat,
) -> Result<SocketAddr, Failure> {
    let address = listener
        .local_addr()
        .map_err(|error| Failure::Software(format!("the listener has no address: {error}")))?;
    let announcement = port.announcement();
    match format {
        LogFormat::Json => tracing::info!(%address, "{announcement}"),
        LogFormat::Text => {
            let mut stdout = std::io::stdout().lock();
            let _ = writeln!(stdout, "{announcement} on {address}").and_then(|()| stdout.flush());
        }
    }
    Ok(address)
}

/// The next connection on `port`, as the log calls it. A failure is logged, and tried again after a pause.
pub async fn accept(listener: &tokio::net::TcpListener, port: &str) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => tracing::warn!(%error, "{port}: accept failed"),
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn port_zero_becomes_a_real_port() {
        let listener = bind(Port::Public, "127.0.0.1:0".parse().unwrap()).unwrap();
        let announced = announce(Port::Public, &listener, LogFormat::Text);
        assert_ne!(announced.unwrap().port(), 0);
    }

    #[test]
    fn a_peer_that_vanishes_is_looked_for() {
        let listener = bind(Port::Public, "127.0.0.1:0".parse().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), KEEPALIVE_IDLE);
    }

    /// Linux forgets the first packet of whom the queue has no place for.
    #[cfg(target_os = "linux")]
    #[test]
    fn more_may_connect_at_once_than_are_accepted_at_once() {
        use std::net::TcpStream;
        use std::time::Duration;

        let listener = bind(Port::Public, "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(30)).unwrap();
        let waiting: Vec<_> = (0..500).map(connect).collect();
        assert_eq!(waiting.len(), 500);
    }

    #[test]
    fn a_taken_port_is_a_failure_that_names_flag_and_address() {
        let taken = bind(Port::Public, "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = taken.local_addr().unwrap();
        for (port, flag) in [(Port::Public, "--listen"), (Port::Admin, "--admin-listen")] {
            let failure = bind(port, address).unwrap_err();
            assert_eq!(failure.code(), 69);
            let start = format!("{flag}: cannot listen on {address}: ");
            assert!(failure.to_string().starts_with(&start), "{failure}");
        }
    }
}
