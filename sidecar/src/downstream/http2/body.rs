//! The body of a client's request over HTTP/2.

use std::convert::Infallible;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;
use parking_lot::Mutex;

use crate::upstream::bodies::Arrived;

/// A body that the exchange reads, and beside it [`poll_take_in`](Self::poll_take_in) in the same task.
pub(super) struct RequestBody(Mutex<Received>);

struct Received {
    stream: RecvStream,
    /// Parts that the exchange does not take yet: it waits for a permit, for a connection, or for the service.
    arrived: Arrived,
}

impl RequestBody {
    pub(super) fn new(stream: RecvStream) -> Self {
        Self(Mutex::new(Received {
            stream,
            arrived: Arrived::default(),
        }))
    }

    /// Reads a part; `None` after the last one.
    pub(super) fn poll_data(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let Received { stream, arrived } = &mut *self.0.lock();
        // The window is given back at once: the upload has a limit, above which no data is received.
        arrived.poll_next(stream, cx)
    }

    /// Reads the trailers, after the last part.
    pub(super) fn poll_trailers(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, h2::Error>> {
        self.0.lock().stream.poll_trailers(cx)
    }

    /// Takes frames out of the library whenever some are left.
    pub(super) fn poll_take_in(&self, cx: &mut Context<'_>) -> Poll<Infallible> {
        let Received { stream, arrived } = &mut *self.0.lock();
        arrived.take_in(stream, cx);
        Poll::Pending
    }
}
