//! The span of a request: what its access line holds, for a tracing system.

use http::{HeaderMap, Method, Version};
use runtime::logs::access_log::{LoggedPath, short};
use runtime::traces::{self, Span};

use crate::telemetry::access_log::RequestRecord;
use crate::telemetry::outcome::{Completion, Outcome};
use crate::telemetry::request_id::RequestIds;

/// The span of one request; empty without tracing, and for a trace that is not sampled.
#[derive(Debug, Default)]
pub(crate) struct RequestSpan(Option<Box<Span>>);

/// The parts of a request's head that its span needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpanHead<'a> {
    pub(crate) method: &'a Method,
    pub(crate) target: &'a [u8],
    pub(crate) version: Version,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) tls: bool,
}

impl RequestSpan {
    /// Begins the span and lets `ids` name it to the service.
    pub(crate) fn begin(head: SpanHead<'_>, ids: &mut RequestIds) -> Self {
        let method = known_method(head.method);
        let Some(mut span) = traces::server_span(method.unwrap_or("HTTP"), head.headers) else {
            return Self::default();
        };
        if let Some(traceparent) = span.traceparent() {
            ids.continue_trace(traceparent.clone(), head.headers);
        }
        if !span.is_recording() {
            return Self::default();
        }
        span.set("http.request.method", method.unwrap_or(OTHER_METHOD));
        if method.is_none() {
            let original = short(head.method.as_str()).to_owned();
            span.set("http.request.method_original", original);
        }
        span.set("url.path", LoggedPath(head.target).to_string());
        span.set("url.scheme", if head.tls { "https" } else { "http" });
        span.set("network.protocol.version", version_of(head.version));
        Self(Some(Box::new(span)))
    }

    pub(crate) const fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// Ends the span.
    pub(crate) fn end(self, completion: &Completion, record: &RequestRecord<'_>) {
        let Some(mut span) = self.0 else {
            return;
        };
        if let Some(client) = record.client {
            span.set("client.address", client.to_string());
        }
        if let Some(status) = completion.status {
            span.set("http.response.status_code", i64::from(status));
        }
        span.set("postern.outcome", completion.outcome.as_str());
        if let Some(reason) = completion.outcome.reason() {
            span.set("postern.reason", reason);
        }
        if let Some(issuer) = record.issuer {
            span.set("postern.issuer", issuer.to_owned());
        }
        if let Some(cause) = &record.cause {
            span.set("error.message", cause.clone());
        }
        if let Some(error) = error_type(completion) {
            span.fail(error);
        }
    }
}

/// Returns the error of a server span: a rejection that is the client's fault has none.
fn error_type(completion: &Completion) -> Option<&'static str> {
    match completion.outcome {
        Outcome::Rejected(rejection) if rejection.status().is_server_error() => {
            Some(rejection.reason())
        }
        Outcome::Rejected(_) => None,
        Outcome::Aborted => Some("aborted"),
        _ => completion
            .status
            .filter(|status| *status >= 500)
            .map(|_| "5xx"),
    }
}

/// Any method that is not a standard one, in the word of OpenTelemetry.
const OTHER_METHOD: &str = "_OTHER";

/// Returns the name of a standard method: clients may invent others.
pub(super) fn known_method(method: &Method) -> Option<&'static str> {
    Some(match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::TRACE => "TRACE",
        Method::CONNECT => "CONNECT",
        _ => return None,
    })
}

const fn version_of(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}
