//! Permits of requests in flight, which addresses share: one client cannot keep every connection
//! busy.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use contract::rejection::Rejection;
use http_body_util::BodyExt;
use runtime::net::client_address::TrustedProxies;
use runtime::net::shares::{Holder, Shares};

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
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _held = &permit;
            frame
        }))
    })
}
