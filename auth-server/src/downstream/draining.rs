//! Closes kept-alive connections between the signal to stop and the end of the listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::response::Response;
use http::HeaderValue;
use http::header::CONNECTION;

/// Once begun, each response closes its connection. Otherwise a client could send its next request
/// into the final close, and not know that it was never read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draining(Arc<AtomicBool>);

impl Draining {
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Adds `Connection: close` (RFC 9112 §9.6) once this server drains.
    pub(super) fn mark(&self, mut response: Response) -> Response {
        if self.0.load(Ordering::Relaxed) {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response
    }
}
