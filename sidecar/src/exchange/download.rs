//! A response on its way to the client.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use http::Version;
use pingora::protocols::Stream;
use pingora::{Error, ErrorType};
use postern_http::framing::head_search::HeadSearch;
use tokio_util::io::poll_read_buf;

use super::downstream::Outgoing;
use super::response_head::{self, ResponseHead, ResponseTo};
use super::transfer::{self, LAST_CHUNK, put_data};
use crate::upstream::MAX_HEAD_BYTES;
use crate::upstream::service::{Http2Stream, Service};

/// Max bytes that wait for the client before the next read from the service.
const MAX_WAITING: usize = 32 * 1024;
/// The first read; enough for most responses.
const FIRST_READ: usize = 4 * 1024;
const LATER_READ: usize = 16 * 1024;
/// For a response that fills [`LATER_READ`].
const LARGE_READ: usize = 64 * 1024;

/// The service's response to one request, with the interim responses before it.
#[derive(Default)]
pub(super) struct Download {
    received: BytesMut,
    /// The parts that wait for the client.
    pub(super) out: Outgoing,
    head_search: HeadSearch,
    /// The final head, once received.
    pub(super) head: Option<ResponseHead>,
    /// True after a read that filled its buffer.
    is_large: bool,
    /// Length of the body so far.
    pub(super) body_bytes: u64,
    /// True after the service has closed its side.
    is_closed: bool,
}

impl Download {
    /// Returns true if more should be read from the service: no head waits, and few bytes.
    pub(super) fn has_room(&self) -> bool {
        !self.out.is_whole && self.out.heads.is_empty() && self.out.bytes.len() < MAX_WAITING
    }

    /// Returns true if the service's connection is reusable: the response was read to its exact
    /// end.
    pub(super) fn leaves_connection_usable(&self) -> bool {
        self.head.is_some_and(|head| head.keep_upstream)
            && self.out.is_whole
            && self.received.is_empty()
            && !self.is_closed
    }

    /// Returns true if a part of a head has arrived. Interim responses are no part of the final one.
    pub(super) fn has_begun(&self) -> bool {
        self.head.is_some() || !self.received.is_empty()
    }

    /// Returns true if the service has sent more than its response on a connection that would stay.
    pub(super) fn has_surplus(&self) -> bool {
        self.head.is_some_and(|head| head.keep_upstream)
            && self.out.is_whole
            && !self.received.is_empty()
    }

    /// Returns true if more of the body is here than one turn takes.
    pub(super) fn has_more(&self) -> bool {
        self.head.is_some() && !self.out.is_whole && !self.received.is_empty()
    }

    /// Reads available bytes from the service, and turns them into the client's.
    ///
    /// # Errors
    /// [`ErrorType::ReadError`], [`ErrorType::ConnectionClosed`] or
    /// [`ErrorType::InvalidHTTPHeader`] of the service.
    pub(super) fn poll_receive(
        &mut self,
        service: &mut Service,
        request: ResponseTo<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<()>> {
        match service {
            Service::Http1(stream) => self.poll_read(stream, request, cx),
            Service::Http2(stream) => self.poll_receive_data(stream, request, cx),
        }
    }

    fn poll_receive_data(
        &mut self,
        stream: &mut Http2Stream,
        request: ResponseTo<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<()>> {
        let Some(head) = self.head else {
            let received = std::task::ready!(stream.poll_head(cx))?;
            let head = response_head::relay_http_2(&received, request, &mut self.out)?;
            if head.is_interim() {
                return Poll::Ready(Ok(()));
            }
            self.head = Some(head);
            // Nothing follows the head, so the end of the stream is not awaited.
            if head.body.is_done() {
                self.finish();
                return Poll::Ready(Ok(()));
            }
            // A response that ends with its head, as of a failed call, ends with its head for the client too.
            return if stream.has_ended() {
                self.poll_receive_data(stream, request, cx)
            } else {
                Poll::Ready(Ok(()))
            };
        };
        match std::task::ready!(stream.poll_data(cx))? {
            Some(data) => {
                self.body_bytes += data.len() as u64;
                put_data(&mut self.out.bytes, &data, head.sends_chunks);
                // With the end in the same turn, the last part for the client carries it.
                if stream.has_ended() {
                    return self.poll_receive_data(stream, request, cx);
                }
            }
            None => {
                let trailers = std::task::ready!(stream.poll_trailers(cx))?;
                // Trailers are dropped for a client of HTTP/1.x, as those of any chunked body.
                if request.version == Version::HTTP_2 {
                    self.out.trailers = trailers.map(response_head::trimmed);
                }
                self.finish();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read(
        &mut self,
        service: &mut Stream,
        request: ResponseTo<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<()>> {
        // The previous turn has left bytes of the body: reading on would let the buffer grow without a bound.
        if self.has_more() {
            return Poll::Ready(self.convert_body());
        }
        let size = match self.head {
            // Each read parses the head from its beginning again, so the reads grow with it.
            None => FIRST_READ.max(self.received.len()),
            Some(_) if self.is_large => LARGE_READ,
            Some(_) => LATER_READ,
        };
        self.received.reserve(size);
        let read = std::task::ready!(poll_read_buf(Pin::new(service), cx, &mut self.received));
        Poll::Ready(match read {
            Ok(0) => self.end(),
            Ok(count) => {
                self.is_large |= count >= LATER_READ;
                self.convert(request)
            }
            Err(error) => Err(Error::because(ErrorType::ReadError, "response", error).into_up()),
        })
    }

    fn convert(&mut self, request: ResponseTo<'_>) -> pingora::Result<()> {
        while self.head.is_none() {
            // A long head is parsed only once its end is here, or once it is too long, to reject it.
            let received = &self.received;
            if received.len() <= MAX_HEAD_BYTES
                && !self.head_search.may_be_whole(received, 2 * LATER_READ)
            {
                return Ok(());
            }
            let Some(head) = response_head::relay(&self.received, request, &mut self.out)? else {
                // The parser needs more bytes of the head.
                return Ok(());
            };
            // Another head may follow an interim one; its search begins anew.
            self.head_search = HeadSearch::default();
            self.received.advance(head.length);
            self.head = (!head.is_interim()).then_some(head);
        }
        self.convert_body()
    }

    /// Prepares for another try. Interim responses of the failed try may be half sent, so `out` stays.
    pub(super) fn restart(&mut self) {
        *self = Self {
            out: std::mem::take(&mut self.out),
            ..Self::default()
        };
    }

    fn convert_body(&mut self) -> pingora::Result<()> {
        let Some(head) = &mut self.head else {
            return Ok(());
        };
        let (out, length) = (&mut self.out.bytes, &mut self.body_bytes);
        let taken = transfer::take_body(&mut head.body, &mut self.received, |data| {
            *length += data.len() as u64;
            // The data is moved and not copied, where it needs no framing and no bytes precede it.
            if out.is_empty() && !head.sends_chunks {
                *out = data;
            } else {
                put_data(out, &data, head.sends_chunks);
            }
        });
        taken.map_err(|error| {
            Error::explain(ErrorType::InvalidHTTPHeader, error.to_string()).into_up()
        })?;
        if head.body.is_done() {
            self.finish();
        }
        Ok(())
    }

    /// Handles the close of the service's connection, which may be the end of the body.
    fn end(&mut self) -> pingora::Result<()> {
        self.is_closed = true;
        // Any other body was cut off, and the client has to notice it.
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
        self.out.is_whole = true;
        if self.head.is_some_and(|head| head.sends_chunks) {
            self.out.bytes.extend_from_slice(LAST_CHUNK);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;

    use super::*;

    #[test]
    fn another_try_does_not_cut_an_interim_response_off() {
        let mut download = Download {
            received: BytesMut::from("HTTP/1.1 2"),
            out: Outgoing {
                bytes: BytesMut::from("ly Hints\r\n\r\n"),
                ..Outgoing::default()
            },
            is_closed: true,
            ..Download::default()
        };
        download.restart();
        assert!(download.received.is_empty() && !download.is_closed);
        assert_eq!(download.out.bytes, "ly Hints\r\n\r\n");
    }

    #[tokio::test]
    async fn a_response_in_short_chunks_arrives_in_turns() {
        let count = 5000;
        let body = b"1\r\nx\r\n".repeat(count);
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (mut service, connection) = tokio::io::duplex(64 * 1024);
        service
            .write_all(&[head, &*body, LAST_CHUNK].concat())
            .await
            .unwrap();
        let mut connection = Service::Http1(Box::new(connection));
        let mut download = Download::default();
        let (mut before, mut has_waited) = (0, false);
        while !download.out.is_whole {
            poll_fn(|cx| download.poll_receive(&mut connection, ResponseTo::PLAIN, cx))
                .await
                .unwrap();
            let turn = usize::try_from(download.body_bytes).unwrap() - before;
            assert!(turn < 1000, "{turn}");
            before += turn;
            has_waited |= download.has_more();
        }
        assert!(has_waited);
        assert_eq!(before, count);
        assert!(download.out.bytes.ends_with(&[&*body, LAST_CHUNK].concat()));
        assert!(download.leaves_connection_usable());
    }
}
