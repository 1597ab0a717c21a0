//! The span of a request: the content of its access line, for a tracing system.

use http::{HeaderMap, Version};
use postern_process::logs::access_log::{AccessLine, LoggedPath, short};
use postern_transport::traces::{self, Span};

use crate::telemetry::outcome::Outcome;
use crate::telemetry::request_id::RequestIds;

/// The span of one request; empty without tracing, and for a trace that is not sampled.
#[derive(Debug, Default)]
pub(crate) struct RequestSpan(Option<Box<Span>>);

impl RequestSpan {
    /// Begins the span and lets `ids` name it to the service.
    pub(crate) fn begin(
        (method, target, version): (&str, &[u8], Version),
        headers: &HeaderMap,
        over_tls: bool,
        ids: &mut RequestIds,
    ) -> Self {
        let known = known_method(method);
        let Some(mut span) = traces::server_span(known.unwrap_or("HTTP"), headers) else {
            return Self::default();
        };
        // Before the return below: the service has to learn of a trace that is not sampled too.
        if let Some(traceparent) = span.traceparent() {
            ids.continue_trace(traceparent.clone(), headers);
        }
        if !span.is_recording() {
            return Self::default();
        }
        span.set("http.request.method", known.unwrap_or(OTHER_METHOD));
        // By OpenTelemetry a method that clients invent is an attribute, and no part of the span's name.
        if known.is_none() {
            span.set("http.request.method_original", short(method).to_owned());
        }
        span.set("url.path", LoggedPath(target).to_string());
        span.set("url.scheme", if over_tls { "https" } else { "http" });
        span.set("network.protocol.version", version_of(version));
        Self(Some(Box::new(span)))
    }

    pub(crate) const fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// Ends the span with the members of the access `line`.
    pub(crate) fn end(self, outcome: Outcome, line: &AccessLine<'_>) {
        let Some(mut span) = self.0 else {
            return;
        };
        if let Some(client) = line.client {
            span.set("client.address", client.to_string());
        }
        if let Some(status) = line.status {
            span.set("http.response.status_code", i64::from(status));
        }
        span.set("postern.outcome", outcome.as_str());
        if let Some(reason) = outcome.reason() {
            span.set("postern.reason", reason);
        }
        if let Some(issuer) = line.issuer {
            span.set("postern.issuer", issuer.to_owned());
        }
        if let Some(cause) = &line.cause {
            span.set("error.message", cause.to_string());
        }
        if let Some(error) = error_type(outcome, line.status) {
            span.fail(error);
        }
    }
}

/// Returns the error of a server span; `None` for a rejection that is the client's fault.
fn error_type(outcome: Outcome, status: Option<u16>) -> Option<&'static str> {
    match outcome {
        Outcome::Rejected(rejection) if rejection.status().is_server_error() => {
            Some(rejection.reason())
        }
        Outcome::Rejected(_) => None,
        Outcome::Aborted => Some("aborted"),
        _ => match status {
            Some(500..) => Some("5xx"),
            _ => None,
        },
    }
}

/// OpenTelemetry's name for any method that is not a standard one.
const OTHER_METHOD: &str = "_OTHER";

/// Returns the name of a standard method: clients may invent others.
pub(super) fn known_method(method: &str) -> Option<&'static str> {
    const KNOWN: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT",
    ];
    KNOWN.into_iter().find(|known| *known == method)
}

const fn version_of(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}
