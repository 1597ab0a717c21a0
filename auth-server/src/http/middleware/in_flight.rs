//! Permits of requests in flight, which addresses share: one client cannot keep every connection
//! busy.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use runtime::net::client_address::TrustedProxies;
use runtime::net::shares::{Holder, Shares};
use wire::rejection::Rejection;

use super::client_ip::client_of;
use crate::http::response;

#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    pub(crate) permits: Shares,
    pub(crate) trusted_proxies: TrustedProxies,
}

/// Carries out a request with a permit, which its response keeps until the end of its body.
pub(crate) async fn with_permit(
    State(in_flight): State<InFlight>,
    request: Request,
    next: Next,
) -> Response {
    let proxies = &in_flight.trusted_proxies;
    let client = client_of(proxies, request.extensions(), request.headers());
    let Some(permit) = in_flight.permits.take(Holder::at(Some(client))) else {
        return response::rejection(Rejection::ServerBusy);
    };
    let response = next.run(request).await;
    response.map(|body| Body::new(InFlightBody::new(body, permit)))
}

/// The body of a response with what its request takes, a permit or a stream.
pub(crate) struct InFlightBody<T> {
    body: Body,
    _taken: T,
}

impl<T> InFlightBody<T> {
    pub(crate) const fn new(body: Body, taken: T) -> Self {
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
