//! Permits of requests in flight, which addresses share: one client cannot keep every connection
//! busy.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use postern_contract::rejection::Rejection;
use postern_transport::http_port::InFlightBody;
use postern_transport::net::shares::Holder;

use crate::http::app::{App, ClientIp};
use crate::http::response;

/// Carries out a request with a permit, which its response keeps until the end of its body.
pub(crate) async fn with_permit(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let client = ClientIp::added_to(request.extensions());
    let Some(permit) = app.in_flight.take(Holder::for_address(Some(client))).await else {
        return response::rejection(Rejection::ServerBusy);
    };
    next.run(request)
        .await
        .map(|body| Body::new(InFlightBody::new(body, permit)))
}
