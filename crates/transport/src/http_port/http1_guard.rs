//! A stream under hyper that rejects ambiguous HTTP/1 and lets the program write each error response.
//!
//! hyper rejects unparsable heads with an empty body, which is replaced here. It also accepts heads
//! that two parsers could read differently: such a head, or such a line among the chunks of a body,
//! is withheld, and hyper reads bytes that it rejects in turn, after the responses to earlier
//! requests.

use std::io;
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

/// Bytes that hyper rejects in a head, whatever part of it precedes them, and between the data of
/// chunks. They end in an empty line: a head that has begun is parsed once it has its end.
const NO_REQUEST: &[u8] = b"\r\r\r\n\r\n";

/// A socket, or TLS on it, under hyper.
pub(super) struct Http1Guard<S, R> {
    stream: S,
    /// Writes the response to what is no request.
    reject: R,
    /// The unwritten part of a response that replaces hyper's own.
    replacement: Option<Replacement>,
    requests: RequestBoundaries,
    /// Memory of an incomplete head.
    unfinished: Share,
    withheld: Option<Withheld>,
    activity: Activity,
    /// Held while the client does not read.
    unread: Option<OpenStream>,
    head_timeout: Duration,
    /// Longest silence between two requests.
    idle_timeout: Duration,
    /// Timer of the current wait, created on the first pending read: most heads arrive at once.
    timer: Option<Pin<Box<Sleep>>>,
    is_head_overdue: bool,
}

/// A rejected head or chunk that hyper does not see.
struct Withheld {
    rejection: InvalidRequest,
    /// Unread rest of [`NO_REQUEST`].
    substitute: &'static [u8],
}

struct Replacement {
    bytes: Vec<u8>,
    sent: usize,
}

impl<S, R> Http1Guard<S, R> {
    pub(super) fn new(
        stream: S,
        (head_timeout, idle_timeout): (Duration, Duration),
        unfinished: Share,
        activity: Activity,
        reject: R,
    ) -> Self {
        Self {
            stream,
            reject,
            replacement: None,
            requests: RequestBoundaries::default(),
            unfinished,
            withheld: None,
            activity,
            unread: None,
            head_timeout,
            idle_timeout,
            timer: None,
            is_head_overdue: false,
        }
    }

    /// Returns true where the connection timed out within a head.
    pub(super) fn has_partial_head(&self) -> bool {
        self.is_head_overdue
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S, R> Http1Guard<S, R> {
    /// Returns the timeout of the next bytes: one for the first byte and for a whole head, a longer
    /// one between requests. Bodies have their own where they are read.
    fn timeout(&self) -> Option<Duration> {
        let is_first = self.requests.heads() == 0;
        if is_first || self.requests.is_within_head() {
            Some(self.head_timeout)
        } else {
            self.requests.is_between().then_some(self.idle_timeout)
        }
    }

    /// A request whose body is not here yet counts by itself.
    fn publish_wait(&self) {
        if self.requests.is_within_head() {
            self.activity.waits_for_rest();
        } else {
            self.activity.waits_for_request();
        }
    }

    /// Records if the client reads what is written.
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
        self.is_head_overdue = self.requests.is_within_head();
        Poll::Ready(())
    }

    /// Checks the framing of received bytes.
    fn follow(&mut self, received: &[u8]) -> Result<(), FramingError> {
        let position = |requests: &RequestBoundaries| (requests.heads(), requests.is_within_head());
        let before = position(&self.requests);
        let followed = self.requests.follow(received);
        // Blank lines and further bytes of the same head do not reset the timer.
        if position(&self.requests) != before {
            self.timer = None;
        }
        followed?;
        // Held here and in hyper's buffer. Over budget the head is rejected.
        let kept = 2 * self.requests.unfinished_head();
        match self.unfinished.set(counted(kept)) {
            true => Ok(()),
            false => Err(FramingError {
                passed: received.len(),
                rejection: InvalidRequest::MemoryExhausted,
            }),
        }
    }
}

/// Returns the rejection for a response of hyper's own; responses of the routes never are a 4xx
/// with an empty body.
fn replacement(written: &[u8]) -> Option<InvalidRequest> {
    let head = written.strip_suffix(b"\r\n\r\n")?;
    let mut lines = head.split(|&b| b == b'\n').map(<[u8]>::trim_ascii);
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

impl<S: AsyncWrite + Unpin, R: Fn(InvalidRequest) -> Vec<u8> + Unpin> AsyncWrite
    for Http1Guard<S, R>
{
    // Not vectored, so that hyper writes a head in one piece.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        written: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self {
            stream,
            reject,
            replacement: pending,
            withheld,
            requests,
            timer,
            ..
        } = &mut *self;
        if requests.is_between() {
            // The time between two requests begins with the response.
            *timer = None;
        }
        if pending.is_none() {
            *pending = replacement(written).map(|rejection| {
                let rejection = withheld.as_ref().map_or(rejection, |held| held.rejection);
                Replacement {
                    bytes: reject(rejection),
                    sent: 0,
                }
            });
        }
        let Some(Replacement { bytes, sent }) = pending else {
            let taken = Pin::new(stream).poll_write(cx, written);
            return self.written(taken);
        };
        while let Some(rest @ [_, ..]) = bytes.get(*sent..) {
            *sent += ready!(Pin::new(&mut *stream).poll_write(cx, rest))?;
        }
        *pending = None;
        Poll::Ready(Ok(written.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.written(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin, R: Unpin> AsyncRead for Http1Guard<S, R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.withheld.is_none() {
            let before = buffer.filled().len();
            if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buffer) {
                read?;
                this.activity.received();
            } else {
                this.publish_wait();
                ready!(this.poll_overdue(cx));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let received = buffer.filled().get(before..).unwrap_or_default();
            let Err(error) = this.follow(received) else {
                return Poll::Ready(Ok(()));
            };
            buffer.set_filled(before + error.passed);
            this.withheld = Some(Withheld {
                rejection: error.rejection,
                substitute: NO_REQUEST,
            });
        }
        if let Some(withheld) = &mut this.withheld {
            let length = withheld.substitute.len().min(buffer.remaining());
            let (now, later) = withheld.substitute.split_at(length);
            buffer.put_slice(now);
            withheld.substitute = later;
        }
        Poll::Ready(Ok(()))
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
            assert_eq!(replacement(written.as_bytes()), expected, "{written}");
        }
        assert_eq!(replacement(b""), None);
    }

    const SECOND: Duration = Duration::from_secs(1);
    const HEAD: Duration = Duration::from_secs(10);

    /// Returns the time until the next read fails, and true if it failed within a head.
    async fn waits(
        stream: &mut Http1Guard<DuplexStream, fn(InvalidRequest) -> Vec<u8>>,
    ) -> (Duration, bool) {
        let began = tokio::time::Instant::now();
        let read = stream.read(&mut [0; 1024]).await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        (began.elapsed(), stream.has_partial_head())
    }

    async fn receive(
        stream: &mut Http1Guard<DuplexStream, fn(InvalidRequest) -> Vec<u8>>,
        client: &mut DuplexStream,
        sent: &str,
    ) {
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
            let reject: fn(InvalidRequest) -> Vec<u8> = |_| Vec::new();
            let unfinished = Shares::new(1024).nothing_for(Holder::for_address(None));
            (
                Http1Guard::new(
                    stream,
                    (HEAD, CLIENT_IDLE),
                    unfinished,
                    Activity::default(),
                    reject,
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
