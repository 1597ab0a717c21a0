//! Bytes that a client sends before its response: the next request, or an empty line after a body.
//! A reader that stops at the first of them would miss that the client closes the connection.
//! So one buffer of them is kept here until the next request is read.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::{PEEK_BYTES, take_from};
use crate::downstream::transport::ClientTransport;

/// Interval of polls for a close: behind unread bytes a close wakes no reader.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Pipelined {
    bytes: Bytes,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Pipelined {
    /// Reads the kept bytes, then from the transport.
    pub(super) fn poll_read(
        &mut self,
        transport: &mut ClientTransport,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if take_from(&mut self.bytes, buffer) {
            self.timer = None;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut transport.io).poll_read(cx, buffer)
    }

    /// Waits until the client has closed its side.
    pub(super) fn poll_left(
        &mut self,
        transport: &mut ClientTransport,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            // Not cleared: this runs at each poll.
            let mut buffer = [MaybeUninit::uninit(); PEEK_BYTES];
            let mut buffer = ReadBuf::uninit(&mut buffer);
            ready!(Pin::new(&mut transport.io).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.bytes = Bytes::copy_from_slice(buffer.filled());
        }
        loop {
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(sleep(CLOSE_POLL_INTERVAL)));
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
            if transport.has_left() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
