//! `GET {ctx}/.well-known/revocations`: the signed head of the revoked tokens and their lines, without
//! an envelope. They are digests only, so any client may fetch them, as the key set.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use hyper::body::{Frame, SizeHint};
use tracing::error;
use wire::rejection::Rejection;

use crate::app::App;
use crate::http::response;

pub(crate) const REVOCATIONS_PATH: &str = "/.well-known/revocations";

const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
/// A cache would serve lists that are minutes old.
const NOT_STORED: HeaderValue = HeaderValue::from_static("no-store");

/// Responds with the lines after those that `after` names, all without it.
pub(crate) async fn revocations(
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(pair) = app.synced.live_keys.load() else {
        return response::rejection(Rejection::StoreUnavailable);
    };
    let after = query
        .as_deref()
        .and_then(|query| query.strip_prefix("after="));
    let log = &app.synced.revocations;
    match app.list_signer.list(log, pair, after, app.now()) {
        Ok(list) => {
            let mut response = Response::new(Body::new(Parts(list.into_iter())));
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

/// A body that is in memory in parts: hyper copies what it is about to write, and takes the next part
/// when the client has read on.
struct Parts(vec::IntoIter<Bytes>);

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.next().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let length: usize = self.0.as_slice().iter().map(Bytes::len).sum();
        SizeHint::with_exact(length as u64)
    }
}
