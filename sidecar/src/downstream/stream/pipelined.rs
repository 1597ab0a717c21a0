//! What a client sends before it has its answer: its next request, or an empty line after a body.
//! Pingora would stop reading at the first such byte, and not notice any more that the client
//! leaves. So one buffer of it is kept here until the next request is read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::{PEEK_BYTES, give_out};
use crate::downstream::transport::ClientTransport;

/// A close behind unread bytes wakes no reader.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Early {
    bytes: Bytes,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Early {
    /// Reads what is kept, then from the transport.
    pub(super) fn poll_read(
        &mut self,
        transport: &mut ClientTransport,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if give_out(&mut self.bytes, buffer) {
            self.timer = None;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut transport.io).poll_read(cx, buffer)
    }

    /// Waits until the client has left.
    pub(super) fn poll_left(
        &mut self,
        transport: &mut ClientTransport,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            let mut buffer = [0; PEEK_BYTES];
            let mut buffer = ReadBuf::new(&mut buffer);
            ready!(Pin::new(&mut transport.io).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.bytes = Bytes::copy_from_slice(buffer.filled());
        }
        loop {
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(sleep(LOOK_AGAIN)));
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
            if transport.has_left() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
