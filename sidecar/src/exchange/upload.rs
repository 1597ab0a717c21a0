//! A request on its way to the service.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use http::HeaderMap;
use pingora::protocols::Stream;
use pingora::{Error, ErrorType};
use postern_http::framing::body::{BodyReader, MalformedChunk};
use postern_http::framing::unread::may_be_request;

use super::transfer::{self, LAST_CHUNK, put_data};
use crate::config::live::Rules;
use crate::upstream::connections::http2::{MAX_SHARED_FIELDS, size_of};
use crate::upstream::service::{Http2Stream, Service};
use crate::upstream::service_request::rewritten_trailers;
use postern_http::request::http2;

/// Max bytes that wait for the service before the next read from the client.
const MAX_WAITING: usize = 32 * 1024;
/// Max length of a body that is received before its request is forwarded, and that can be sent again.
const MAX_HELD: usize = 64 * 1024;
/// Max length of a body after which the service's connection may stay.
const MAX_HARMLESS: usize = 16 * 1024;

/// The head and body of one request. A short body is kept for a retry.
pub(crate) struct Upload {
    rules: Arc<Rules>,
    /// The part that the client has not sent yet.
    pub(super) body: BodyReader,
    /// True if the body has no length.
    is_chunked: bool,
    /// True while the service gets chunks.
    in_chunks: bool,
    /// True over HTTP/2; `None` before the first connection.
    is_http_2: Option<bool>,
    /// True if the client sends a body.
    has_body: bool,
    bytes: BytesMut,
    /// True if more of the body is here than one turn takes.
    pub(super) has_more: bool,
    /// Length of the received part of the body.
    pub(super) received: u64,
    /// Number of written bytes of `bytes`.
    written: usize,
    /// True while TLS may hold written bytes, or a stream of HTTP/2 has not ended.
    needs_flush: bool,
    /// True while `bytes` holds all that was received of the request, so that it can be sent again.
    pub(super) is_repeatable: bool,
    /// True once the bytes of the client are those of a tunnel.
    pub(super) is_tunnel: bool,
    /// The trailers of HTTP/2, which a service of HTTP/1.x does not get.
    trailers: Option<HeaderMap>,
    /// The error after which the service takes no more bytes.
    failure: Option<io::Error>,
}

impl Upload {
    /// Creates an upload of `body`, under the rules of its request.
    pub(super) fn new(body: BodyReader, rules: &Arc<Rules>) -> Self {
        Self {
            rules: Arc::clone(rules),
            body,
            is_chunked: body.is_chunked(),
            in_chunks: false,
            is_http_2: None,
            has_body: !body.is_done(),
            bytes: BytesMut::new(),
            has_more: false,
            received: 0,
            written: 0,
            needs_flush: false,
            is_repeatable: true,
            is_tunnel: false,
            trailers: None,
            failure: None,
        }
    }

    /// Begins on a connection of HTTP/1.1, with the head of the first try; `head` gets true if no
    /// service could take the body for a request.
    pub(super) fn begin(&mut self, head: impl FnOnce(bool) -> BytesMut) {
        // A previous try has framed the body: the same bytes are sent again.
        if self.is_http_2.replace(false) == Some(false) {
            return;
        }
        // The body is not framed yet: it was received before the head was made, or tried over HTTP/2.
        let body = std::mem::take(&mut self.bytes);
        self.bytes = head(self.cannot_be_a_request(&body));
        // From here on each part is framed as it is received.
        self.in_chunks = self.is_chunked;
        put_data(&mut self.bytes, &body, self.in_chunks);
        self.end_chunks();
    }

    /// Returns true for a body that is no request, even if the service leaves it unread.
    fn cannot_be_a_request(&self, body: &[u8]) -> bool {
        let is_short = self.is_received() && !self.is_chunked && body.len() <= MAX_HARMLESS;
        is_short && !may_be_request(body)
    }

    /// Returns true if the body is stored with the framing of HTTP/1.1.
    pub(super) fn is_framed(&self) -> bool {
        self.has_body && self.is_http_2 == Some(false)
    }

    /// Begins on a stream of HTTP/2, which has its head.
    pub(super) fn begin_stream(&mut self) {
        // A try over HTTP/1.1 has left its head, and no body: a framed body is sent over HTTP/1.1 alone.
        if self.is_http_2.replace(true) == Some(false) {
            self.bytes.clear();
        }
        // The end of the stream has to be sent, even after an empty body.
        self.needs_flush = self.has_body;
    }

    /// Returns to the first byte, for another connection.
    pub(super) fn rewind(&mut self) {
        self.written = 0;
        self.needs_flush = false;
        self.failure = None;
    }

    /// Sends everything that the client sends from now on.
    pub(super) fn open_tunnel(&mut self) {
        self.is_tunnel = true;
        self.is_repeatable = false;
        self.body = BodyReader::UNTIL_CLOSE;
    }

    /// Ends a tunnel, whose client has closed its side.
    pub(crate) fn close_tunnel(&mut self) {
        self.body = BodyReader::NONE;
    }

    /// Returns true once the client has sent all of the request.
    pub(crate) const fn is_received(&self) -> bool {
        self.body.is_done()
    }

    /// Returns true once the service has all of the request.
    pub(super) fn is_sent(&self) -> bool {
        let is_flushed = self.waiting().is_empty() && !self.needs_flush;
        self.is_received() && is_flushed && self.failure.is_none()
    }

    /// Returns true once the service takes no more bytes.
    pub(super) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns true if nothing more is received before the request is forwarded.
    pub(super) fn is_held(&self) -> bool {
        self.is_received() || self.bytes.len() >= MAX_HELD
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting().len() < MAX_WAITING
    }

    fn waiting(&self) -> &[u8] {
        self.bytes.get(self.written..).unwrap_or_default()
    }

    /// Takes a part of the body.
    pub(crate) fn take_data(&mut self, data: &[u8]) {
        self.received += data.len() as u64;
        put_data(&mut self.bytes, data, self.in_chunks);
        // A long body is not kept: from now on written bytes are dropped, and no retry is possible.
        self.is_repeatable &= self.bytes.len() <= MAX_HELD;
    }

    /// Takes the end of the body of a stream.
    pub(crate) fn end(&mut self, trailers: Option<HeaderMap>) -> pingora::Result<()> {
        if let Some(trailers) = trailers {
            http2::check_values(&trailers)
                .map_err(|_| Error::new_down(ErrorType::InvalidHTTPHeader))?;
            // Longer trailers may end a shared connection, with the requests of others.
            if size_of(&trailers) > MAX_SHARED_FIELDS {
                let why = "trailers of more than 8 KiB";
                return Err(Error::explain(ErrorType::InvalidHTTPHeader, why).into_down());
            }
            self.trailers = Some(rewritten_trailers(&trailers, &self.rules.auth_policy));
        }
        // Before `end_chunks`, which writes the last chunk once the body is done.
        self.body = BodyReader::NONE;
        self.end_chunks();
        Ok(())
    }

    fn end_chunks(&mut self) {
        if self.body.is_done() && std::mem::take(&mut self.in_chunks) {
            self.bytes.extend_from_slice(LAST_CHUNK);
        }
    }

    /// Takes the body's part of `received`.
    pub(crate) fn take(&mut self, received: &mut BytesMut) -> Result<(), MalformedChunk> {
        // A copy, because the closure borrows all of the upload.
        let mut body = self.body;
        let taken = transfer::take_body(&mut body, received, |data| self.take_data(&data));
        self.body = body;
        self.has_more = !body.is_done() && !received.is_empty();
        self.end_chunks();
        taken
    }

    /// Writes the waiting bytes; returns true if any were written. An error ends the upload, not the
    /// exchange: the service may have sent a response before it stopped reading.
    pub(super) fn poll_send(&mut self, service: &mut Service, cx: &mut Context<'_>) -> bool {
        // The connection takes no more bytes; its response may still come.
        if self.has_failed() {
            return false;
        }
        let sent = match service {
            Service::Http1(stream) => self.poll_write(stream, cx),
            Service::Http2(stream) => self.poll_send_data(stream, cx),
        };
        // No byte is sent again, so written bytes are not kept.
        if !self.is_repeatable {
            self.bytes.advance(self.written);
            self.written = 0;
        }
        sent.unwrap_or_else(|error| {
            self.failure = Some(error);
            true
        })
    }

    fn poll_send_data(
        &mut self,
        stream: &mut Http2Stream,
        cx: &mut Context<'_>,
    ) -> io::Result<bool> {
        let mut moved = false;
        while !self.waiting().is_empty() {
            match stream.poll_send(self.waiting(), cx) {
                Poll::Ready(sent) => self.written += sent?,
                Poll::Pending => return Ok(moved),
            }
            moved = true;
        }
        // The end is a frame of its own: the data before it left when more could follow.
        if self.needs_flush && self.is_received() {
            // The trailers are cloned, because another try would send them again.
            stream.end(self.trailers.clone())?;
            self.needs_flush = false;
            moved = true;
        }
        Ok(moved)
    }

    fn poll_write(&mut self, service: &mut Stream, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut waiting = self.bytes.get(self.written..).unwrap_or_default();
        let moved = transfer::poll_write(service, &mut waiting, &mut self.needs_flush, cx);
        self.written = self.bytes.len() - waiting.len();
        moved
    }

    /// Takes the error that stopped the upload, if any.
    pub(super) fn failure(&mut self) -> Option<Box<Error>> {
        Some(Error::because(ErrorType::WriteError, "request", self.failure.take()?).into_up())
    }

    /// Returns true if the service has everything that the client has sent, and waits for more.
    pub(super) fn waits_for_client(&self) -> bool {
        !self.is_received() && self.waiting().is_empty() && self.failure.is_none()
    }
}
