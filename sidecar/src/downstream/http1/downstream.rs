//! A client of HTTP/1.x: its transport, and the bytes that it has sent.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use h2::Reason;
use pingora::{Error, ErrorType};
use postern_contract::rejection::Rejection;
use postern_http::framing::body::BodyReader;
use postern_transport::drain::{DrainWatcher, Phase};
use postern_transport::net::connection_slots::Activity;
use postern_transport::net::listener::CLIENT_IDLE;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::task::yield_now;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::io::poll_read_buf;

use crate::downstream::transport::{self, ClientTransport, Closed, closed_by_client};
use crate::exchange::Exchanges;
use crate::exchange::downstream::{Downstream, LINGER_TIMEOUT, Outgoing, Timer};
use crate::exchange::record::UnparsedResponse;
use crate::exchange::response::raw_http1_response;
use crate::exchange::transfer;
use crate::exchange::upload::Upload;

/// Bytes of one read of a head; most heads arrive in one.
pub(super) const HEAD_READ: usize = 4 * 1024;
const BODY_READ: usize = 16 * 1024;
/// Interval of polls for a close: after unread bytes a close wakes no reader.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A client's connection.
pub(crate) struct Http1Downstream {
    pub(crate) transport: ClientTransport,
    pub(crate) activity: Activity,
    /// Received bytes that were not used yet.
    pub(crate) received: BytesMut,
    timer: Timer,
    head_timeout: Duration,
    /// The time of the first byte of the present head.
    head_began: Instant,
    /// The end of the time in which no head has to begin.
    silent_until: Instant,
    /// Set while bytes wait that no reading of the present request takes.
    close_polls: Option<Interval>,
    is_tunnel: bool,
    /// True after a response that was not sent whole, and during a response that the connection's end ends.
    is_cut_off: bool,
}

impl Http1Downstream {
    /// Begins a connection whose first head has to come within `head_timeout`.
    pub(crate) fn new(
        transport: ClientTransport,
        activity: Activity,
        head_timeout: Duration,
    ) -> Self {
        let now = Instant::now();
        Self {
            transport,
            activity,
            received: BytesMut::new(),
            timer: Timer::default(),
            head_timeout,
            head_began: now,
            silent_until: now + head_timeout,
            close_polls: None,
            is_tunnel: false,
            is_cut_off: false,
        }
    }

    /// Reads more of a head; returns false at the end of the connection, or of the silence.
    ///
    /// # Errors
    /// [`Rejection::RequestTimeout`] once a head that has begun takes too long.
    pub(crate) async fn read_head(&mut self, drain: &mut DrainWatcher) -> Result<bool, Rejection> {
        let mut ending = pin!(drain.reached(Phase::Ending));
        poll_fn(|cx| {
            if let Poll::Ready(is_open) = self.poll_read_ahead(cx) {
                // Noted before the head is parsed: a connection with a request must not be evicted.
                self.activity.received();
                return Poll::Ready(Ok(is_open));
            }
            // Empty lines may precede a request (RFC 9112 §2.2).
            let has_begun = self.received.iter().any(|byte| !b"\r\n".contains(byte));
            if has_begun {
                self.activity.waits_for_rest();
            } else {
                // Only a silent connection ends at once: a head that has begun is still served.
                self.activity.waits_for_request();
                if ending.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Ok(false));
                }
            }
            // Silence has its own timeout; from the first byte on the timeout of a head runs.
            let until = if self.received.is_empty() {
                self.silent_until
            } else {
                self.head_began + self.head_timeout
            };
            ready!(self.timer.poll_until(cx, until));
            Poll::Ready(if has_begun {
                Err(Rejection::RequestTimeout)
            } else {
                Ok(false)
            })
        })
        .await
    }

    /// Waits for the next request, whose head may be here already; the last one `ended`.
    pub(super) fn await_next(&mut self, ended: std::time::Instant, had_large_buffer: bool) {
        // Silence begins with the end of the response: its record has taken time since.
        self.silent_until = Instant::from_std(ended) + CLIENT_IDLE;
        self.head_began = Instant::now();
        self.close_polls = None;
        // Otherwise the buffer would stay for as long as the connection is idle.
        if had_large_buffer && self.received.is_empty() {
            self.received = BytesMut::new();
        }
    }

    /// Reports bytes of a client that are no head, sends a response to them, and closes the connection once
    /// the client has read it, or after a while.
    pub(crate) async fn reject_unparsed(
        &mut self,
        exchanges: &Exchanges,
        rejection: Rejection,
        client: Option<IpAddr>,
    ) {
        exchanges.report_unparsed(rejection, client, UnparsedResponse::Sent);
        let mut response = raw_http1_response(rejection);
        self.activity.waits_for_rest();
        // The connection ends, whether the response arrives or not.
        let _ = tokio::time::timeout(LINGER_TIMEOUT, self.send(&mut response)).await;
        self.close_behind_response().await;
    }

    /// Closes the connection, and waits a while for the client to close it: bytes that it still sends would
    /// reset the connection, and might destroy the response (RFC 9112 §9.6).
    pub(super) async fn close_behind_response(&mut self) {
        self.close().await;
        if !self.is_cut_off {
            self.discard(BodyReader::UNTIL_CLOSE).await;
        }
    }

    /// Closes the connection, over TLS with a `close_notify`, which proves that nothing was cut off.
    /// Meanwhile the connection may make room for others. After a response that was cut off, the end of the
    /// transport closes the connection without a `close_notify`.
    pub(crate) async fn close(&mut self) {
        self.activity.waits_for_rest();
        if !self.is_cut_off {
            // The client may be gone already.
            let _ = self.transport.shutdown().await;
        }
    }

    /// Sets the way in which the connection ends if the process ends now: with a reset, or in order.
    fn set_cut_off(&mut self, is_cut_off: bool) {
        if is_cut_off != self.is_cut_off {
            transport::end_with_reset(&self.transport, is_cut_off);
            self.is_cut_off = is_cut_off;
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.received.reserve(BODY_READ);
        poll_read_buf(Pin::new(&mut self.transport), cx, &mut self.received)
    }

    /// Reads a few bytes that belong to no body, on the stack: an idle connection holds no buffer.
    /// Returns false at the end of the connection.
    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut bytes = [MaybeUninit::uninit(); HEAD_READ];
        let mut buffer = ReadBuf::uninit(&mut bytes);
        let read = ready!(Pin::new(&mut self.transport).poll_read(cx, &mut buffer));
        // The first byte begins the timeout of a head; further bytes do not extend it.
        if self.received.is_empty() {
            self.head_began = Instant::now();
        }
        self.received.extend_from_slice(buffer.filled());
        Poll::Ready(read.is_ok() && !buffer.filled().is_empty())
    }

    /// Reads and drops the rest of a body: some clients read the response only once their body is sent.
    async fn read_rest(&mut self, mut body: BodyReader) -> io::Result<()> {
        loop {
            transfer::take_body(&mut body, &mut self.received, drop).map_err(io::Error::other)?;
            if body.is_done() {
                return Ok(());
            }
            // The body has much framing: no read waits here, so other tasks need their turn.
            if !self.received.is_empty() {
                yield_now().await;
            } else if poll_fn(|cx| self.poll_read(cx)).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl Downstream for Http1Downstream {
    fn poll_receive(
        &mut self,
        upload: &mut Upload,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<()>> {
        // Bytes that came with the head are used before the next read.
        if self.received.is_empty() {
            match ready!(self.poll_read(cx)) {
                // A tunnel ends in order with a half-close; a body would stay incomplete.
                Ok(0) if self.is_tunnel => {
                    upload.close_tunnel();
                    return Poll::Ready(Ok(()));
                }
                Ok(0) => return Poll::Ready(Err(gone())),
                Ok(_) => {}
                Err(error) => {
                    let error = Error::because(ErrorType::ReadError, "request body", error);
                    return Poll::Ready(Err(error.into_down()));
                }
            }
        }
        let taken = upload.take(&mut self.received);
        Poll::Ready(taken.map_err(|_| Error::new_down(ErrorType::InvalidHTTPHeader)))
    }

    /// Detects that the client is gone. Keeps one buffer of the next request: a reader that stops at its
    /// first byte would miss the end of the connection.
    fn poll_left(&mut self, is_received: bool, cx: &mut Context<'_>) -> Poll<Box<Error>> {
        // Further bytes of a body or a tunnel are read by `poll_receive` alone.
        let may_read = is_received && !self.is_tunnel;
        if may_read && self.received.is_empty() && !ready!(self.poll_read_ahead(cx)) {
            return Poll::Ready(gone());
        }
        let polls = self.close_polls.get_or_insert_with(|| {
            let mut polls = interval_at(Instant::now() + CLOSE_POLL_INTERVAL, CLOSE_POLL_INTERVAL);
            // The body may have moved for long since the last poll.
            polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
            polls
        });
        loop {
            // Polled until the timer is pending, which leaves the waker for the next tick.
            ready!(polls.poll_tick(cx));
            match closed_by_client(&self.transport) {
                None => {}
                // In a tunnel the other side goes on: the service may take what waits, and send more.
                Some(Closed::OwnSide) if self.is_tunnel => {}
                Some(_) => return Poll::Ready(gone()),
            }
        }
    }

    fn poll_send(
        &mut self,
        response: &mut Outgoing,
        cx: &mut Context<'_>,
    ) -> pingora::Result<bool> {
        // RFC 9112 §8: such a body may be incomplete, whatever ends the connection or the process. So
        // the reset is prepared before the first byte leaves.
        self.set_cut_off(response.ends_with_connection && !response.is_sent());
        let (bytes, needs_flush) = (&mut response.bytes, &mut response.needs_flush);
        let moved = transfer::poll_write(&mut self.transport, bytes, needs_flush, cx);
        // A part may have left: TLS must not end as if the response were whole.
        if moved.is_err() {
            self.is_cut_off = true;
        } else if response.is_sent() {
            self.set_cut_off(false);
        }
        moved.map_err(|error| Error::because(ErrorType::WriteError, "response", error).into_down())
    }

    /// Sends the response. A client that does not take the last bytes may lose its connection to another one.
    async fn send(&mut self, response: &mut Outgoing) -> bool {
        poll_fn(|cx| match self.poll_send(response, cx) {
            Ok(_) if response.bytes.is_empty() && !response.needs_flush => Poll::Ready(true),
            Ok(_) => {
                self.activity.waits_for_rest();
                Poll::Pending
            }
            Err(_) => Poll::Ready(false),
        })
        .await
    }

    /// Sends the part of the response that is here, and leaves the response without its end.
    async fn abandon(&mut self, response: &mut Outgoing, _: Option<Reason>) {
        self.send(response).await;
        // After the last bytes that came whole: only the end is missing.
        self.is_cut_off = true;
    }

    async fn discard(&mut self, rest: BodyReader) -> bool {
        self.activity.waits_for_rest();
        let reading = tokio::time::timeout(LINGER_TIMEOUT, self.read_rest(rest));
        matches!(reading.await, Ok(Ok(())))
    }

    fn timer(&mut self) -> &mut Timer {
        &mut self.timer
    }

    fn open_tunnel(&mut self) {
        self.is_tunnel = true;
    }
}

fn gone() -> Box<Error> {
    Error::new_down(ErrorType::ConnectionClosed)
}
