//! `sidecar wait`: for jobs and start scripts that need the sidecar before they begin.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use postern_process::exit::ExitError;
use postern_transport::admin::healthcheck;

const PAUSE: Duration = Duration::from_millis(200);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Polls until the sidecar is ready.
///
/// # Errors
/// The last response, at `timeout`.
pub(crate) fn until_ready(admin: SocketAddr, timeout: Duration) -> Result<(), ExitError> {
    until_done(timeout, || {
        Ok(match healthcheck::ready(admin, RESPONSE_TIMEOUT) {
            Ok(()) => Poll::Done,
            Err(failure) => Poll::NotYet(failure),
        })
    })
}

/// The result of one poll.
pub(crate) enum Poll {
    Done,
    /// The error at the timeout.
    NotYet(ExitError),
}

/// Polls until done.
///
/// # Errors
/// Any error of `poll`, at once; at `timeout` the last [`Poll::NotYet`].
pub(crate) fn until_done(
    timeout: Duration,
    poll: impl Fn() -> Result<Poll, ExitError>,
) -> Result<(), ExitError> {
    let started = Instant::now();
    loop {
        let Poll::NotYet(failure) = poll()? else {
            return Ok(());
        };
        let left = timeout.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(failure);
        }
        // The last poll is at the timeout itself, and not up to a pause before it.
        thread::sleep(PAUSE.min(left));
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;

    /// Serves one connection after the other with these statuses and no conditions.
    fn admin_port(statuses: &'static [u16]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for status in statuses {
                let (mut stream, _) = listener.accept().unwrap();
                // To the end of the head: closing with unread bytes would reset the connection.
                let lines = BufReader::new(&stream).lines();
                lines
                    .map_while(Result::ok)
                    .take_while(|line| !line.is_empty())
                    .for_each(drop);
                write!(stream, "HTTP/1.1 {status} x\r\n\r\n[]").unwrap();
            }
        });
        address
    }

    #[test]
    fn it_waits_while_the_sidecar_is_not_ready() {
        let admin = admin_port(&[503, 503, 200]);
        assert_eq!(until_ready(admin, Duration::from_secs(60)), Ok(()));
    }

    #[test]
    fn a_timeout_returns_the_last_response() {
        let failure = until_ready(admin_port(&[503]), Duration::ZERO).unwrap_err();
        assert_eq!(failure.code(), 69);
        assert!(failure.to_string().starts_with("not ready"), "{failure}");
    }
}
