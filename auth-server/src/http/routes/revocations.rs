//! `GET {ctx}/.well-known/revocations`: the signed head of the revocation list and its lines, without an
//! envelope. The lines are digests only, so any client may fetch them, as the key set.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::response::Response;
use futures_util::stream;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use postern_contract::rejection::Rejection;
use tracing::error;

use crate::http::app::App;
use crate::http::response::{ErrorResponse, NO_STORE};

const TEXT: HeaderValue = HeaderValue::from_static("text/plain");

/// Responds with the lines after the cursor `after`; without a cursor with all lines.
pub(crate) async fn revocations(
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Result<Response, ErrorResponse> {
    let pair = Arc::clone(app.keys()?.ring.current());
    let after = query
        .as_deref()
        .and_then(|query| query.strip_prefix("after="));
    let signed = app
        .list_signer
        .list(&app.revocations, pair, after, app.now());
    let list = match signed {
        Ok(list) => list,
        Err(error) => {
            error!(%error, "the revocation list was not signed");
            return Err(Rejection::Internal.into());
        }
    };
    let length: usize = list.iter().map(Bytes::len).sum();
    // The list is sent in parts: hyper copies the part that it is about to write, and takes the next one
    // when the client has read on.
    let parts = stream::iter(list.into_iter().map(Ok::<_, Infallible>));
    let mut response = Response::new(Body::from_stream(parts));
    let fields = response.headers_mut();
    fields.insert(CONTENT_LENGTH, length.into());
    fields.insert(CONTENT_TYPE, TEXT);
    // A cache would serve lists that are minutes old.
    fields.insert(CACHE_CONTROL, NO_STORE);
    Ok(response)
}
