//! A connection to the service, in the version of HTTP that it speaks.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http::HeaderMap;
use pingora::connectors::http::v2::Connector;
use pingora::protocols::Stream;
use pingora::protocols::http::v2::client::Http2Session;
use pingora::upstreams::peer::{HttpPeer, Peer};
use pingora::{Error, ErrorType, RetryType};
use pingora_http::{RequestHeader, ResponseHeader};

/// Code of a reset before any processing (RFC 9113 §7).
const NOT_PROCESSED: u32 = 7;

/// The way of one request to the service.
pub(super) enum Service {
    /// A connection that no other request uses.
    Http1(Stream),
    /// A stream of a connection that many requests share.
    Http2(Box<Http2Stream>),
}

impl Service {
    /// Ends the request, for the reason that the client gave, if any.
    pub(super) fn end(&mut self, reason: Option<Reason>) {
        if let (Self::Http2(stream), Some(reason)) = (self, reason) {
            stream.reset(reason);
        }
    }
}

/// A stream of HTTP/2, which goes back to its connection when it is dropped; unfinished, it is
/// reset.
pub(super) struct Http2Stream {
    /// `None` once dropped.
    session: Option<Http2Session>,
    /// The sender of the body.
    body: Option<SendStream<Bytes>>,
    connector: Arc<Connector>,
    peer: Box<HttpPeer>,
}

impl Http2Stream {
    pub(super) fn new(
        session: Http2Session,
        connector: Arc<Connector>,
        peer: Box<HttpPeer>,
    ) -> Self {
        Self {
            session: Some(session),
            body: None,
            connector,
            peer,
        }
    }

    /// Returns the scheme of requests.
    pub(super) fn scheme(&self) -> &'static str {
        if self.peer.is_tls() { "https" } else { "http" }
    }

    fn session(&mut self) -> pingora::Result<&mut Http2Session> {
        let session = self.session.as_mut();
        session.ok_or_else(|| Error::new_in(ErrorType::InternalError))
    }

    /// Sends the head of a request, which is the whole of it without a body.
    pub(super) fn begin(&mut self, head: RequestHeader, is_whole: bool) -> pingora::Result<()> {
        let session = self.session()?;
        let sent = session.write_request_header(Box::new(head), is_whole);
        sent.map_err(|error| error.into_up())?;
        self.body = session.take_request_body_writer();
        Ok(())
    }

    /// Sends as much of the body as the windows of the service allow.
    pub(super) fn poll_send(
        &mut self,
        data: &[u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let body = self.body.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        body.reserve_capacity(data.len());
        while body.capacity() == 0 {
            match ready!(body.poll_capacity(cx)) {
                Some(granted) => granted.map_err(io::Error::other)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            };
        }
        let part = data.get(..body.capacity()).unwrap_or(data);
        let sent = body.send_data(Bytes::copy_from_slice(part), false);
        Poll::Ready(sent.map(|()| part.len()).map_err(io::Error::other))
    }

    /// Ends the request.
    pub(super) fn end(&mut self, trailers: Option<HeaderMap>) -> io::Result<()> {
        let body = self.body.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let ended = match trailers {
            Some(trailers) => body.send_trailers(trailers),
            None => body.send_data(Bytes::new(), true),
        };
        ended.map_err(io::Error::other)
    }

    /// Ends the stream, for the reason that the client gave.
    fn reset(&mut self, reason: Reason) {
        if let Some(body) = &mut self.body {
            body.send_reset(reason);
        }
    }

    /// Reads the head of the response.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<&ResponseHeader>> {
        let session = self.session()?;
        ready!(session.poll_read_response_header(cx)).map_err(before_response)?;
        let head = session.response_header();
        Poll::Ready(head.ok_or_else(|| Error::new_up(ErrorType::H2Error)))
    }

    /// Reads a part of the body; `None` after its end.
    pub(super) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<Option<Bytes>>> {
        let read = ready!(self.session()?.poll_read_response_body(cx)).transpose();
        Poll::Ready(
            read.map_err(|error| Error::because(ErrorType::ReadError, "response", error).into_up()),
        )
    }
}

impl Http2Stream {
    /// Returns true once the rest of the response is here: its last part, or an error.
    pub(super) fn has_ended(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(Http2Session::response_finished)
    }

    /// Reads the trailers, after the body.
    pub(super) fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<Option<HeaderMap>>> {
        // It keeps no state between two polls.
        let trailers = pin!(self.session()?.read_trailers());
        trailers.poll(cx).map_err(|error| error.into_up())
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.body = None;
        if let Some(session) = self.session.take() {
            let idle_timeout = self.peer.idle_timeout();
            self.connector
                .release_http_session(session, &*self.peer, idle_timeout);
        }
    }
}

/// Returns the error of a stream without a response, which says if the service has processed the
/// request (RFC 9113 §8.7).
fn before_response(error: h2::Error) -> Box<Error> {
    let is_unprocessed = error.is_remote()
        && (error.is_go_away() && error.reason() == Some(Reason::NO_ERROR)
            || error.is_reset() && error.reason().map(u32::from) == Some(NOT_PROCESSED));
    let is_malformed =
        error.is_go_away() && error.is_library() && error.reason() == Some(Reason::PROTOCOL_ERROR);
    let kind = match () {
        () if error.is_io() => ErrorType::ReadError,
        () if is_malformed => ErrorType::InvalidH2,
        () => ErrorType::H2Error,
    };
    let mut error = Error::because(kind, "response", error).into_up();
    if is_unprocessed {
        error.retry = RetryType::Decided(true);
    }
    error
}
