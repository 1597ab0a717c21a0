//! Envelopes as HTTP responses. They hold tokens, keys and users, so no cache may store them.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderValue, StatusCode};
use postern_contract::envelope::{Envelope, Reason};
use postern_contract::rejection::Rejection;
use postern_http::cors::preflight_fields;
use serde::Serialize;
use tracing::{error, warn};

use super::middleware::security_headers;
use crate::rate_limit::RetryAfter;
use crate::store::StoreError;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(in crate::http) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// Content policy: a browser that takes an envelope for a page runs and loads nothing.
const NO_CONTENT: HeaderValue =
    HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

pub(in crate::http) fn ok<T: Serialize>(message: &'static str, data: T) -> Response {
    success(&Envelope::ok(message, data))
}

/// Returns a success with this value as its body.
pub(in crate::http) fn success(body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(json) => prepared(json.into()),
        Err(error) => {
            error!(%error, "a response cannot be serialized");
            rejection(Rejection::Internal)
        }
    }
}

/// Returns a success from a serialized body.
pub(in crate::http) fn prepared(json: Bytes) -> Response {
    json_response(StatusCode::OK, json)
}

/// A rejection with a retry time of its own, which may differ from the usual one of its reason code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorResponse {
    pub(in crate::http) rejection: Rejection,
    /// The cause for the client, in the forms that have a place for it.
    pub(in crate::http) description: &'static str,
    retry_after: Option<u32>,
}

/// The description of a rejected request that is more precise than the text of its reason code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cause(pub(crate) &'static str);

impl ErrorResponse {
    /// Describes the cause more precisely than the text of the reason code.
    pub(in crate::http) fn described(self, description: &'static str) -> Self {
        Self {
            description,
            ..self
        }
    }

    /// Returns true where the same request may succeed later.
    pub(in crate::http) const fn is_for_now(&self) -> bool {
        self.retry_after.is_some()
    }
}

impl From<Rejection> for ErrorResponse {
    fn from(rejection: Rejection) -> Self {
        Self {
            rejection,
            description: rejection.message(),
            retry_after: rejection.retry_after(),
        }
    }
}

impl From<RetryAfter> for ErrorResponse {
    fn from(wait: RetryAfter) -> Self {
        Self {
            retry_after: Some(wait.seconds()),
            ..Rejection::TooManyAttempts.into()
        }
    }
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        rejection(self)
    }
}

/// Returns the response to a CORS preflight, with the allowed methods (Fetch standard §3.2.2).
pub(in crate::http) fn preflight(allowed: &'static str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().extend(preflight_fields(allowed));
    response
}

/// Logs an error of the store, and its effect.
pub(in crate::http) fn store_rejection(error: &StoreError, effect: &str) -> Rejection {
    warn!(%error, "{effect}");
    match error {
        StoreError::Unclear(_) => Rejection::StoreOutcomeUnknown,
        StoreError::Busy => Rejection::ServerBusy,
        StoreError::Unavailable(_) | StoreError::Unusable(_) | StoreError::Replaced(_) => {
            Rejection::StoreUnavailable
        }
    }
}

/// Returns the body of a rejection. A person at a login does not see `Retry-After`.
fn envelope(error: ErrorResponse) -> Envelope<Reason> {
    let mut envelope = Envelope::rejection(error.rejection);
    envelope.msg = match (error.rejection, error.retry_after) {
        (Rejection::TooManyAttempts, Some(wait)) => {
            format!("{}; try again in {wait} s", error.description).into()
        }
        _ => error.description.into(),
    };
    envelope
}

/// Returns a rejection with the usual retry time of its reason code, or with one of its own.
pub(in crate::http) fn rejection(error: impl Into<ErrorResponse>) -> Response {
    let error = error.into();
    let rejection = error.rejection;
    // An envelope of constants cannot fail; an empty body would still be a valid response.
    let json = envelope(error).to_json().unwrap_or_default();
    let mut response = json_response(rejection.status(), json);
    let fields = response.headers_mut();
    if rejection == Rejection::BodyEncoding {
        // The accepted coding belongs to a 415 (RFC 9110 §15.5.16).
        fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    if let Some(challenge) = rejection.www_authenticate() {
        fields.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    if let Some(seconds) = error.retry_after {
        fields.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    // The access log reads the rejection from the extensions.
    response.extensions_mut().insert(rejection);
    if error.description != rejection.message() {
        response.extensions_mut().insert(Cause(error.description));
    }
    response
}

/// Returns a rejection with the allowed methods (RFC 9110 §15.5.6).
pub(in crate::http) fn method_not_allowed(allowed: &'static str) -> Response {
    let mut response = rejection(Rejection::MethodNotAllowed);
    let allowed = HeaderValue::from_static(allowed);
    response.headers_mut().insert(ALLOW, allowed);
    response
}

fn json_response(status: StatusCode, json: impl Into<Body>) -> Response {
    let mut response = Response::new(json.into());
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, JSON);
    fields.insert(CACHE_CONTROL, NO_STORE);
    fields.insert(CONTENT_SECURITY_POLICY, NO_CONTENT);
    response
}

/// Returns a rejection as bytes, for input that hyper cannot parse; the connection closes after it.
pub(in crate::http) fn raw_http1_response(rejection: Rejection) -> Vec<u8> {
    let mut response = self::rejection(rejection);
    security_headers::add(response.headers_mut());
    let status = response.status();
    let json = Envelope::rejection(rejection).to_json().unwrap_or_default();
    let mut wire = format!(
        "HTTP/1.1 {} {}\r\n{CONTENT_LENGTH}: {}\r\nconnection: close\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        json.len()
    )
    .into_bytes();
    for (name, value) in response.headers() {
        wire.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    wire.extend(b"\r\n");
    wire.extend(json);
    wire
}
