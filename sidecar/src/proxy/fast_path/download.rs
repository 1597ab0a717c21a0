//! A response on its way to the client.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use pingora::protocols::Stream;
use pingora::{Error, ErrorType};
use tokio::io::AsyncWrite;
use tokio_util::io::poll_read_buf;

use super::chunks;
use super::response_head::{self, ResponseHead, ResponseTo};
use crate::downstream::stream::ClientStream;

/// Bytes that wait for the client before more is read from the service.
const MAX_WAITING: usize = 32 * 1024;
/// Most responses fit.
const FIRST_READ: usize = 4 * 1024;
const LATER_READ: usize = 16 * 1024;

/// One response, with the interim ones before it.
#[derive(Default)]
pub(super) struct Download {
    received: BytesMut,
    waiting: BytesMut,
    head: Option<ResponseHead>,
    /// The last byte came from the service.
    is_whole: bool,
    needs_flush: bool,
    /// The service has closed its side.
    is_closed: bool,
}

impl Download {
    /// Returns the final head, once it came.
    pub(super) const fn head(&self) -> Option<&ResponseHead> {
        self.head.as_ref()
    }

    /// Returns true once the client has been sent all of it.
    pub(super) fn is_sent(&self) -> bool {
        self.is_whole && self.waiting.is_empty() && !self.needs_flush
    }

    /// Returns true where more is to be read from the service.
    pub(super) fn has_room(&self) -> bool {
        !self.is_whole && self.waiting.len() < MAX_WAITING
    }

    /// Returns true where the service's connection can carry another request: the response was read to its
    /// exact end.
    pub(super) fn leaves_connection_usable(&self) -> bool {
        let keep = self.head.is_some_and(|head| head.keep_upstream);
        keep && self.is_whole && self.received.is_empty() && !self.is_closed
    }

    /// Reads what has come from the service, and turns it into what the client gets.
    ///
    /// # Errors
    /// [`ErrorType::ReadError`], [`ErrorType::ConnectionClosed`] or [`ErrorType::InvalidHTTPHeader`] of the
    /// service.
    pub(super) fn poll_receive(
        &mut self,
        service: &mut Stream,
        request: ResponseTo<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<()>> {
        let size = match self.head {
            // A head is read from its beginning each time: a long one in ever larger parts.
            None => FIRST_READ.max(self.received.len()),
            Some(_) => LATER_READ,
        };
        self.received.reserve(size);
        let read = std::task::ready!(poll_read_buf(Pin::new(service), cx, &mut self.received));
        Poll::Ready(match read {
            Ok(0) => self.end(),
            Ok(_) => self.convert(request),
            Err(error) => Err(Error::because(ErrorType::ReadError, "response", error).into_up()),
        })
    }

    fn convert(&mut self, request: ResponseTo<'_>) -> pingora::Result<()> {
        while self.head.is_none() {
            let relayed = response_head::relay(&self.received, request, &mut self.waiting)?;
            let Some(head) = relayed else {
                return Ok(());
            };
            self.received.advance(head.length);
            self.head = (!head.is_interim()).then_some(head);
        }
        self.convert_body()
    }

    fn convert_body(&mut self) -> pingora::Result<()> {
        let Some(head) = &mut self.head else {
            return Ok(());
        };
        while !head.body.is_done() && !self.received.is_empty() {
            let piece = head.body.next_piece(&self.received);
            let piece = piece.map_err(|_| Error::new_up(ErrorType::InvalidHTTPHeader))?;
            self.received.advance(piece.skipped);
            let data = self.received.split_to(piece.data);
            if self.waiting.is_empty() && !head.sends_chunks {
                self.waiting = data;
            } else {
                chunks::put(&mut self.waiting, &data, head.sends_chunks);
            }
        }
        if head.body.is_done() {
            self.finish();
        }
        Ok(())
    }

    /// Takes the end of the service's connection, which may be the end of the body.
    fn end(&mut self) -> pingora::Result<()> {
        self.is_closed = true;
        if !self
            .head
            .is_some_and(|head| head.body.ends_with_connection())
        {
            return Err(Error::new_up(ErrorType::ConnectionClosed));
        }
        self.finish();
        Ok(())
    }

    fn finish(&mut self) {
        self.is_whole = true;
        if self.head.is_some_and(|head| head.sends_chunks) {
            self.waiting.extend_from_slice(chunks::LAST);
        }
    }

    /// Writes what waits; true where that moved anything.
    pub(super) fn poll_send(
        &mut self,
        client: &mut ClientStream,
        cx: &mut Context<'_>,
    ) -> io::Result<bool> {
        let mut moved = false;
        while !self.waiting.is_empty() {
            match Pin::new(&mut *client).poll_write(cx, &self.waiting) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => {
                    self.waiting.advance(written?);
                    self.needs_flush = true;
                    moved = true;
                }
                Poll::Pending => return Ok(moved),
            }
        }
        if self.needs_flush && Pin::new(client).poll_flush(cx)?.is_ready() {
            self.needs_flush = false;
            moved = true;
        }
        Ok(moved)
    }
}
