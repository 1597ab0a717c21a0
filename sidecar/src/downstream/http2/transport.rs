//! The bytes of a connection on their way to and from `h2`: floods end the connection, and requests that the
//! library rejects by itself are reported.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::BytesMut;
use postern_transport::net::connection_slots::Activity;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take};
use tokio::task::coop::{poll_proceed, unconstrained};

use super::frames::{Flood, Frames};
use crate::downstream::HTTP_2_PREFACE;
use crate::downstream::transport::ClientTransport;
use crate::upstream::bodies::spend_budget;

/// Bytes of one read in which frames begin.
const READ_BYTES: usize = 4 * 1024;
/// Weight of the frames that take one unit of a task's budget: so few heads and frames come in one turn that other
/// tasks, which take them out of `h2`, are not far behind.
const WEIGHT_OF_UNIT: usize = 2;

/// A transport whose frames are parsed beside h2.
pub(super) struct FollowedTransport {
    transport: Take<ClientTransport>,
    /// Bytes that were read to detect the version.
    peeked: BytesMut,
    activity: Activity,
    received: Frames,
    sent: Frames,
    flood: Flood,
    /// Reports the rejection of a request of broken framing, which the exchange never sees.
    report: Box<dyn Fn() + Send>,
}

impl FollowedTransport {
    pub(super) fn new(
        transport: ClientTransport,
        peeked: BytesMut,
        activity: Activity,
        report: Box<dyn Fn() + Send>,
    ) -> Self {
        Self {
            transport: transport.take(0),
            peeked,
            activity,
            received: Frames::after_bytes(HTTP_2_PREFACE.len()),
            sent: Frames::after_bytes(0),
            flood: Flood::new(Instant::now()),
            report,
        }
    }

    fn parse_sent(&mut self, data: &[u8]) {
        self.sent.parse(data, |frame| {
            self.flood.sent(frame);
            if frame.reports_breach() {
                (self.report)();
            }
        });
    }
}

impl AsyncRead for FollowedTransport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // One unit for each read, whether the bytes come from the socket or TLS holds them already.
        let turn = ready!(poll_proceed(cx));
        let before = buffer.filled().len();
        if self.peeked.is_empty() {
            let limit = self.received.bytes_ahead() + READ_BYTES;
            self.transport.set_limit(limit as u64);
            let transport = &mut self.transport;
            let read = unbudgeted(cx, |cx| Pin::new(&mut *transport).poll_read(cx, buffer));
            // `h2` has taken all that came: without open streams only a request can follow.
            if read.is_pending() {
                self.activity.waits_for_request();
            }
            ready!(read)?;
        } else {
            // `h2` has to see the preface, which was read to detect the version.
            let length = self.peeked.len().min(buffer.remaining());
            buffer.put_slice(&self.peeked.split_to(length));
        }
        let Self {
            received, flood, ..
        } = &mut *self;
        let (mut is_flood, mut weight) = (false, 0);
        received.parse(buffer.filled().get(before..).unwrap_or_default(), |frame| {
            is_flood |= flood.received(frame);
            weight += frame.weight();
        });
        turn.made_progress();
        spend_budget(weight / WEIGHT_OF_UNIT, cx);
        if is_flood {
            (self.report)();
            // An error of the transport makes `h2` end the connection with all streams.
            return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
        }
        Poll::Ready(Ok(()))
    }
}

/// Polls the transport beside the budget: reads spend it by themselves, and writes, of what is queued alone, go on
/// once the frames of the turn have used it up.
fn unbudgeted<T>(cx: &mut Context<'_>, poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    pin!(unconstrained(poll_fn(poll))).poll(cx)
}

impl AsyncWrite for FollowedTransport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let transport = self.transport.get_mut();
        let written = ready!(unbudgeted(cx, |cx| Pin::new(&mut *transport).poll_write(cx, data)))?;
        self.parse_sent(data.get(..written).unwrap_or_default());
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let transport = self.transport.get_mut();
        let written = ready!(unbudgeted(cx, |cx| Pin::new(&mut *transport)
            .poll_write_vectored(cx, pieces)))?;
        let mut left = written;
        for piece in pieces {
            // The write may end within any of the pieces.
            let sent = piece.get(..left.min(piece.len())).unwrap_or_default();
            self.parse_sent(sent);
            left -= sent.len();
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.get_ref().is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let transport = self.transport.get_mut();
        unbudgeted(cx, |cx| Pin::new(&mut *transport).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.transport.get_mut()).poll_shutdown(cx)
    }
}
