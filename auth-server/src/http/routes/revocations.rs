//! `GET {ctx}/.well-known/revocations`: the signed head of the revoked tokens and their lines, without
//! an envelope. They are digests only, so any client may fetch them, as the key set.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, InvalidHeaderValue};
use tracing::error;
use wire::http::path_patterns::ContextPath;
use wire::rejection::Rejection;

use crate::http::response;
use crate::keys::live::LiveKeys;
use crate::revocations::log::RevocationLog;
use crate::store::clock::StoreClock;
use crate::tokens::revocation_list::RevocationListSigner;

pub(crate) const REVOCATIONS_PATH: &str = "/.well-known/revocations";

const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
/// A cache would serve lists that are minutes old.
const NOT_STORED: HeaderValue = HeaderValue::from_static("no-store");

pub(crate) struct RevocationEndpoint {
    pub(crate) live_keys: Arc<LiveKeys>,
    pub(crate) log: Arc<RevocationLog>,
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) signer: RevocationListSigner,
}

/// Responds with the lines after those that `after` names, all without it.
pub(crate) async fn revocations(
    State(state): State<Arc<RevocationEndpoint>>,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(pair) = state.live_keys.load() else {
        return response::rejection(Rejection::StoreUnavailable);
    };
    let after = query
        .as_deref()
        .and_then(|query| query.strip_prefix("after="));
    let now = state.clock.now();
    match state.signer.list(&state.log, pair, after, now) {
        Ok(list) => {
            let mut response = Response::new(Body::from(list));
            let fields = response.headers_mut();
            fields.insert(CONTENT_TYPE, TEXT);
            fields.insert(CACHE_CONTROL, NOT_STORED);
            response
        }
        Err(error) => {
            error!(%error, "the revocation list was not signed");
            response::rejection(Rejection::Internal)
        }
    }
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
