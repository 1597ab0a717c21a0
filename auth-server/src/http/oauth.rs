//! Forms and responses of the OAuth endpoints (RFC 6749), without an envelope.

mod client_authentication;

use axum::body::Body;
use axum::response::Response;
use http::header::{PRAGMA, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use postern_contract::rejection::Rejection;
use postern_http::form::Form;
use postern_token::possession::Binding;
use serde::Serialize;
use serde_json::json;

pub(in crate::http) use self::client_authentication::{Presented, is_access_token};
use super::body;
use super::response::{self, ErrorResponse};

const FORM: &str = "application/x-www-form-urlencoded";
const OTHER_TYPE: &str = "the body is not of the type application/x-www-form-urlencoded";
const NO_BODY: &str = "the body is empty: its parameters belong there, as a form";
const INVALID_CLIENT: &str = "invalid_client";
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
/// The scheme that a rejected application may use (RFC 6749 §5.2).
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"postern\"");

/// Parses the form of a request.
///
/// # Errors
/// [`Rejection::FormMalformed`], described.
pub(in crate::http) fn parse_form(headers: &HeaderMap, body: &[u8]) -> Result<Form, ErrorResponse> {
    body::check_coding(headers)?;
    let malformed =
        |description| ErrorResponse::from(Rejection::FormMalformed).described(description);
    match body::is_of_type(headers, FORM) {
        true => Form::parse(body).map_err(malformed),
        false if body.is_empty() => Err(malformed(NO_BODY)),
        false => Err(malformed(OTHER_TYPE)),
    }
}

/// Returns an error as RFC 6749 §5.2 writes it, with the reason code of this program; status, retry time and
/// the entry in the access log are the rejection's.
pub(in crate::http) fn error(error: ErrorResponse) -> Response {
    let code = code(error.rejection);
    let body = json!({
        "error": code,
        "error_description": error.description,
        "reason": error.rejection.reason(),
    });
    let mut response = response::rejection(error);
    *response.body_mut() = Body::from(body.to_string());
    // The challenge of the rejection is for bearer tokens.
    response.headers_mut().remove(WWW_AUTHENTICATE);
    match (response.status(), code) {
        (StatusCode::UNAUTHORIZED, INVALID_CLIENT) => {
            response.headers_mut().insert(WWW_AUTHENTICATE, CHALLENGE);
        }
        // RFC 6749 §5.2: no authentication of a client has failed.
        (StatusCode::UNAUTHORIZED, _) => *response.status_mut() = StatusCode::BAD_REQUEST,
        _ => {}
    }
    response.headers_mut().insert(PRAGMA, NO_CACHE);
    response
}

/// The successful response (RFC 6749 §5.1).
#[derive(Serialize)]
pub(in crate::http) struct AccessToken {
    pub(in crate::http) access_token: String,
    pub(in crate::http) token_type: &'static str,
    /// Seconds until the token expires: 0 for an expired token; absent for a token that never expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) expires_in: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) refresh_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) scope: Option<String>,
}

impl AccessToken {
    pub(in crate::http) fn new(
        access_token: String,
        expires_in: impl Into<Option<i64>>,
        binding: Option<&Binding>,
    ) -> Self {
        Self {
            access_token,
            token_type: token_type(binding),
            expires_in: expires_in.into(),
            refresh_token: None,
            scope: None,
        }
    }
}

/// Returns the scheme by which a token is sent (RFC 9449 §5).
pub(in crate::http) fn token_type(binding: Option<&Binding>) -> &'static str {
    match binding {
        Some(Binding { key: Some(_), .. }) => "DPoP",
        _ => "Bearer",
    }
}

/// Returns a success.
pub(in crate::http) fn success(token: &AccessToken) -> Response {
    let mut response = response::success(token);
    response.headers_mut().insert(PRAGMA, NO_CACHE);
    response
}

/// Returns the error code; conditions that pass have the codes of RFC 6749 §4.1.2.1, because §5.2 has no
/// codes for them.
fn code(rejection: Rejection) -> &'static str {
    match rejection {
        _ if rejection.retry_after().is_some() => "temporarily_unavailable",
        // All rejections of a proof have one code (RFC 9449 §5).
        _ if rejection.reason().starts_with("proof_") => "invalid_dpop_proof",
        // The refresh token is bound to another certificate (RFC 8705 §4).
        Rejection::CertificateMissing | Rejection::CertificateOther => "invalid_grant",
        Rejection::ApplicationUnknown => INVALID_CLIENT,
        Rejection::GrantUnsupported => "unsupported_grant_type",
        Rejection::GrantInvalid => "invalid_grant",
        Rejection::GrantNotAllowed => "unauthorized_client",
        Rejection::ScopeNotGranted => "invalid_scope",
        Rejection::ResourceNotGranted => "invalid_target",
        Rejection::ResponseTypeUnsupported => "unsupported_response_type",
        Rejection::Internal => "server_error",
        _ => "invalid_request",
    }
}
