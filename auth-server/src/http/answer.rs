//! Envelopes as HTTP answers. Tokens, keys and users are in them: nothing may be kept by a cache.

use axum::body::Body;
use axum::response::Response;
use contract::envelope::Envelope;
use contract::rejection::Rejection;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use tracing::error;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A successful operation.
pub(super) fn ok<T: Serialize>(message: &'static str, data: T) -> Response {
    match Envelope::ok(message, data).to_json() {
        Ok(json) => json_answer(StatusCode::OK, json),
        Err(error) => {
            error!(%error, "an answer cannot be written as JSON");
            rejection(Rejection::Internal)
        }
    }
}

/// A refused request.
pub(super) fn rejection(rejection: Rejection) -> Response {
    // An envelope of constants: it cannot fail, and an empty body would still be an answer.
    let json = Envelope::rejection(rejection).to_json().unwrap_or_default();
    let mut response = json_answer(rejection.status(), json);
    add_fields(response.headers_mut(), rejection);
    response
}

/// A refusal with the methods that are allowed instead (RFC 9110 §15.5.6).
pub(super) fn method_not_allowed(allowed: &'static str) -> Response {
    let mut response = rejection(Rejection::MethodNotAllowed);
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

fn json_answer(status: StatusCode, json: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(json));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

fn add_fields(headers: &mut HeaderMap, rejection: Rejection) {
    if let Some(challenge) = rejection.www_authenticate() {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    if let Some(seconds) = rejection.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
}

/// A refusal as bytes, for requests that never became one; the connection closes after it.
pub(crate) fn rejection_on_the_wire(rejection: Rejection) -> Vec<u8> {
    let status = rejection.status();
    let json = Envelope::rejection(rejection).to_json().unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {} {}\r\n{CONTENT_TYPE}: application/json\r\n{CACHE_CONTROL}: no-store\r\n\
         x-content-type-options: nosniff\r\n{CONTENT_LENGTH}: {}\r\nconnection: close\r\n\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        json.len()
    );
    [head.as_bytes(), &json].concat()
}
