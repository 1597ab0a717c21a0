//! The outermost layer: access log, rejection counter, headers of every response and request id.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{Method, Uri};
use runtime::logs::access_log::{AccessLine, LoggedPath};
use wire::http::trace::{REQUEST_ID, RequestId, TraceId};
use wire::rejection::Rejection;

use super::security_headers;
use super::server_span::ServerSpan;
use crate::app::App;
use crate::audit::events::RequestIds;
use crate::http::response::raw_http1_response;
use crate::random;

struct RequestRecord {
    method: Method,
    uri: Uri,
    client: IpAddr,
    ids: RequestIds,
    began: Instant,
}

fn log(app: &App, record: &RequestRecord, response: &Response) {
    let rejection = response.extensions().get::<Rejection>();
    let duration = record.began.elapsed();
    app.metrics().responded(response.status(), Some(duration));
    if let Some(rejection) = rejection {
        app.metrics().rejected(*rejection);
    }
    let reason = rejection.map(|rejection| rejection.reason());
    if !app.config.access_log.wants(reason) {
        return;
    }
    AccessLine {
        outcome: outcome(rejection.is_some()),
        reason,
        status: Some(response.status().as_u16()),
        method: Some(record.method.as_str()),
        path: Some(LoggedPath(record.uri.path().as_bytes())),
        client: Some(record.client),
        duration: Some(duration),
        bytes: response.body().size_hint().exact(),
        request_id: Some(&record.ids.request_id),
        trace_id: record.ids.trace_id,
        ..AccessLine::default()
    }
    .write();
}

/// Logs input that never became a request, and returns its response as bytes.
pub(crate) fn reject_unparsed(app: &App, rejection: Rejection, client: IpAddr) -> Vec<u8> {
    app.metrics().rejected(rejection);
    app.metrics().responded(rejection.status(), None);
    if app.config.access_log.wants(Some(rejection.reason())) {
        AccessLine {
            outcome: outcome(true),
            reason: Some(rejection.reason()),
            status: Some(rejection.status().as_u16()),
            client: Some(client),
            ..AccessLine::default()
        }
        .write();
    }
    raw_http1_response(rejection)
}

const fn outcome(rejected: bool) -> &'static str {
    if rejected { "refused" } else { "answered" }
}

pub(crate) async fn log_request(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let span = ServerSpan::begin(&request);
    let headers = request.headers();
    let record = RequestRecord {
        method: request.method().clone(),
        uri: request.uri().clone(),
        client: app.client_of(request.extensions(), headers),
        ids: RequestIds {
            request_id: RequestId::received(headers)
                .unwrap_or_else(|| RequestId::new(random::number())),
            trace_id: span.trace_id().or_else(|| TraceId::received(headers)),
        },
        began: Instant::now(),
    };
    let cors = app.config.interceptor.allowed_origins();
    let cors = cors.response_fields(headers);
    request.extensions_mut().insert(record.ids.clone());
    let mut response = next.run(request).await;
    let fields = response.headers_mut();
    security_headers::add(fields);
    // Appended: a response may have a `Vary` of its own.
    for (name, value) in cors {
        fields.append(name, value);
    }
    fields.insert(REQUEST_ID, record.ids.request_id.value().clone());
    log(&app, &record, &response);
    span.end(record.client, &response);
    response
}
