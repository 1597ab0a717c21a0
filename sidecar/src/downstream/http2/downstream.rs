//! A client of HTTP/2: one stream of its connection.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderValue, Response, header};
use pingora::protocols::http::date::get_cached_date;
use pingora::{Error, ErrorType};
use postern_http::framing::body::BodyReader;
use tokio::time::Instant;

use super::body::RequestBody;
use super::unsent::Unsent;
use crate::exchange::downstream::{Downstream, Outgoing, Timer};
use crate::exchange::upload::Upload;
use crate::upstream::bodies::poll_room;
use postern_http::request::kind::GRPC_STATUS;

/// Parts of one body that the library may queue: as many as the windows take of full parts. Each part may
/// keep a whole buffer, so that many small parts would hold far more memory than the window allows.
const MAX_UNSENT_PARTS: usize = 8;

/// A stream of a client. Dropped before the response ends, it is reset.
pub(super) struct Http2Downstream {
    body: Arc<RequestBody>,
    response: SendResponse<Bytes>,
    /// The stream of the body, which the final head begins.
    stream: Option<SendStream<Bytes>>,
    has_ended: bool,
    /// Counts the queued parts of a service's response; `None` for the sidecar's own, which are short.
    unsent: Option<Arc<Unsent>>,
    timer: Timer,
    /// The time that the client has for the next part of the response.
    write_timeout: Option<Duration>,
    stalled: Option<Instant>,
    stall_timer: Timer,
}

impl Http2Downstream {
    pub(super) fn new(
        body: Arc<RequestBody>,
        response: SendResponse<Bytes>,
        write_timeout: Option<Duration>,
    ) -> Self {
        Self {
            body,
            response,
            stream: None,
            has_ended: false,
            unsent: Some(Arc::default()),
            timer: Timer::default(),
            write_timeout,
            stalled: None,
            stall_timer: Timer::default(),
        }
    }

    /// Sends the heads, each once the interim head before it has left: no window bounds heads. The part that
    /// is queued after the last head shows when it has left, so a response ends with its head only if it is
    /// a short one of the sidecar or a failed call.
    fn poll_send_heads(
        &mut self,
        response: &mut Outgoing,
        cx: &mut Context<'_>,
    ) -> Result<bool, h2::Error> {
        let is_all = response.ends_here();
        let mut moved = false;
        while !response.heads.is_empty()
            && has_fewer(self.unsent.as_ref(), 1, cx)
            && let Some(mut head) = response.heads.pop_front()
        {
            moved = true;
            if head.status().is_informational() {
                if let Some(unsent) = &self.unsent {
                    count_head(&mut head, unsent);
                }
                self.response.send_informational(head)?;
                continue;
            }
            let is_short = self.unsent.is_none() || head.headers().contains_key(GRPC_STATUS);
            self.has_ended = is_all && is_short;
            self.stream = Some(self.response.send_response(head, self.has_ended)?);
            response.needs_flush = true;
        }
        Ok(moved)
    }

    /// Queues what the windows of the client allow.
    fn poll_send_body(
        &mut self,
        response: &mut Outgoing,
        cx: &mut Context<'_>,
    ) -> Result<bool, h2::Error> {
        let stream = match &mut self.stream {
            Some(stream) if !self.has_ended => stream,
            _ => return Ok(false),
        };
        let unsent = self.unsent.as_ref();
        let counted = |part| match unsent {
            Some(unsent) => unsent.counting(part),
            None => part,
        };
        let mut moved = false;
        while !response.bytes.is_empty() {
            // Queued parts take memory until the client reads: wait until some have left.
            if !has_fewer(unsent, MAX_UNSENT_PARTS, cx) {
                return Ok(moved);
            }
            let Poll::Ready(length) = poll_room(stream, response.bytes.len(), cx) else {
                return Ok(moved);
            };
            let part = response.bytes.split_to(length?).freeze();
            // The last part carries the end, unless trailers follow.
            self.has_ended = response.ends_here();
            stream.send_data(counted(part), self.has_ended)?;
            moved = true;
        }
        // The end was unknown when the last part was queued, so it needs a frame of its own.
        if response.is_whole && !self.has_ended {
            match response.trailers.take() {
                Some(trailers) => stream.send_trailers(trailers)?,
                None => stream.send_data(counted(Bytes::new()), true)?,
            }
            self.has_ended = true;
            moved = true;
        }
        Ok(moved)
    }

    /// Queues the waiting parts of a response, and notes which queued parts have left; returns true if any part
    /// moved.
    fn poll_queue(
        &mut self,
        response: &mut Outgoing,
        cx: &mut Context<'_>,
    ) -> Result<bool, h2::Error> {
        let mut moved = self.poll_send_heads(response, cx)?;
        moved |= self.poll_send_body(response, cx)?;
        // Polled until no part is queued, or the next part that leaves wakes the task.
        while self.has_ended && response.needs_flush {
            // Read once: the library sends parts in another task.
            let parts = self.unsent.as_ref().map_or(0, |unsent| unsent.parts());
            match &self.unsent {
                Some(unsent) if parts > 0 => {
                    if unsent.poll_fewer(parts, cx).is_pending() {
                        break;
                    }
                }
                _ => response.needs_flush = false,
            }
            moved = true;
        }
        Ok(moved)
    }
}

impl Downstream for Http2Downstream {
    fn poll_receive(
        &mut self,
        upload: &mut Upload,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<()>> {
        match ready!(self.body.poll_data(cx)) {
            Some(Ok(data)) => {
                upload.take_data(&data);
                Poll::Ready(Ok(()))
            }
            Some(Err(error)) => Poll::Ready(Err(broken(error))),
            None => {
                let trailers = ready!(self.body.poll_trailers(cx)).map_err(broken)?;
                Poll::Ready(upload.end(trailers))
            }
        }
    }

    fn poll_left(&mut self, _: bool, cx: &mut Context<'_>) -> Poll<Box<Error>> {
        let reset = match &mut self.stream {
            Some(stream) => stream.poll_reset(cx),
            None => self.response.poll_reset(cx),
        };
        Poll::Ready(broken(match ready!(reset) {
            Ok(reason) => reason.into(),
            Err(error) => error,
        }))
    }

    fn poll_send(
        &mut self,
        response: &mut Outgoing,
        cx: &mut Context<'_>,
    ) -> pingora::Result<bool> {
        let moved = self.poll_queue(response, cx).map_err(broken)?;
        // Queued parts count too: a client can take its window back and read no more.
        let is_waiting = !response.heads.is_empty()
            || !response.bytes.is_empty()
            || (self.has_ended && response.needs_flush);
        if moved || !is_waiting {
            self.stalled = None;
        } else if let Some(timeout) = self.write_timeout {
            // The timeout begins with the last part that the client has taken.
            let until = *self.stalled.get_or_insert_with(|| Instant::now() + timeout);
            if self.stall_timer.poll_until(cx, until).is_ready() {
                return Err(Error::new_down(ErrorType::WriteTimedout));
            }
        }
        Ok(moved)
    }

    async fn send(&mut self, response: &mut Outgoing) -> bool {
        self.unsent = None;
        poll_fn(|cx| {
            while let Ok(moved) = self.poll_send(response, cx) {
                if response.is_sent() {
                    return Poll::Ready(true);
                }
                // Without progress the client may reset the stream next.
                if !moved {
                    return self.poll_left(true, cx).map(|_| false);
                }
            }
            Poll::Ready(false)
        })
        .await
    }

    async fn abandon(&mut self, _: &mut Outgoing, reason: Option<Reason>) {
        // Clients take NO_ERROR as the end of the response, and PROTOCOL_ERROR as their own fault.
        self.response.send_reset(match reason {
            None | Some(Reason::NO_ERROR | Reason::PROTOCOL_ERROR) => Reason::INTERNAL_ERROR,
            Some(reason) => reason,
        });
    }

    /// Leaves it to the library: dropped, the stream is reset without an error.
    async fn discard(&mut self, _: BodyReader) -> bool {
        true
    }

    fn timer(&mut self) -> &mut Timer {
        &mut self.timer
    }
}

impl Drop for Http2Downstream {
    /// Takes back queued parts: once the last part is queued, the library does not reset a stream by itself.
    fn drop(&mut self) {
        match &self.unsent {
            Some(unsent) if unsent.parts() > 0 => self.response.send_reset(Reason::CANCEL),
            _ => {}
        }
    }
}

/// Waits until fewer than `parts` are queued; parts of the sidecar's own response are not counted.
fn has_fewer(unsent: Option<&Arc<Unsent>>, parts: usize, cx: &mut Context<'_>) -> bool {
    match unsent {
        Some(unsent) => unsent.poll_fewer(parts, cx).is_ready(),
        None => true,
    }
}

/// Counts an interim head until it has left, by the value of its date: the library drops a head with its
/// values, and any response may have a date (RFC 9110 §6.6.1).
fn count_head(head: &mut Response<()>, unsent: &Arc<Unsent>) {
    let date = head
        .headers_mut()
        .remove(header::DATE)
        .unwrap_or_else(get_cached_date);
    let date = unsent.counting(Bytes::copy_from_slice(date.as_bytes()));
    // The bytes are those of a valid value: the conversion cannot fail.
    if let Ok(mut date) = HeaderValue::from_maybe_shared(date) {
        // The table of the compression keeps no sensitive value, and would keep any other.
        date.set_sensitive(true);
        head.headers_mut().insert(header::DATE, date);
    }
}

fn broken(error: h2::Error) -> Box<Error> {
    Error::because(ErrorType::H2Error, "stream of the client", error).into_down()
}
