//! Client of a running program's admin port, for commands beside a server: an image holds no shell
//! and no curl.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use postern_process::exit::ExitError;

/// A report is a few hundred bytes, an explanation repeats a header block; a peer that sends more
/// is not our admin port.
const MAX_RESPONSE: usize = 1024 * 1024;

/// A response of the admin port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminResponse {
    /// The first line, as it was sent: `HTTP/1.1 200 OK`.
    pub status_line: String,
    /// The body, empty if it is missing.
    pub body: String,
}

impl AdminResponse {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        Self {
            status_line: head.lines().next().unwrap_or_default().to_owned(),
            body: body.to_owned(),
        }
    }

    /// Returns the status of an HTTP response.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        let mut words = self.status_line.split(' ');
        words.next().filter(|word| word.starts_with("HTTP/1."))?;
        words.next()?.parse().ok()
    }
}

/// Sends one request with this JSON, which may be empty, to the admin port, which may be given as it
/// was configured to listen (`0.0.0.0:9001`). `timeout` bounds the whole exchange.
///
/// # Errors
/// [`ExitError::Unavailable`] without a response in time.
pub fn request(
    admin: SocketAddr,
    (method, path): (&str, &str),
    json: &[u8],
    timeout: Duration,
) -> Result<AdminResponse, ExitError> {
    let address = reachable(admin);
    let length = json.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    let request = [head.as_bytes(), json].concat();
    exchange(address, &request, timeout).map_err(|error| {
        ExitError::Unavailable(format!(
            "no response from http://{address}{path}: {error}; is {admin} the --admin-listen of a running server?"
        ))
    })
}

/// Returns the address to connect to: this host for an unspecified one.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => loopback(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Returns the loopback address of IPv6, or IPv4's on a host without the former.
fn loopback() -> IpAddr {
    match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => Ipv6Addr::LOCALHOST.into(),
        Err(_) => Ipv4Addr::LOCALHOST.into(),
    }
}

fn exchange(
    address: SocketAddr,
    request: &[u8],
    timeout: Duration,
) -> std::io::Result<AdminResponse> {
    let started = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(request)?;

    let mut response = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let left = timeout.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk)? {
            0 => return Ok(AdminResponse::parse(&String::from_utf8_lossy(&response))),
            read if response.len() + read > MAX_RESPONSE => {
                return Err(Error::other("the response is too long"));
            }
            read => response.extend(chunk.iter().take(read)),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_its_status_line_and_its_body() {
        for (text, status, body) in [
            (
                "HTTP/1.1 503 Service Unavailable\r\nA: b\r\n\r\n[{}]",
                Some(503),
                "[{}]",
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", Some(200), ""),
            ("SSH-2.0-x 200\r\n", None, ""),
            ("", None, ""),
        ] {
            let response = AdminResponse::parse(text);
            assert_eq!((response.status(), response.body.as_str()), (status, body));
        }
    }

    #[test]
    fn the_unspecified_address_is_reached_on_loopback() {
        for (listen, expected) in [
            ("0.0.0.0:9001", "127.0.0.1:9001"),
            ("[::]:9001", "[::1]:9001"),
            ("10.1.2.3:9001", "10.1.2.3:9001"),
        ] {
            let found = reachable(listen.parse().unwrap());
            assert_eq!(found, expected.parse().unwrap());
        }
    }

    #[test]
    fn a_silent_port_is_given_up_at_the_timeout() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, brief) = (silent.local_addr().unwrap(), Duration::from_millis(50));
        let failure = request(address, ("GET", "/readyz"), &[], brief).unwrap_err();
        assert_eq!(failure.code(), 69);
    }
}
