//! A stream under hyper that rejects ambiguous HTTP/1 and leaves each error response to the port.
//!
//! hyper rejects unparsable heads with a response without a body: that response is not written, and the port
//! responds once hyper has ended. hyper also accepts heads that two parsers could read differently: such a
//! head, or such a line among the chunks of a body, is withheld, and hyper reads bytes in its place that it
//! rejects. The end of the input would not do: hyper takes it for a client that has gone, and drops the
//! responses to earlier requests.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use postern_http::framing::requests::{FramingError, RequestBoundaries};
use postern_http::invalid::InvalidRequest;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::net::connection_slots::{Activity, OpenStream};
use crate::net::shares::Share;
use crate::net::unfinished::counted;
use crate::tls::first_bytes::note_handshake;

/// Bytes that hyper rejects in a head, whatever part of it precedes them, and between the data of chunks. The
/// bytes end in an empty line, because a head that has begun is parsed only once its end is here.
const NO_REQUEST: &[u8] = b"\r\r\r\n\r\n";

/// A socket, or TLS on it, under hyper.
pub(super) struct Http1Guard<S> {
    stream: S,
    /// The client of a port without TLS, for the log.
    plain_peer: Option<IpAddr>,
    requests: RequestBoundaries,
    /// The share of the memory budget that an incomplete head takes.
    unfinished: Share,
    withheld: Option<Withheld>,
    /// The rejection that has no response once hyper has ended.
    missing_response: Option<InvalidRequest>,
    activity: Activity,
    /// Held while the client does not read.
    unread: Option<OpenStream>,
    head_timeout: Duration,
    /// Longest silence between two requests.
    idle_timeout: Duration,
    /// Timer of the current wait, created on the first pending read: most heads arrive at once.
    timer: Option<Pin<Box<Sleep>>>,
}

/// A rejected head or chunk that hyper does not see.
struct Withheld {
    rejection: InvalidRequest,
    /// Unread rest of [`NO_REQUEST`].
    substitute: &'static [u8],
}

impl<S> Http1Guard<S> {
    pub(super) fn new(
        (stream, plain_peer): (S, Option<IpAddr>),
        (head_timeout, idle_timeout): (Duration, Duration),
        unfinished: Share,
        activity: Activity,
    ) -> Self {
        Self {
            stream,
            plain_peer,
            requests: RequestBoundaries::default(),
            unfinished,
            withheld: None,
            missing_response: None,
            activity,
            unread: None,
            head_timeout,
            idle_timeout,
            timer: None,
        }
    }

    /// Returns the stream, and the rejection that has no response yet.
    pub(super) fn into_parts(self) -> (S, Option<InvalidRequest>) {
        (self.stream, self.missing_response)
    }

    /// Returns the timeout of the next bytes: the head's for the first byte and for a whole head, a longer
    /// one between requests. Bodies have a timeout of their own where they are read.
    fn timeout(&self) -> Option<Duration> {
        let is_first = self.requests.heads() == 0;
        if is_first || self.requests.is_within_head() {
            Some(self.head_timeout)
        } else {
            self.requests.is_between().then_some(self.idle_timeout)
        }
    }

    /// Publishes the wait for a head. A request whose body is not here yet counts as busy by itself.
    fn publish_wait(&self) {
        if self.requests.is_within_head() {
            self.activity.waits_for_rest();
        } else {
            self.activity.waits_for_request();
        }
    }

    /// Records if the client reads the response.
    fn written<T>(&mut self, written: Poll<T>) -> Poll<T> {
        if written.is_ready() {
            self.unread = None;
        } else if self.unread.is_none() {
            self.unread = Some(self.activity.stream());
        }
        written
    }

    /// Completes when the expected bytes are overdue.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(timeout) = self.timeout() else {
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(timer.as_mut().poll(cx));
        if self.requests.is_within_head() {
            self.missing_response = Some(InvalidRequest::Timeout);
        }
        Poll::Ready(())
    }

    /// Checks the framing of received bytes.
    fn check(&mut self, received: &[u8]) -> Result<(), FramingError> {
        let position = |requests: &RequestBoundaries| (requests.heads(), requests.is_within_head());
        let before = position(&self.requests);
        let checked = self.requests.check(received);
        // Blank lines and further bytes of the same head do not reset the timer.
        if position(&self.requests) != before {
            self.timer = None;
        }
        checked?;
        // Held here and in hyper's buffer. Over budget the head is rejected.
        let kept = 2 * self.requests.unfinished_head();
        if self.unfinished.set(counted(kept)) {
            Ok(())
        } else {
            Err(FramingError {
                passed: received.len(),
                rejection: InvalidRequest::MemoryExhausted,
            })
        }
    }
}

/// Returns the rejection that caused a response of hyper's own: a 4xx with an empty body, as no route sends it.
fn rejected_by_hyper(written: &[u8]) -> Option<InvalidRequest> {
    let mut lines = written
        .strip_suffix(b"\r\n\r\n")?
        .split(|&b| b == b'\n')
        .map(<[u8]>::trim_ascii);
    let rejection = match lines.next()? {
        b"HTTP/1.1 400 Bad Request" => InvalidRequest::Malformed,
        b"HTTP/1.1 414 URI Too Long" | b"HTTP/1.1 431 Request Header Fields Too Large" => {
            InvalidRequest::HeaderTooLarge
        }
        _ => return None,
    };
    lines
        .any(|line| line == b"content-length: 0")
        .then_some(rejection)
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Http1Guard<S> {
    // Not vectored, so that hyper writes a head in one piece.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        written: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.requests.is_between() {
            // The time between two requests begins with the response.
            self.timer = None;
        }
        if let Some(rejection) = rejected_by_hyper(written) {
            // The withheld bytes are the reason, not the bytes that hyper has read instead.
            let withheld = self.withheld.as_ref().map(|held| held.rejection);
            self.missing_response = withheld.or(Some(rejection));
            // hyper takes the response for written, and ends the connection.
            return Poll::Ready(Ok(written.len()));
        }
        let taken = Pin::new(&mut self.stream).poll_write(cx, written);
        self.written(taken)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.written(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Http1Guard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // After withheld bytes no request has a certain beginning: the socket is not read again.
        if let Some(withheld) = &mut this.withheld {
            return Pin::new(&mut withheld.substitute).poll_read(cx, buffer);
        }
        let before = buffer.filled().len();
        let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buffer) else {
            this.publish_wait();
            ready!(this.poll_overdue(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        };
        read?;
        this.activity.received();
        let received = buffer.filled().get(before..).unwrap_or_default();
        let Err(error) = this.check(received) else {
            return Poll::Ready(Ok(()));
        };
        if let (Some(peer), 0) = (this.plain_peer, this.requests.heads()) {
            note_handshake(peer, received);
        }
        // hyper reads the bytes before the rejected ones, and then the substitute.
        buffer.set_filled(before + error.passed);
        let withheld = this.withheld.insert(Withheld {
            rejection: error.rejection,
            substitute: NO_REQUEST,
        });
        Pin::new(&mut withheld.substitute).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::net::listener::CLIENT_IDLE;
    use crate::net::shares::{Holder, Shares};

    #[test]
    fn hyper_s_own_responses_are_distinguished_from_ours() {
        let malformed = Some(InvalidRequest::Malformed);
        let too_large = Some(InvalidRequest::HeaderTooLarge);
        let [bad, empty] = ["400 Bad Request", "content-length: 0"];
        let closing = "connection: close\r\ncontent-length: 0";
        for (status, fields, body, expected) in [
            (bad, "content-length: 0\r\ndate: x", "", malformed),
            (bad, closing, "", malformed),
            ("414 URI Too Long", empty, "", too_large),
            ("431 Request Header Fields Too Large", empty, "", too_large),
            (bad, "content-length: 9", "", None),
            (bad, empty, "{}", None),
            ("304 Not Modified", empty, "", None),
            ("100 Continue", "a: b", "", None),
        ] {
            let written = format!("HTTP/1.1 {status}\r\n{fields}\r\n\r\n{body}");
            assert_eq!(rejected_by_hyper(written.as_bytes()), expected, "{written}");
        }
        assert_eq!(rejected_by_hyper(b""), None);
    }

    const SECOND: Duration = Duration::from_secs(1);
    const HEAD: Duration = Duration::from_secs(10);

    /// Returns the time until the next read fails, and true if it failed within a head.
    async fn waits(stream: &mut Http1Guard<DuplexStream>) -> (Duration, bool) {
        let began = tokio::time::Instant::now();
        let read = stream.read(&mut [0; 1024]).await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let is_overdue = stream.missing_response == Some(InvalidRequest::Timeout);
        (began.elapsed(), is_overdue)
    }

    async fn receive(stream: &mut Http1Guard<DuplexStream>, client: &mut DuplexStream, sent: &str) {
        client.write_all(sent.as_bytes()).await.unwrap();
        let read = stream.read(&mut [0; 1024]).await.unwrap();
        assert_eq!(read, sent.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_and_a_connection_is_idle_longer() {
        const GET: &str = "GET / HTTP/1.1\r\n\r\n";
        const POST: &str = "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n";
        let connection = || {
            let (stream, client) = tokio::io::duplex(1024);
            let unfinished = Shares::new(1024).nothing_for(Holder::for_address(None));
            (
                Http1Guard::new(
                    (stream, None),
                    (HEAD, CLIENT_IDLE),
                    unfinished,
                    Activity::default(),
                ),
                client,
            )
        };
        for (sent, expected) in [
            (&[][..], (HEAD, false)),
            (&["G"], (HEAD, true)),
            (&[GET], (CLIENT_IDLE, false)),
            // Blank lines prolong nothing.
            (&["\r\n"], (2 * SECOND, false)),
            (&[GET, "\r\n"], (CLIENT_IDLE - 8 * SECOND, false)),
            (&[GET, "G"], (HEAD, true)),
            (&["G", &GET[1..], "G"], (HEAD, true)),
            // The end of one head and the beginning of the next.
            (&["G", &[&GET[1..], "G"].concat()], (HEAD, true)),
        ] {
            let (mut stream, mut client) = connection();
            for piece in sent {
                // Some of the time has passed by then.
                let _ = tokio::time::timeout(8 * SECOND, stream.read(&mut [0; 1])).await;
                receive(&mut stream, &mut client, piece).await;
            }
            assert_eq!(waits(&mut stream).await, expected, "{sent:?}");
        }
        // Another byte prolongs nothing; bodies have no timeout here.
        let (mut stream, mut client) = connection();
        receive(&mut stream, &mut client, "G").await;
        let _ = tokio::time::timeout(8 * SECOND, stream.read(&mut [0; 1])).await;
        receive(&mut stream, &mut client, "E").await;
        assert_eq!(waits(&mut stream).await, (2 * SECOND, true));
        let (mut stream, mut client) = connection();
        receive(&mut stream, &mut client, POST).await;
        let body = tokio::time::timeout(10 * CLIENT_IDLE, stream.read(&mut [0; 1])).await;
        assert!(body.is_err());
        // Nor does the time between two requests begin before the response.
        receive(&mut stream, &mut client, "012345678").await;
        let _ = tokio::time::timeout(CLIENT_IDLE - SECOND, stream.read(&mut [0; 1])).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        assert_eq!(waits(&mut stream).await, (CLIENT_IDLE, false));
    }
}
