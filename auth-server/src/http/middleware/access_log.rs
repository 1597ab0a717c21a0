//! The outermost layer: access log, rejection counter, headers of responses, request id and client IP.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::StatusCode;
use http::header::CONTENT_LENGTH;
use postern_contract::rejection::Rejection;
use postern_http::cors;
use postern_http::trace::{REQUEST_ID, RequestId, TraceId};
use postern_process::logs::access_log::{AccessLine, LoggedPath};
use postern_transport::traces::request_span::{BegunSpan, Received, RequestSpan};

use super::authenticate::is_public_document;
use super::security_headers;
use crate::http::app::{App, ClientIp};
use crate::http::response::{Cause, raw_http1_response};
use crate::random;
use crate::telemetry::audit::events::RequestIds;

/// Logs input that never became a request, and returns its response as bytes.
pub(crate) fn reject_unparsed(app: &App, rejection: Rejection, client: IpAddr) -> Vec<u8> {
    let line = AccessLine {
        client: Some(client),
        ..AccessLine::default()
    };
    let status = rejection.status();
    record(app, status, Some(rejection), RequestSpan::default(), line);
    raw_http1_response(rejection)
}

/// Counts a response, ends its span, and writes its line if it is to have one.
fn record(
    app: &App,
    status: StatusCode,
    rejection: Option<Rejection>,
    span: RequestSpan,
    line: AccessLine<'_>,
) {
    app.metrics.responded(status, line.duration);
    if let Some(rejection) = rejection {
        app.metrics.rejected(rejection);
    }
    let reason = rejection.map(Rejection::reason);
    let line = AccessLine {
        outcome: match reason {
            Some(_) => "rejected",
            None => "responded",
        },
        reason,
        status: Some(status.as_u16()),
        ..line
    };
    // A rejection of a client's mistake is no failure of this server.
    let error = if status.is_server_error() {
        Some(reason.unwrap_or("5xx"))
    } else {
        None
    };
    span.end(&line, error);
    if app.config.access_log.takes_line(reason) {
        line.write();
    }
}

/// Begins the span of a request.
fn begin_span(app: &App, request: &Request) -> BegunSpan {
    let route = request.extensions().get::<MatchedPath>();
    RequestSpan::begin(&Received {
        method: request.method().as_str(),
        target: request.uri().path().as_bytes(),
        version: request.version(),
        over_tls: app.config.tls.is_some(),
        route: route.map(MatchedPath::as_str),
        headers: request.headers(),
    })
}

pub(crate) async fn log_request(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let BegunSpan { span, traceparent } = begin_span(&app, &request);
    let headers = request.headers();
    let client = ClientIp::received(&app.config.trusted_proxies, &request);
    let ids = RequestIds {
        request_id: RequestId::received(headers)
            .unwrap_or_else(|| RequestId::new(random::number())),
        trace_id: match traceparent {
            Some(traceparent) => TraceId::from_traceparent(&traceparent),
            None => TraceId::received(headers),
        },
    };
    let cors = if is_public_document(&app.config, request.uri().path()) {
        cors::public_fields(headers)
    } else {
        app.config.interceptor.cors_fields(headers)
    };
    let method = request.method().clone();
    let uri = request.uri().clone();
    request.extensions_mut().insert(ids.clone());
    request.extensions_mut().insert(client);
    let mut response = next.run(request).await;
    let fields = response.headers_mut();
    security_headers::add(fields);
    // Appended: a response may have a `Vary` of its own.
    for (name, value) in cors {
        fields.append(name, value);
    }
    fields.insert(REQUEST_ID, ids.request_id.value().clone());
    let line = AccessLine {
        method: Some(method.as_str()),
        path: Some(LoggedPath(uri.path().as_bytes())),
        client: Some(client.0),
        duration: Some(began.elapsed()),
        bytes: length(&response),
        request_id: Some(&ids.request_id),
        trace_id: ids.trace_id,
        cause: response
            .extensions()
            .get()
            .map(|Cause(cause)| Cow::Borrowed(*cause)),
        ..AccessLine::default()
    };
    let rejection = response.extensions().get().copied();
    record(&app, response.status(), rejection, span, line);
    response
}

/// Returns the length of the body, if it is known.
fn length(response: &Response) -> Option<u64> {
    if let Some(length) = response.body().size_hint().exact() {
        return Some(length);
    }
    let field = response.headers().get(CONTENT_LENGTH)?;
    field.to_str().ok()?.parse().ok()
}
