//! The span of a request, with the route and the reason of a rejection.

use std::net::IpAddr;

use axum::extract::{MatchedPath, Request};
use axum::response::Response;
use http::{HeaderMap, Method};
use postern_contract::rejection::Rejection;
use postern_http::trace::{TRACEPARENT, TraceId};
use postern_process::logs::access_log::LoggedPath;
use postern_transport::traces::{self, Span};

/// The span of one request; empty without tracing.
pub(super) struct ServerSpan(Option<Span>);

impl ServerSpan {
    /// Begins the span.
    pub(super) fn begin(request: &Request) -> Self {
        let route = request
            .extensions()
            .get::<MatchedPath>()
            .map(|route| route.as_str().to_owned());
        let method = match *request.method() {
            Method::GET => "GET",
            Method::HEAD => "HEAD",
            Method::POST => "POST",
            Method::OPTIONS => "OPTIONS",
            // Clients invent methods: OpenTelemetry names them all `_OTHER`, so that names stay few.
            _ => "_OTHER",
        };
        let name = match &route {
            Some(route) => format!("{method} {route}"),
            None => method.to_owned(),
        };
        let Some(mut span) = traces::server_span(name, request.headers()) else {
            return Self(None);
        };
        span.set("http.request.method", method);
        span.set(
            "url.path",
            LoggedPath(request.uri().path().as_bytes()).to_string(),
        );
        if let Some(route) = route {
            span.set("http.route", route);
        }
        Self(Some(span))
    }

    /// Returns the trace that begins or goes on here.
    pub(super) fn trace_id(&self) -> Option<TraceId> {
        let traceparent = self.0.as_ref()?.traceparent()?;
        TraceId::received(&HeaderMap::from_iter([(TRACEPARENT, traceparent.clone())]))
    }

    /// Ends the span with the response.
    pub(super) fn end(self, client: IpAddr, response: &Response) {
        let Some(mut span) = self.0 else {
            return;
        };
        span.set("client.address", client.to_string());
        span.set(
            "http.response.status_code",
            i64::from(response.status().as_u16()),
        );
        if let Some(rejection) = response.extensions().get::<Rejection>() {
            span.set("postern.reason", rejection.reason());
            // A rejection of a client's mistake is no failure of this server.
            if rejection.status().is_server_error() {
                span.fail(rejection.reason());
            }
        }
    }
}
