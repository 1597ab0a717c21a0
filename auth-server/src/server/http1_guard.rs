//! hyper answers what it cannot parse by itself, with an empty body. This stream puts the envelope
//! in its place: every failure of this server carries a reason.
//!
//! hyper also takes heads that two parsers could read differently. Such a head is held back, and so is what is
//! out of place among the chunks of a body; hyper gets something in its place that it refuses: in its turn,
//! after the answers to what came before.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use contract::http::framing::requests::{Part, Refused, Requests};
use contract::rejection::Rejection;
use runtime::listener::CLIENT_IDLE;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::http::rejection_on_the_wire;
use crate::http::unfinished::{Exhausted, Held};

/// No request for anybody, whatever part of a head precedes it.
const NO_REQUEST: &[u8] = b"\0\r\n\r\n";
/// No chunk for anybody, wherever outside of its data it stands.
const NO_CHUNK: &[u8] = b"\r\r";

/// The socket, or TLS on it, under hyper.
pub(super) struct AutomaticAnswers<S, R> {
    stream: S,
    /// Hears of each refusal.
    report: R,
    /// What is sent in place of the buffer that hyper is writing, as far as it is not out yet.
    replacement: Option<Replacement>,
    requests: Requests,
    /// A head whose end has not come yet.
    unfinished: Held,
    held_back: Option<HeldBack>,
    head_timeout: Duration,
    /// Of what is waited for. Set only while there is something to wait for: most heads arrive at once.
    timer: Option<Pin<Box<Sleep>>>,
    head_is_overdue: bool,
}

/// What hyper does not get to see.
struct HeldBack {
    rejection: Rejection,
    /// What is left of [`NO_REQUEST`] or [`NO_CHUNK`].
    instead: &'static [u8],
}

impl From<Refused> for HeldBack {
    fn from(refused: Refused) -> Self {
        Self {
            rejection: refused.rejection,
            instead: match refused.part {
                Part::Head => NO_REQUEST,
                Part::Chunks => NO_CHUNK,
            },
        }
    }
}

struct Replacement {
    bytes: Vec<u8>,
    sent: usize,
}

impl<S, R> AutomaticAnswers<S, R> {
    pub(super) fn new(stream: S, head_timeout: Duration, unfinished: Held, report: R) -> Self {
        Self {
            stream,
            report,
            replacement: None,
            requests: Requests::default(),
            unfinished,
            held_back: None,
            head_timeout,
            timer: None,
            head_is_overdue: false,
        }
    }

    /// Whether the connection failed since half a head came, and then nothing for too long.
    pub(super) fn has_half_a_head(&self) -> bool {
        self.head_is_overdue
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S, R> AutomaticAnswers<S, R> {
    /// How long the client may take for what comes next: for its first byte, and from the first byte of a head to
    /// its end, less than between two requests. A body has a time-out where it is read.
    fn patience(&self) -> Option<Duration> {
        let is_first = self.requests.heads() == 0;
        if is_first || self.requests.is_within_head() {
            Some(self.head_timeout)
        } else {
            self.requests.is_between().then_some(CLIENT_IDLE)
        }
    }

    /// Ready when what is expected of the client did not come in time.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(patience) = self.patience() else {
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(timer.as_mut().poll(cx));
        self.head_is_overdue = self.requests.is_within_head();
        Poll::Ready(())
    }

    /// Takes note of what was received.
    fn follow(&mut self, received: &[u8]) -> Result<(), Refused> {
        let place = |requests: &Requests| (requests.heads(), requests.is_within_head());
        let before = place(&self.requests);
        let followed = self.requests.follow(received);
        // Blank lines lead nowhere, and so does a byte more of the same head.
        if place(&self.requests) != before {
            self.timer = None;
        }
        followed?;
        // Kept here and in hyper's buffer. Where there is no room the head gets no further.
        let kept = 2 * self.requests.unfinished_head();
        self.unfinished.set(kept).map_err(|Exhausted| Refused {
            passed: received.len(),
            part: Part::Head,
            rejection: Rejection::ServerBusy,
        })
    }
}

/// The refusal that belongs in the place of what hyper writes; `None` for the answers of our own
/// routes: none of them is a failure with an empty body.
fn replacement(written: &[u8]) -> Option<Rejection> {
    let head = written.strip_suffix(b"\r\n\r\n")?;
    let mut lines = head.split(|&b| b == b'\n').map(<[u8]>::trim_ascii);
    let rejection = match lines.next()? {
        b"HTTP/1.1 400 Bad Request" => Rejection::RequestMalformed,
        b"HTTP/1.1 414 URI Too Long" | b"HTTP/1.1 431 Request Header Fields Too Large" => {
            Rejection::RequestHeaderTooLarge
        }
        _ => return None,
    };
    lines
        .any(|line| line == b"content-length: 0")
        .then_some(rejection)
}

impl<S: AsyncWrite + Unpin, R: Fn(Rejection) + Unpin> AsyncWrite for AutomaticAnswers<S, R> {
    // Not vectored: hyper then hands over a head in one piece.
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        written: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self {
            stream,
            report,
            replacement: pending,
            held_back,
            requests,
            timer,
            ..
        } = self.get_mut();
        if requests.is_between() {
            // The time between two requests begins with the answer.
            *timer = None;
        }
        if pending.is_none() {
            *pending = replacement(written).map(|rejection| {
                let rejection = held_back.as_ref().map_or(rejection, |held| held.rejection);
                report(rejection);
                Replacement {
                    bytes: rejection_on_the_wire(rejection),
                    sent: 0,
                }
            });
        }
        let Some(Replacement { bytes, sent }) = pending else {
            return Pin::new(stream).poll_write(cx, written);
        };
        while let Some(rest @ [_, ..]) = bytes.get(*sent..) {
            *sent += ready!(Pin::new(&mut *stream).poll_write(cx, rest))?;
        }
        *pending = None;
        Poll::Ready(Ok(written.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin, R: Unpin> AsyncRead for AutomaticAnswers<S, R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.held_back.is_none() {
            let before = buffer.filled().len();
            if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buffer) {
                read?;
            } else {
                ready!(this.poll_overdue(cx));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let received = buffer.filled().get(before..).unwrap_or_default();
            let Err(refused) = this.follow(received) else {
                return Poll::Ready(Ok(()));
            };
            buffer.set_filled(before + refused.passed);
            this.held_back = Some(HeldBack::from(refused));
        }
        if let Some(held_back) = &mut this.held_back {
            let length = held_back.instead.len().min(buffer.remaining());
            let (now, later) = held_back.instead.split_at(length);
            buffer.put_slice(now);
            held_back.instead = later;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::http::unfinished::Unfinished;

    #[test]
    fn hyper_s_own_answers_are_told_from_ours() {
        for (written, expected) in [
            (
                "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\ndate: x\r\n\r\n",
                Some(Rejection::RequestMalformed),
            ),
            (
                "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
                Some(Rejection::RequestMalformed),
            ),
            (
                "HTTP/1.1 414 URI Too Long\r\ncontent-length: 0\r\n\r\n",
                Some(Rejection::RequestHeaderTooLarge),
            ),
            (
                "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n\r\n",
                Some(Rejection::RequestHeaderTooLarge),
            ),
            (
                "HTTP/1.1 400 Bad Request\r\ncontent-length: 9\r\n\r\n",
                None,
            ),
            (
                "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n{}",
                None,
            ),
            (
                "HTTP/1.1 304 Not Modified\r\ncontent-length: 0\r\n\r\n",
                None,
            ),
            ("HTTP/1.1 100 Continue\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(replacement(written.as_bytes()), expected, "{written}");
        }
    }

    const SECOND: Duration = Duration::from_secs(1);
    const HEAD: Duration = Duration::from_secs(10);

    /// How long the next read waits in vain, and whether half a head had come by then.
    async fn waits(stream: &mut AutomaticAnswers<DuplexStream, fn(Rejection)>) -> (Duration, bool) {
        let began = tokio::time::Instant::now();
        let read = stream.read(&mut [0; 1024]).await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        (began.elapsed(), stream.has_half_a_head())
    }

    async fn receive(
        stream: &mut AutomaticAnswers<DuplexStream, fn(Rejection)>,
        client: &mut DuplexStream,
        sent: &str,
    ) {
        client.write_all(sent.as_bytes()).await.unwrap();
        let read = stream.read(&mut [0; 1024]).await.unwrap();
        assert_eq!(read, sent.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_from_its_first_byte_and_a_connection_is_idle_for_longer() {
        const GET: &str = "GET / HTTP/1.1\r\n\r\n";
        const POST: &str = "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n";
        let connection = || {
            let (stream, client) = tokio::io::duplex(1024);
            let report: fn(Rejection) = |_| {};
            let unfinished = Unfinished::of(1024).nothing_held();
            (
                AutomaticAnswers::new(stream, HEAD, unfinished, report),
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
                // Some of the time is over by then.
                let _ = tokio::time::timeout(8 * SECOND, stream.read(&mut [0; 1])).await;
                receive(&mut stream, &mut client, piece).await;
            }
            assert_eq!(waits(&mut stream).await, expected, "{sent:?}");
        }
        // A byte more prolongs nothing; a body is not waited for here.
        let (mut stream, mut client) = connection();
        receive(&mut stream, &mut client, "G").await;
        let _ = tokio::time::timeout(8 * SECOND, stream.read(&mut [0; 1])).await;
        receive(&mut stream, &mut client, "E").await;
        assert_eq!(waits(&mut stream).await, (2 * SECOND, true));
        let (mut stream, mut client) = connection();
        receive(&mut stream, &mut client, POST).await;
        let body = tokio::time::timeout(10 * CLIENT_IDLE, stream.read(&mut [0; 1])).await;
        assert!(body.is_err());
        // Nor does the time between two requests begin before the answer.
        receive(&mut stream, &mut client, "012345678").await;
        let _ = tokio::time::timeout(CLIENT_IDLE - SECOND, stream.read(&mut [0; 1])).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        assert_eq!(waits(&mut stream).await, (CLIENT_IDLE, false));
    }
}
