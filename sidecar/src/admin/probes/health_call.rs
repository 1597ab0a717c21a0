//! A call of gRPC's health service (`grpc.health.v1.Health/Check`), which both of its messages are
//! small enough to be written down for.

use axum::BoxError;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use crate::config::probes::USER_AGENT;
use postern_http::request::kind::GRPC_STATUS;

const CHECK: &str = "http://localhost/grpc.health.v1.Health/Check";
/// A message of two bytes: field 1, the status, is 1.
const SERVING: [u8; 7] = [0, 0, 0, 0, 2, 8, 1];

/// Returns true if the service says that it serves.
///
/// # Errors
/// For what is no response of HTTP/2.
pub(super) async fn is_serving(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    service: &str,
) -> Result<bool, BoxError> {
    let (client, connection) = h2::client::handshake(stream).await?;
    // Dropped with this set, the driver of the connection ends with the call.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let request = Request::post(CHECK)
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, USER_AGENT)
        .body(())?;
    let (response, mut body) = client.ready().await?.send_request(request, false)?;
    body.send_data(message(service)?, true)?;
    let (head, mut body) = response.await?.into_parts();
    let mut received = Vec::new();
    while received.len() <= SERVING.len()
        && let Some(data) = body.data().await
    {
        received.extend(data?);
    }
    if head.status != StatusCode::OK || received != SERVING {
        return Ok(false);
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    Ok(is_ok(&head.headers) || is_ok(&trailers))
}

fn is_ok(fields: &HeaderMap) -> bool {
    fields.get(GRPC_STATUS).is_some_and(|status| status == "0")
}

/// Returns the request with its length in front; no name is an empty message.
fn message(service: &str) -> Result<Bytes, BoxError> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.extend([10, u8::try_from(service.len())?]);
        message.extend(service.as_bytes());
    }
    let length = u32::try_from(message.len())?;
    Ok([&[0][..], &length.to_be_bytes(), &message].concat().into())
}
