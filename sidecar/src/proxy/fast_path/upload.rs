//! A request on its way to the service.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use contract::http::framing::Body;
use contract::http::framing::body::{BodyReader, MalformedChunk};
use pingora::protocols::Stream;
use pingora::{Error, ErrorType};
use tokio::io::AsyncWrite;

use super::chunks;

/// Bytes that wait for the service before more is read from the client.
const MAX_WAITING: usize = 32 * 1024;
/// A request up to this length can be sent again; Pingora keeps as much.
const MAX_REPEATABLE: usize = 64 * 1024;

/// The head and body of one request. Short ones are kept, to be sent again.
pub(super) struct Upload {
    body: BodyReader,
    in_chunks: bool,
    bytes: BytesMut,
    /// Bytes of `bytes` that were written.
    written: usize,
    /// `bytes` begins with the head.
    is_repeatable: bool,
    /// Why the service takes no more.
    failure: Option<io::Error>,
}

impl Upload {
    /// Begins with `head` as the service gets it.
    pub(super) fn new(head: BytesMut, body: Body) -> Self {
        Self {
            body: BodyReader::new(body),
            in_chunks: body == Body::Chunked,
            bytes: head,
            written: 0,
            is_repeatable: true,
            failure: None,
        }
    }

    /// Goes back to the first byte, for another connection.
    pub(super) fn rewind(&mut self) {
        self.written = 0;
        self.failure = None;
    }

    pub(super) const fn is_repeatable(&self) -> bool {
        self.is_repeatable
    }

    /// Returns true once the client has sent all of the request.
    pub(super) const fn is_received(&self) -> bool {
        self.body.is_done()
    }

    /// Returns true once the service has all of the request.
    pub(super) fn is_sent(&self) -> bool {
        self.is_received() && self.waiting().is_empty() && self.failure.is_none()
    }

    /// Returns the reader of what the client has not sent yet.
    pub(super) fn into_rest(self) -> BodyReader {
        self.body
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting().len() < MAX_WAITING
    }

    fn waiting(&self) -> &[u8] {
        self.bytes.get(self.written..).unwrap_or_default()
    }

    /// Takes the body's part of `received`.
    pub(super) fn take(&mut self, received: &mut BytesMut) -> Result<(), MalformedChunk> {
        while !self.body.is_done() && !received.is_empty() {
            let piece = self.body.next_piece(received)?;
            received.advance(piece.skipped);
            let data = received.split_to(piece.data);
            chunks::put(&mut self.bytes, &data, self.in_chunks);
        }
        if self.body.is_done() && self.in_chunks {
            self.in_chunks = false;
            self.bytes.extend_from_slice(chunks::LAST);
        }
        if self.bytes.len() > MAX_REPEATABLE {
            self.is_repeatable = false;
        }
        Ok(())
    }

    /// Writes what waits; true where that moved anything.
    pub(super) fn poll_send(
        &mut self,
        service: &mut Stream,
        cx: &mut Context<'_>,
    ) -> io::Result<bool> {
        let mut moved = false;
        while !self.waiting().is_empty() && self.failure.is_none() {
            match Pin::new(&mut *service)
                .poll_write(cx, self.bytes.get(self.written..).unwrap_or_default())
            {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => {
                    self.written += written?;
                    moved = true;
                }
                Poll::Pending => return Ok(moved),
            }
        }
        if moved {
            // Only TLS has anything left to flush, and it goes on with the next write or read.
            let _ = Pin::new(service).poll_flush(cx)?;
        }
        if !self.is_repeatable {
            self.bytes.advance(self.written);
            self.written = 0;
        }
        Ok(moved)
    }

    /// Sends nothing more, because of `error`.
    pub(super) fn give_up(&mut self, error: io::Error) {
        self.failure = Some(error);
    }

    /// Takes the error that ended it, if there was one.
    pub(super) fn failure(&mut self) -> Option<Box<Error>> {
        let error = self.failure.take()?;
        Some(Error::because(ErrorType::WriteError, "request", error).into_up())
    }

    /// Returns true where the service has all that the client has sent, and waits for more.
    pub(super) fn waits_for_client(&self) -> bool {
        !self.is_received() && self.waiting().is_empty() && self.failure.is_none()
    }
}
