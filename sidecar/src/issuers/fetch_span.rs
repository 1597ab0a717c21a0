//! The span of one request to a key server.

use http::{HeaderValue, StatusCode};
use runtime::traces::{self, Span};

/// The span; empty without tracing.
pub(super) struct FetchSpan(Option<Span>);

impl FetchSpan {
    /// Begins a trace for a request of `target` to `host`.
    pub(super) fn begin(host: &str, target: &str) -> Self {
        let Some(mut span) = traces::client_span("GET") else {
            return Self(None);
        };
        let path = target.split('?').next().unwrap_or_default();
        span.set("http.request.method", "GET");
        span.set("server.address", host.to_owned());
        span.set("url.path", path.to_owned());
        Self(Some(span))
    }

    /// Returns the header by which the server continues the trace.
    pub(super) fn traceparent(&self) -> Option<&HeaderValue> {
        self.0.as_ref()?.traceparent()
    }

    /// Ends the span; `None` without a response.
    pub(super) fn end(self, status: Option<StatusCode>) {
        let Some(mut span) = self.0 else {
            return;
        };
        match status {
            Some(status) => {
                span.set("http.response.status_code", i64::from(status.as_u16()));
                if status.is_client_error() || status.is_server_error() {
                    span.fail("status");
                }
            }
            None => span.fail("no_response"),
        }
    }
}
