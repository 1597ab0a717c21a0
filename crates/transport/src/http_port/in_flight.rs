//! The body of a response, which until its end keeps everything that its request has taken.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use hyper::body::{Bytes, Frame, SizeHint};

/// A body with a thing that its request has taken, such as a permit.
pub struct InFlightBody<T> {
    body: Body,
    _taken: T,
}

impl<T> InFlightBody<T> {
    /// Keeps `taken` until the end of the body.
    pub const fn new(body: Body, taken: T) -> Self {
        Self {
            body,
            _taken: taken,
        }
    }
}

impl<T: Unpin> hyper::body::Body for InFlightBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
