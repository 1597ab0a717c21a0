//! `GET {ctx}/.well-known/revocations`: the signed list of revoked tokens, without an envelope. It
//! holds digests only, so any client may fetch it, as the key set.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, InvalidHeaderValue};
use http::{HeaderValue, StatusCode};
use tracing::error;
use wire::http::path_patterns::ContextPath;
use wire::rejection::Rejection;

use super::jwks::matches_etag;
use crate::http::response;
use crate::keys::live::LiveKeys;
use crate::store::clock::StoreClock;
use crate::tokens::revocation_list::RevocationListSigner;

pub(crate) const REVOCATIONS_PATH: &str = "/.well-known/revocations";

const JWT: HeaderValue = HeaderValue::from_static("application/jwt");
/// Caches revalidate each time: a list that is minutes old accepts revoked tokens.
const REVALIDATED: HeaderValue = HeaderValue::from_static("no-cache");

pub(crate) struct RevocationEndpoint {
    pub(crate) live_keys: Arc<LiveKeys>,
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) signer: RevocationListSigner,
}

pub(crate) async fn revocations(
    State(state): State<Arc<RevocationEndpoint>>,
    request: Request,
) -> Response {
    let Some(keys) = state.live_keys.published() else {
        return response::rejection(Rejection::StoreUnavailable);
    };
    let list = match state.signer.list(&keys, state.clock.now()).await {
        Ok(list) => list,
        Err(error) => {
            error!(%error, "the revocation list was not signed");
            return response::rejection(Rejection::Internal);
        }
    };
    let mut response = if matches_etag(request.headers(), &list.etag) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let mut response = Response::new(Body::from(list.jws));
        response.headers_mut().insert(CONTENT_TYPE, JWT);
        response
    };
    let fields = response.headers_mut();
    fields.insert(ETAG, list.etag);
    fields.insert(CACHE_CONTROL, REVALIDATED);
    response
}

/// Returns the `Link` field (RFC 8288) that leads from the contract's key response to the list.
///
/// # Errors
/// A context path that fits into no header field.
pub(crate) fn link(context: &ContextPath) -> Result<HeaderValue, InvalidHeaderValue> {
    let context = context.as_str();
    HeaderValue::try_from(format!(
        "<{context}{REVOCATIONS_PATH}>; rel=\"revocations\""
    ))
}
