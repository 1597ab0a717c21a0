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

use contract::framing::requests::{Part, Refused, Requests};
use contract::rejection::Rejection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::http::rejection_on_the_wire;

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
    held_back: Option<HeldBack>,
    head_timeout: Duration,
    /// Runs from the beginning of the connection to its first byte, and from the first byte of a head to its end:
    /// between two requests a connection may be silent for longer.
    head_timer: Option<Pin<Box<Sleep>>>,
    /// Whether a byte came.
    begun: bool,
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
    pub(super) fn new(stream: S, head_timeout: Duration, report: R) -> Self {
        Self {
            stream,
            report,
            replacement: None,
            requests: Requests::default(),
            held_back: None,
            head_timeout,
            head_timer: None,
            begun: false,
            head_is_overdue: false,
        }
    }

    /// Whether the connection failed since half a head came, and then nothing for too long.
    pub(super) fn has_half_a_head(&self) -> bool {
        self.head_is_overdue && self.begun
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S, R> AutomaticAnswers<S, R> {
    /// Ready when what is expected of the client did not come in time.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.begun && !self.requests.is_within_head() {
            return Poll::Pending;
        }
        let limit = self.head_timeout;
        let timer = self
            .head_timer
            .get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(timer.as_mut().poll(cx));
        self.head_is_overdue = true;
        Poll::Ready(())
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
            ..
        } = self.get_mut();
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
            let is_first = !this.begun;
            let followed = this.requests.follow(received);
            this.begun |= !received.is_empty();
            if is_first || !this.requests.is_within_head() {
                this.head_timer = None;
            }
            let Err(refused) = followed else {
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
    use super::*;

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
}
