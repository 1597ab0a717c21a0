//! The time between the signal to stop and the end of the listener, in which no connection is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::response::Response;
use http::HeaderValue;
use http::header::CONNECTION;

/// From its begin on each answer closes its connection. A client that kept one open would otherwise
/// send its next request into the close at the end, and could not know that it was never read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draining(Arc<AtomicBool>);

impl Draining {
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Sends the client to another connection (RFC 9112 §9.6) once this server drains.
    pub(super) fn mark(&self, mut answer: Response) -> Response {
        if self.0.load(Ordering::Relaxed) {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(CONNECTION, close);
        }
        answer
    }
}
