//! `{ctx}/dev/`, which `auth-server dev` alone has: tokens with any claims, and a page to make them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY};
use postern_contract::rejection::Rejection;
use postern_http::host::loopback::names_this_machine;
use serde_json::{Map, Value, json};

use crate::http::app::App;
use crate::http::issuance::token_id;
use crate::http::oauth::AccessToken;
use crate::http::possession::Possession;
use crate::http::response::ErrorResponse;
use crate::http::routes::DEV_TOKEN_PATH;
use crate::http::{body, oauth};
use crate::tokens::issuer::{IssuedTimes, TOKEN_TYPE, sign};

const PAGE: &str = include_str!("dev/page.html");
/// The page is whole: it loads nothing, and talks to this server alone.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
     script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Member of the request that is no claim.
const LIFETIME: &str = "lifetime";
const NOT_AN_OBJECT: &str =
    "the body is no JSON object of claims, such as {\"roles\": [\"admin\"]}";
const NO_LIFETIME: &str = "lifetime is no whole number of seconds; -60 makes an expired token";
const FOREIGN_HOST: &str = "the Host field names no address of this machine";

/// Returns the requested claims, and the seconds until the token expires: negative for one that has
/// expired. An empty body requests the usual token.
fn parse(body: &[u8]) -> Result<(Map<String, Value>, Option<i64>), ErrorResponse> {
    if body.trim_ascii().is_empty() {
        return Ok((Map::new(), None));
    }
    let mut claims: Map<String, Value> =
        serde_json::from_slice(body).map_err(|_| malformed(NOT_AN_OBJECT))?;
    match claims.remove(LIFETIME) {
        Some(value) => match value.as_i64() {
            Some(lifetime) => Ok((claims, Some(lifetime))),
            None => Err(malformed(NO_LIFETIME)),
        },
        None => Ok((claims, None)),
    }
}

fn malformed(why: &'static str) -> ErrorResponse {
    ErrorResponse::from(Rejection::BodyMalformed).described(why)
}

pub(crate) async fn dev_token(State(app): State<Arc<App>>, request: Request) -> Response {
    match issue(&app, request).await {
        Ok(token) => oauth::success(&token),
        Err(error) => oauth::error(error),
    }
}

pub(crate) async fn dev_page() -> Response {
    let fields = [
        (CONTENT_SECURITY_POLICY, PAGE_POLICY),
        (CACHE_CONTROL, "no-cache"),
    ];
    (fields, Html(PAGE)).into_response()
}

async fn issue(app: &App, request: Request) -> Result<AccessToken, ErrorResponse> {
    let (parts, _, body) = body::receive(app, request).await;
    let (mut claims, lifetime) = parse(&body?)?;
    let possession = Possession {
        parts: &parts,
        path: DEV_TOKEN_PATH,
    };
    let binding = possession.binding(app, DEV_TOKEN_PATH, None)?;
    if let Some(binding) = &binding {
        claims.entry("cnf").or_insert(json!(binding));
    }
    let now = app.now();
    let issuer = &app.config.issuer;
    let token_id = token_id()?;
    let times = IssuedTimes::new(now, lifetime.unwrap_or(issuer.lifetime.into()));
    let claims = issuer.completed(claims, times, token_id.clone());
    let (token, _) = app.sign(token_id, |_, pair, _| sign(pair, TOKEN_TYPE, &claims))?;
    // The request may have given `exp` itself, even a time of the past.
    let seconds_left = claims
        .get("exp")
        .and_then(Value::as_i64)
        .map(|exp| exp.saturating_sub(now).max(0));
    Ok(AccessToken::new(token, seconds_left, binding.as_ref()))
}

/// Rejects clients that addressed another machine: a page of another site, whose name was made to resolve
/// to this one, could read the tokens, those of a login too.
pub(crate) async fn for_this_machine(request: Request, next: Next) -> Response {
    if names_this_machine(request.headers()) {
        return next.run(request).await;
    }
    let error = ErrorResponse::from(Rejection::RequestMalformed);
    oauth::error(error.described(FOREIGN_HOST))
}
