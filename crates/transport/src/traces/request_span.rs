//! The span of a received request: the content of its access line, for a tracing system.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, Version};
use opentelemetry::trace::{SpanKind, TraceContextExt};
use postern_http::methods::standard_method;
use postern_process::logs::access_log::{AccessLine, LoggedPath, short};

use super::{INSTALLED, Span, received_parent};

/// OpenTelemetry's name for any method that is not a standard one.
const OTHER_METHOD: &str = "_OTHER";

/// A request as it was received.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The method, which clients may invent.
    pub method: &'a str,
    /// The target, of which the path is an attribute.
    pub target: &'a [u8],
    /// The version of HTTP.
    pub version: Version,
    /// True if the client speaks TLS to this program.
    pub over_tls: bool,
    /// The pattern of the path, in a program that has routes.
    pub route: Option<&'a str>,
    /// The fields, which may name a parent.
    pub headers: &'a HeaderMap,
}

/// The span of one request; empty without tracing, and for a trace that is not sampled.
#[derive(Debug, Default)]
pub struct RequestSpan(Option<Box<Span>>);

/// A span that has begun.
#[derive(Debug, Default)]
pub struct BegunSpan {
    /// The span to end.
    pub span: RequestSpan,
    /// The header for the next hop, of a trace that is not sampled too; `None` if the received one stays.
    pub traceparent: Option<HeaderValue>,
}

impl RequestSpan {
    /// Begins the span, below the parent that the headers name.
    #[must_use]
    pub fn begin(received: &Received<'_>) -> BegunSpan {
        let Some(tracer) = INSTALLED.get() else {
            return BegunSpan::default();
        };
        let known = standard_method(received.method);
        // By OpenTelemetry a method that clients invent is an attribute, and no part of the span's name.
        let method = known.unwrap_or("HTTP");
        let name = match received.route {
            Some(route) => Cow::from(format!("{method} {route}")),
            None => Cow::from(method),
        };
        let parent = received_parent(received.headers);
        let has_parent = parent.span().span_context().is_valid();
        let mut span = tracer.span(name, SpanKind::Server, &parent, has_parent);
        let traceparent = span.traceparent().cloned();
        if !span.is_recording() {
            return BegunSpan {
                traceparent,
                ..BegunSpan::default()
            };
        }
        span.set("http.request.method", known.unwrap_or(OTHER_METHOD));
        if known.is_none() {
            let original = short(received.method).to_owned();
            span.set("http.request.method_original", original);
        }
        span.set("url.path", LoggedPath(received.target).to_string());
        let scheme = if received.over_tls { "https" } else { "http" };
        span.set("url.scheme", scheme);
        span.set("network.protocol.version", version_of(received.version));
        if let Some(route) = received.route {
            span.set("http.route", route.to_owned());
        }
        BegunSpan {
            span: Self(Some(Box::new(span))),
            traceparent,
        }
    }

    /// Returns true if the end of the request has to be described.
    #[must_use]
    pub const fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// Ends the span with the members of the access `line`; `error` is a failure of this program, or of a
    /// server behind it.
    pub fn end(self, line: &AccessLine<'_>, error: Option<&'static str>) {
        let Some(mut span) = self.0 else {
            return;
        };
        if let Some(client) = line.client {
            span.set("client.address", client.to_string());
        }
        if let Some(status) = line.status {
            span.set("http.response.status_code", i64::from(status));
        }
        span.set("postern.outcome", line.outcome.to_owned());
        if let Some(reason) = line.reason {
            span.set("postern.reason", reason.to_owned());
        }
        if let Some(issuer) = line.issuer {
            span.set("postern.issuer", issuer.to_owned());
        }
        if let Some(cause) = &line.cause {
            span.set("error.message", cause.to_string());
        }
        if let Some(error) = error {
            span.fail(error);
        }
    }
}

const fn version_of(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}
