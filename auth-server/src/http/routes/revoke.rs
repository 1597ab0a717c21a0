//! `POST {ctx}/oauth/revoke` (RFC 7009): ends an access token for its holder, as at a logout.
//!
//! The token is its own permission, so no application authenticates here. A token that is unknown,
//! expired or revoked already is a success: it is of no use any more.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use contract::api::envelope::MSG_OPERATION_SUCCEEDED;
use contract::rejection::Rejection;
use contract::token::bearer::{self, Bearer};
use contract::token::claims::Claims;
use contract::token::verifier::VerificationPolicy;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use runtime::clock::unix_now;
use serde_json::json;

use crate::http::body::MAX_BODY_BYTES;
use crate::http::unfinished::Unfinished;
use crate::http::{body, response};
use crate::keys::live::LiveKeys;
use crate::revocations::queue::{NotStored, RevocationQueue};
use crate::revocations::{KEEP_AFTER_EXPIRY, Revocation, Revoked};

pub(crate) const REVOKE_PATH: &str = "/oauth/revoke";

/// Of the store, for one write.
const STORE_TIMEOUT: Duration = Duration::from_secs(8);
/// A whole body may hold no longer token either.
const MAX_AUTHORIZATION_BYTES: usize = MAX_BODY_BYTES;
const FORM: &str = "application/x-www-form-urlencoded";

pub(crate) struct RevokeEndpoint {
    pub(crate) live_keys: Arc<LiveKeys>,
    pub(crate) policy: VerificationPolicy,
    pub(crate) queue: RevocationQueue,
    pub(crate) body_timeout: Duration,
    pub(crate) unfinished: Unfinished,
}

pub(crate) async fn revoke(State(state): State<Arc<RevokeEndpoint>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let read = body::read(body, state.body_timeout, state.unfinished.nothing_held()).await;
    let form = match read {
        Ok(form) => form,
        Err(rejection) => return response::rejection(rejection),
    };
    let outcome = match presented_token(&parts.headers, &form) {
        Ok(token) => state.revoke(token.as_str()).await,
        Err(description) => return invalid_request(description),
    };
    match outcome {
        Ok(()) => response::ok(MSG_OPERATION_SUCCEEDED, json!(null)),
        Err(rejection) => response::rejection(rejection),
    }
}

impl RevokeEndpoint {
    async fn revoke(&self, token: &str) -> Result<(), Rejection> {
        let keys = self.live_keys.published();
        let keys = keys.ok_or(Rejection::StoreUnavailable)?;
        let verified = Bearer::new(token).and_then(|token| {
            self.policy
                .verify_at(keys.verification_keys(), token, unix_now())
        });
        let Some(revocation) = verified.ok().and_then(revocation_of) else {
            return Ok(());
        };
        let stored = tokio::time::timeout(STORE_TIMEOUT, self.queue.submit(revocation)).await;
        stored
            .unwrap_or(Err(NotStored::StoreUnavailable))
            .map_err(|error| match error {
                NotStored::Busy => Rejection::ServerBusy,
                NotStored::StoreUnavailable => Rejection::StoreUnavailable,
            })
    }
}

/// Returns the revocation of a verified token; `None` for one without an id, which this server does
/// not issue.
fn revocation_of(claims: Claims) -> Option<Revocation> {
    Some(Revocation {
        until: claims.expires_at?.saturating_add(KEEP_AFTER_EXPIRY),
        revoked: Revoked::Token {
            id: claims.token_id?,
            user: Some(claims.user_id),
        },
        changed_by: None,
    })
}

/// Returns the `token` of the form, or else the one in `Authorization`.
fn presented_token(headers: &HeaderMap, form: &[u8]) -> Result<String, &'static str> {
    if form.is_empty() {
        let token = bearer::from_headers(headers, MAX_AUTHORIZATION_BYTES);
        let token = token.ok().flatten();
        return token
            .map(|token| token.as_str().to_owned())
            .ok_or("send the token as token in a form, or in the Authorization header");
    }
    if !is_form(headers) {
        return Err("the body must be application/x-www-form-urlencoded");
    }
    let mut tokens = form_urlencoded::parse(form).filter(|(name, _)| name == "token");
    match (tokens.next(), tokens.next()) {
        (Some((_, token)), None) if !token.is_empty() => Ok(token.into_owned()),
        _ => Err("the form needs one token"),
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    let mut fields = headers.get_all(CONTENT_TYPE).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return false;
    };
    let field = field.to_str().unwrap_or_default();
    let media_type = field.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case(FORM)
}

/// Returns the error as RFC 7009 §2.2.1 and RFC 6749 §5.2 write it.
fn invalid_request(description: &'static str) -> Response {
    let body = json!({"error": "invalid_request", "error_description": description});
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = Rejection::ParameterMissing.status();
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Read by the access log.
    response
        .extensions_mut()
        .insert(Rejection::ParameterMissing);
    response
}
