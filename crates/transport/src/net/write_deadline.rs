//! A socket whose peer has to read.
//!
//! HTTP servers bound the arrival of a request and leave the response to the kernel: a peer that requests
//! much and reads nothing would keep its connection and a file descriptor. The crate `tokio-io-timeout`
//! starts its timer anew after a timeout, so that TLS would wait for it again at the end.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream that fails with [`io::ErrorKind::TimedOut`] once a write, a flush or a shutdown made no progress
/// for `deadline`. It wraps the socket itself, below TLS, to see every byte.
#[derive(Debug)]
pub struct WriteDeadline<S> {
    stream: S,
    deadline: Duration,
    /// The timer, set only during a wait: the kernel takes most responses at once.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteDeadline<S> {
    /// Wraps `stream`; `deadline` starts again with every byte that the peer reads.
    pub const fn new(stream: S, deadline: Duration) -> Self {
        Self {
            stream,
            deadline,
            timer: None,
        }
    }

    /// Returns the socket itself.
    pub const fn get_ref(&self) -> &S {
        &self.stream
    }

    fn check<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            // After progress, or an error, the next wait has its full time.
            self.timer = None;
            return written;
        }
        let deadline = self.deadline;
        self.timer
            .get_or_insert_with(|| Box::pin(sleep(deadline)))
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteDeadline<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.check(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // A socket never waits here, but a buffer in front of it has to be written first.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.check(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut_down = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.check(shut_down, cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteDeadline<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter};

    use super::*;

    const BRIEF: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_given_up_and_stays_so() {
        let (stream, _client) = tokio::io::duplex(4);
        let mut stream = WriteDeadline::new(stream, BRIEF);
        let started = tokio::time::Instant::now();
        for _ in 0..2 {
            let error = stream.write_all(b"more than fits").await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(started.elapsed().as_secs(), BRIEF.as_secs());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_buffer_holds_is_not_waited_for_either() {
        for shuts_down in [false, true] {
            let (stream, _client) = tokio::io::duplex(4);
            let mut stream = WriteDeadline::new(BufWriter::new(stream), BRIEF);
            stream.write_all(b"more than fits").await.unwrap();
            let ended = if shuts_down {
                stream.shutdown().await
            } else {
                stream.flush().await
            };
            assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_is_waited_for() {
        let (stream, mut client) = tokio::io::duplex(4);
        let mut stream = WriteDeadline::new(stream, BRIEF);
        let writing = tokio::spawn(async move { stream.write_all(&[7; 40]).await });
        for _ in 0..10 {
            sleep(BRIEF * 9 / 10).await;
            client.read_exact(&mut [0; 4]).await.unwrap();
        }
        writing.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn silence_between_two_responses_counts_for_nothing() {
        let (stream, mut client) = tokio::io::duplex(4);
        let mut stream = WriteDeadline::new(stream, BRIEF);
        for _ in 0..3 {
            stream.write_all(b"four").await.unwrap();
            stream.flush().await.unwrap();
            sleep(BRIEF * 2).await;
            client.read_exact(&mut [0; 4]).await.unwrap();
        }
    }
}
