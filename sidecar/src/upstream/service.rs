//! A connection to the service, in the version of HTTP that it speaks.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use pingora::protocols::Stream;
use pingora::{Error, ErrorType};
use tokio::time::{Instant, timeout_at};

use super::bodies::{Arrived, poll_room};
use super::connections::http2::Slot;
use super::errors::ends_connection;

/// Code of a reset before any processing (RFC 9113 §7).
const NOT_PROCESSED: u32 = 7;
/// The time that a service has to accept a request before a reset may follow: `h2` ends a connection for
/// 21 requests that were reset before.
const ACCEPTANCE: Duration = Duration::from_millis(250);

/// The way of one request to the service.
pub(crate) enum Service {
    /// A connection that no other request uses.
    Http1(Stream),
    /// A stream of a connection that many requests share.
    Http2(Box<Http2Stream>),
}

impl Service {
    /// Ends an unfinished request, for the reason that the client gave, if any.
    pub(crate) async fn end(&mut self, reason: Option<Reason>) {
        let Self::Http2(stream) = self else {
            return;
        };
        stream.until_accepted().await;
        if let Some(reason) = reason {
            stream.request.send_reset(reason);
        }
    }

    /// Takes in a part of the response for which the client has no room yet. With HTTP/1.x the socket holds
    /// it.
    pub(crate) fn take_in(&mut self, cx: &mut Context<'_>) {
        if let Self::Http2(stream) = self {
            stream.take_in(cx);
        }
    }
}

/// A stream of HTTP/2; dropped unfinished, it is reset.
pub(crate) struct Http2Stream {
    slot: Slot,
    began: Instant,
    request: SendStream<Bytes>,
    /// True once the whole request is sent.
    is_sent: bool,
    /// Set while the body waits for the service.
    stalled: Option<Arc<()>>,
    response: ResponseFuture,
    /// The body, which the final head brings.
    body: Option<RecvStream>,
    /// The parts of the body that wait for the client.
    arrived: Arrived,
}

/// The head that begins a stream of HTTP/2.
pub(crate) struct StreamHead {
    pub(crate) request: Request<()>,
    /// True if no body follows.
    pub(crate) is_whole: bool,
}

impl Http2Stream {
    /// Sends the head of a request.
    pub(super) fn begin(mut slot: Slot, head: StreamHead) -> pingora::Result<Self> {
        let is_whole = head.is_whole;
        let (response, request) = match slot.requests.send_request(head.request, is_whole) {
            Ok(sent) => sent,
            Err(error) => {
                let mut error = Error::because(ErrorType::H2Error, "request", error).into_up();
                // The library has sent nothing, so a retry is safe.
                error.set_retry(true);
                return Err(error);
            }
        };
        let began = Instant::now();
        slot.usage.begun(began.into_std());
        Ok(Self {
            slot,
            began,
            request,
            is_sent: is_whole,
            stalled: None,
            response,
            body: None,
            arrived: Arrived::default(),
        })
    }

    /// Sends as much of the body as the windows of the service allow.
    pub(crate) fn poll_send(
        &mut self,
        data: &[u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let room = poll_room(&mut self.request, data.len(), cx);
        // `stalled` is held while the windows are full: the pool then puts no other request after this body.
        self.stalled = if room.is_pending() {
            Some(Arc::clone(&self.slot.usage.stalled))
        } else {
            None
        };
        let room = ready!(room).map_err(io::Error::other)?;
        let part = data.get(..room).unwrap_or(data);
        match self.request.send_data(Bytes::copy_from_slice(part), false) {
            Ok(()) => Poll::Ready(Ok(part.len())),
            Err(error) => Poll::Ready(Err(io::Error::other(error))),
        }
    }

    /// Ends the request.
    pub(crate) fn end(&mut self, trailers: Option<HeaderMap>) -> io::Result<()> {
        let ended = match trailers {
            Some(trailers) => self.request.send_trailers(trailers),
            None => self.request.send_data(Bytes::new(), true),
        };
        self.is_sent = ended.is_ok();
        ended.map_err(io::Error::other)
    }

    /// Waits until the service has accepted the request: it responds, or [`ACCEPTANCE`] has passed.
    async fn until_accepted(&mut self) {
        if self.body.is_none() {
            let _ = timeout_at(self.began + ACCEPTANCE, poll_fn(|cx| self.poll_head(cx))).await;
        }
    }

    /// Reads the next head: of an interim response, or the final one.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<Response<()>>> {
        if let Poll::Ready(Some(interim)) = self.response.poll_informational(cx) {
            self.slot.usage.heard();
            return Poll::Ready(interim.map_err(before_response));
        }
        let (head, body) = ready!(Pin::new(&mut self.response).poll(cx))
            .map_err(before_response)?
            .into_parts();
        self.slot.usage.heard();
        self.body = Some(body);
        Poll::Ready(Ok(Response::from_parts(head, ())))
    }

    /// Reads a part of the body; `None` after its end.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<Option<Bytes>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(Ok(None));
        };
        // Parts that have waited for the client say nothing about the service now.
        let is_new = self.arrived.is_empty();
        let data = ready!(self.arrived.poll_next(body, cx))
            .transpose()
            .map_err(within_response)?;
        if is_new && data.is_some() {
            self.slot.usage.heard();
        }
        Poll::Ready(Ok(data))
    }

    /// Takes frames out of the library. Interim heads, which no window bounds, are dropped.
    fn take_in(&mut self, cx: &mut Context<'_>) {
        let Some(body) = &mut self.body else {
            while let Poll::Ready(Some(Ok(_))) = self.response.poll_informational(cx) {}
            return;
        };
        if self.arrived.take_in(body, cx) {
            self.slot.usage.heard();
        }
    }

    /// Returns true once the rest of the response was read: its last part, or an error.
    pub(crate) fn has_ended(&self) -> bool {
        match &self.body {
            Some(body) => body.is_end_stream() && self.arrived.is_empty(),
            None => false,
        }
    }

    /// Reads the trailers, after the body.
    pub(crate) fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<Option<HeaderMap>>> {
        match &mut self.body {
            Some(body) => body.poll_trailers(cx).map_err(within_response),
            None => Poll::Ready(Ok(None)),
        }
    }
}

impl Drop for Http2Stream {
    /// Counts the reset with which the library ends a stream that is not at its end.
    fn drop(&mut self) {
        if !(self.is_sent && self.has_ended()) {
            self.slot.usage.resets.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn within_response(error: h2::Error) -> Box<Error> {
    Error::because(ErrorType::ReadError, "response", error).into_up()
}

/// Returns the error of a stream without a response; a retry is set if the service has not processed the
/// request (RFC 9113 §8.7).
fn before_response(error: h2::Error) -> Box<Error> {
    let is_unprocessed = error.is_remote()
        && (error.is_go_away() && error.reason() == Some(Reason::NO_ERROR)
            || error.is_reset() && error.reason().map(u32::from) == Some(NOT_PROCESSED));
    let kind = if error.is_io() {
        ErrorType::ReadError
    } else if ends_connection(&error) {
        ErrorType::InvalidH2
    } else {
        ErrorType::H2Error
    };
    let mut error = Error::because(kind, "response", error).into_up();
    if is_unprocessed {
        error.set_retry(true);
    }
    error
}
