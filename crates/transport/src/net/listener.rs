//! Listening ports: binding, announcing the address, accepting.

use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::net::TcpStream;

use super::connection_slots::{Slot, make_room};
use postern_process::exit::ExitError;
use postern_process::logs::once_a_minute::OnceAMinute;
use postern_process::logs::subscriber::LogFormat;

/// Max number of connections that wait to be accepted; the system may allow fewer. With the standard
/// library's 128, most of a fleet that connects at once would retry a second later.
const BACKLOG: i32 = 16_384;
/// Accepting fails without free file descriptors; trying again at once would spin. Connections that
/// make room are closed by then.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);
/// Time of the last line: the pause is short, and descriptors may be missing for long.
static FAILURE_LOGGED: LazyLock<Mutex<OnceAMinute>> = LazyLock::new(Mutex::default);
/// Silence before the first keepalive probe; a vanished peer is dropped a minute later. The kernel sends no
/// probe while data is unacknowledged; `TCP_USER_TIMEOUT` would also end paused clients.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;
/// Longest silence of a client between two requests. Longer than the idle time of the usual load
/// balancers (60 s), so that they close first and never send into a closing connection.
pub const CLIENT_IDLE: Duration = Duration::from_secs(75);

/// One of the two ports of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// The port at which requests are served.
    Public,
    /// The port of probes and metrics.
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

/// Parses the address of a listener. A name is an error, because it may have several addresses.
///
/// # Errors
/// The expected form.
pub fn ip_address_and_port(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse()
        .map_err(|_| "expected an IP address and a port, as in 127.0.0.1:8080")
}

/// Rejects one address for both ports; port 0 picks a new port each time.
///
/// # Errors
/// [`ExitError::Config`] with the address.
pub fn require_two(public: SocketAddr, admin: SocketAddr) -> Result<(), ExitError> {
    if public != admin || public.port() == 0 {
        return Ok(());
    }
    Err(ExitError::Config(format!(
        "--admin-listen {admin}: is the address of --listen too"
    )))
}

/// Binds a listening socket, non-blocking as tokio and Pingora need it.
///
/// # Errors
/// [`ExitError::Unavailable`] with flag and address if the operating system rejects it.
pub fn bind(port: Port, address: SocketAddr) -> Result<TcpListener, ExitError> {
    let unavailable = |error: io::Error| {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => {
                "; `ss -ltnp` names the program that listens there, and another port is as good"
            }
            ErrorKind::AddrNotAvailable => "; no interface of this machine has the address",
            ErrorKind::PermissionDenied if address.port() < 1024 => {
                "; ports below 1024 need CAP_NET_BIND_SERVICE"
            }
            _ => "",
        };
        ExitError::Unavailable(format!(
            "{}: cannot listen on {address}: {error}{remedy}",
            port.flag()
        ))
    };
    let listener = TcpListener::bind(address)
        .or_else(|error| without_ipv6(address, error))
        .map_err(unavailable)?;
    // `listen` is called again for the backlog: the standard library has called it with its own.
    rustix::net::listen(&listener, BACKLOG).map_err(|error| unavailable(error.into()))?;
    keep_alive(&listener).map_err(|error| unavailable(error.into()))?;
    listener.set_nonblocking(true).map_err(unavailable)?;
    Ok(listener)
}

/// Binds every address of a system without IPv6, where `[::]` would be every address too.
fn without_ipv6(address: SocketAddr, error: io::Error) -> io::Result<TcpListener> {
    let missing = Errno::AFNOSUPPORT.raw_os_error();
    if address.ip() != Ipv6Addr::UNSPECIFIED || error.raw_os_error() != Some(missing) {
        return Err(error);
    }
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port()))
}

/// Sets keepalive. The connections that a listener accepts inherit it without a call of their own.
///
/// # Errors
/// The error of the system.
pub fn keep_alive(socket: impl AsFd) -> rustix::io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    sockopt::set_socket_keepalive(socket, true)
}

/// Returns the address of a listener, with the port that was picked.
///
/// # Errors
/// [`ExitError::Software`] if the socket has no address.
pub fn address(listener: &TcpListener) -> Result<SocketAddr, ExitError> {
    listener
        .local_addr()
        .map_err(|error| ExitError::Software(format!("the listener has no address: {error}")))
}

/// Announces the address of a listener, because port 0 picks a free port. Text is a line on standard output,
/// which may be closed; JSON is a log line, because collectors merge both streams and expect JSON from the
/// first byte.
pub fn announce(port: Port, address: SocketAddr, format: LogFormat) {
    let announcement = port.announcement();
    match format {
        LogFormat::Json => tracing::info!(%address, "{announcement}"),
        LogFormat::Text => {
            let mut stdout = io::stdout().lock();
            let _ = writeln!(stdout, "{announcement} on {address}").and_then(|()| stdout.flush());
        }
    }
}

/// Accepts the next connection that gets a slot; a connection without a slot is closed. `port` is the name of
/// the port in the log. One connection at a time waits for its slot: the others wait in the system's queue,
/// without a descriptor.
pub async fn accept<F: Future<Output = Option<Slot>>>(
    listener: &tokio::net::TcpListener,
    port: &str,
    slot: impl Fn(IpAddr) -> F,
) -> (Slot, TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // `to_canonical`: an IPv4 client of an IPv6 socket has one address, and one share.
                if let Some(slot) = slot(peer.ip().to_canonical()).await {
                    return (slot, stream, peer);
                }
            }
            Err(error) => recover(&error, port).await,
        }
    }
}

/// Waits a moment after a failure, in which idle connections make room if too many are open.
async fn recover(error: &io::Error, port: &str) {
    let errno = Errno::from_io_error(error);
    // The client has left before the accept, which is no failure of ours: the next connection may be
    // accepted at once.
    if errno == Some(Errno::CONNABORTED) {
        return;
    }
    if FAILURE_LOGGED.lock().is_due(Instant::now()) {
        tracing::warn!(%error, "{port}: accept failed");
    }
    if let Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) = errno {
        make_room();
    }
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_that_leaves_before_its_accept_takes_no_line() {
        recover(&io::Error::from(Errno::CONNABORTED), "a port").await;
        assert!(FAILURE_LOGGED.lock().is_due(Instant::now()));
    }

    #[test]
    fn a_peer_that_vanishes_is_probed() {
        let listener = bind(Port::Public, "127.0.0.1:0".parse().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), KEEPALIVE_IDLE);
    }

    /// Linux drops the first packet of a client when the queue is full.
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
            let failure = failure.to_string();
            assert!(failure.starts_with(&start), "{failure}");
            assert!(failure.contains("; `ss -ltnp` names"), "{failure}");
        }
    }
}
