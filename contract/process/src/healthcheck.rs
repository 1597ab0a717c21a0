//! Asks a running program's admin port whether it is ready, for container health checks: the image
//! holds no shell and no curl.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::exit::Failure;

/// A readiness report is a few hundred bytes; whatever sends more is not our admin port.
const MAX_ANSWER: usize = 16 * 1024;

/// `GET /readyz` on the admin port, which may be given as it was configured to listen
/// (`0.0.0.0:9001`). `timeout` bounds the whole exchange.
///
/// # Errors
/// [`Failure::Unavailable`] with what the program answered, or why it did not.
pub fn ready(admin: SocketAddr, timeout: Duration) -> Result<(), Failure> {
    let address = reachable(admin);
    let answer = exchange(address, timeout).map_err(|error| {
        Failure::Unavailable(format!("no answer from http://{address}/readyz: {error}"))
    })?;
    judge(&answer)
}

/// An unspecified address is one to listen on; to connect, it means this host.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn exchange(address: SocketAddr, timeout: Duration) -> std::io::Result<String> {
    let started = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_write_timeout(Some(timeout))?;
    write!(
        stream,
        "GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;

    let mut answer = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let left = timeout.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk)? {
            0 => return Ok(String::from_utf8_lossy(&answer).into_owned()),
            read if answer.len() + read > MAX_ANSWER => {
                return Err(Error::other("the answer is too long"));
            }
            read => answer.extend(chunk.iter().take(read)),
        }
    }
}

fn judge(answer: &str) -> Result<(), Failure> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status_line = head.lines().next().unwrap_or_default();
    match status_line.split(' ').nth(1) {
        Some("200") => Ok(()),
        Some("503") => Err(Failure::Unavailable(format!("not ready: {body}"))),
        _ => Err(Failure::Unavailable(format!(
            "not an admin port: it answered {status_line:?}"
        ))),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_a_200_is_ready() {
        assert_eq!(judge("HTTP/1.1 200 OK\r\n\r\n[]"), Ok(()));
        for (answer, line) in [
            (
                "HTTP/1.1 503 Service Unavailable\r\n\r\n[{}]",
                "not ready: [{}]",
            ),
            (
                "HTTP/1.1 404 Not Found\r\n\r\n",
                "not an admin port: it answered \"HTTP/1.1 404 Not Found\"",
            ),
            (
                "SSH-2.0-x\r\n",
                "not an admin port: it answered \"SSH-2.0-x\"",
            ),
            ("", "not an admin port: it answered \"\""),
        ] {
            assert_eq!(judge(answer), Err(Failure::Unavailable(line.to_owned())));
        }
    }

    #[test]
    fn the_unspecified_address_is_asked_on_loopback() {
        for (listen, ask) in [
            ("0.0.0.0:9001", "127.0.0.1:9001"),
            ("[::]:9001", "[::1]:9001"),
            ("10.1.2.3:9001", "10.1.2.3:9001"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()), ask.parse().unwrap());
        }
    }

    #[test]
    fn a_port_that_accepts_and_says_nothing_is_given_up_at_the_timeout() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let failure = ready(silent.local_addr().unwrap(), Duration::from_millis(50)).unwrap_err();
        assert_eq!(failure.code(), 69);
    }
}
