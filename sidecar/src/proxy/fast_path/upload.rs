//! A request on its way to the service.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use pingora::protocols::Stream;
use pingora::{Error, ErrorType};
use tokio::io::AsyncWrite;
use wire::http::framing::Body;
use wire::http::framing::body::{BodyReader, MalformedChunk};

use super::chunks;

/// Max bytes that wait for the service before the next read from the client.
const MAX_WAITING: usize = 32 * 1024;
/// Max length of a request that can be sent again; same as Pingora's.
const MAX_REPEATABLE: usize = 64 * 1024;

/// The head and body of one request. Short ones are kept for a retry.
pub(super) struct Upload {
    body: BodyReader,
    in_chunks: bool,
    bytes: BytesMut,
    /// Number of written bytes of `bytes`.
    written: usize,
    /// True while TLS may hold written bytes.
    needs_flush: bool,
    /// True if `bytes` begins with the head.
    is_repeatable: bool,
    /// The error after which the service takes no more bytes.
    failure: Option<io::Error>,
}

impl Upload {
    /// Creates an upload that begins with the service's `head`.
    pub(super) fn new(head: BytesMut, body: Body) -> Self {
        Self {
            body: BodyReader::new(body),
            in_chunks: body == Body::Chunked,
            bytes: head,
            written: 0,
            needs_flush: false,
            is_repeatable: true,
            failure: None,
        }
    }

    /// Returns to the first byte, for another connection.
    pub(super) fn rewind(&mut self) {
        self.written = 0;
        self.needs_flush = false;
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
        let is_flushed = self.waiting().is_empty() && !self.needs_flush;
        self.is_received() && is_flushed && self.failure.is_none()
    }

    /// Returns true once nothing more can be sent.
    pub(super) fn is_over(&self) -> bool {
        self.is_sent() || self.has_failed()
    }

    /// Returns true once the service takes no more bytes.
    pub(super) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns the reader for the unreceived rest of the body.
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

    /// Writes the waiting bytes; returns true if any were written.
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
        self.needs_flush |= moved;
        let may_flush = self.needs_flush && self.failure.is_none();
        if may_flush && Pin::new(service).poll_flush(cx)?.is_ready() {
            self.needs_flush = false;
        }
        if !self.is_repeatable {
            self.bytes.advance(self.written);
            self.written = 0;
        }
        Ok(moved)
    }

    /// Stops sending, because of `error`.
    pub(super) fn give_up(&mut self, error: io::Error) {
        self.failure = Some(error);
    }

    /// Takes the error that stopped the upload, if any.
    pub(super) fn failure(&mut self) -> Option<Box<Error>> {
        let error = self.failure.take()?;
        Some(Error::because(ErrorType::WriteError, "request", error).into_up())
    }

    /// Returns true if the service has everything that the client has sent, and waits for more.
    pub(super) fn waits_for_client(&self) -> bool {
        !self.is_received() && self.waiting().is_empty() && self.failure.is_none()
    }
}
