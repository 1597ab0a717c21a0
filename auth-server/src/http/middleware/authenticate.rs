//! The interceptor of contract §4.4 in front of every route: the same decisions as in the sidecar,
//! and the current user for the routes.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderValue, Version, header};
use postern_contract::interceptor::AuthRequirement;
use postern_contract::rejection::Rejection;
use postern_http::cors;
use postern_http::host;
use postern_http::invalid::InvalidRequest;
use postern_http::only_field::{Repeated, only_field};
use postern_process::logs::access_log::LoggedPath;
use postern_token::claims::Claims;
use postern_token::sources::bearer::Bearer;
use tracing::debug;

use crate::config::Config;
use crate::http::app::App;
use crate::http::response;
use crate::http::routes::{self, JWKS_PATH, READING, server_metadata};

/// Returns true for a path that needs no token, regardless of the pass list.
fn is_exempt(config: &Config, path: &str) -> bool {
    routes::find(config, path).is_some_and(|route| route.is_exempt)
        || is_public_document(config, path)
}

/// Returns true for a document that is the same for everyone, so that any page may read it.
pub(super) fn is_public_document(config: &Config, path: &str) -> bool {
    path.strip_prefix(config.context_path.as_str()) == Some(JWKS_PATH)
        // The paths of the metadata are not made for the many requests that cannot have one of them.
        || path.contains("/.well-known/") && server_metadata::paths(config).contains(path)
}

/// Returns the methods of a path, for a preflight and as `Allow`.
fn methods(config: &Config, path: &str) -> &'static str {
    routes::find(config, path).map_or(READING, |route| route.allowed)
}

fn authorize(app: &App, request: &Request) -> Result<Access, Rejection> {
    check_host(request)?;
    let path = request.uri().path();
    let method = request.method();
    let headers = request.headers();
    let interceptor = &app.config.interceptor;
    // From any origin: the document is the same for everyone.
    if is_public_document(&app.config, path) && cors::is_preflight(method, headers) {
        return Ok(Access::Preflight(READING));
    }
    let is_preflight = interceptor.allowed_origins().is_preflight(method, headers);
    // A preflight of an exempt path has CORS rules all the same.
    if !is_preflight && is_exempt(&app.config, path) {
        return Ok(Access::Public);
    }
    match interceptor.classify(method, path.as_bytes(), headers)? {
        AuthRequirement::Pass => Ok(Access::Public),
        AuthRequirement::Preflight { .. } => Ok(Access::Preflight(methods(&app.config, path))),
        AuthRequirement::NeedsToken(token) | AuthRequirement::UserDetails(token) => {
            Ok(Access::User(Box::new(verify(app, token)?)))
        }
    }
}

fn verify(app: &App, token: Bearer<'_>) -> Result<Claims, Rejection> {
    let keys = app
        .live_keys
        .load_full()
        .ok_or(Rejection::AuthKeysUnavailable)?;
    let policy = &app.config.policy;
    let claims = policy.verify_at(&keys.verification_keys, token, app.now())?;
    // After the signature: what was never issued is no revoked token.
    if app.revocations.revokes(&claims) {
        return Err(Rejection::TokenRevoked);
    }
    Ok(claims)
}

fn reject(app: &App, request: &Request, rejection: Rejection) -> Response {
    let path = request.uri().path();
    debug!(
        method = %request.method(),
        path = %LoggedPath(path.as_bytes()),
        reason = rejection.reason(),
        "request rejected"
    );
    if rejection != Rejection::MethodNotAllowed {
        return response::rejection(rejection);
    }
    // No route has seen the request (TRACE, CONNECT).
    response::method_not_allowed(methods(&app.config, path))
}

enum Access {
    /// The path needs no token.
    Public,
    /// With the claims of the verified token, for the routes.
    User(Box<Claims>),
    /// A CORS preflight, with an immediate response on any path: the methods that it allows.
    Preflight(&'static str),
}

/// Checks the Host field. The framing was checked before parsing (`postern_http::framing`).
fn check_host(request: &Request) -> Result<(), InvalidRequest> {
    let field = only_field(request.headers(), &header::HOST);
    match field.map_err(|Repeated| InvalidRequest::Malformed)? {
        // RFC 9112 §3.2 requires the field in HTTP/1.1 only.
        None if request.version() != Version::HTTP_11 => Ok(()),
        host => host::check(host.map(HeaderValue::as_bytes)),
    }
}

pub(crate) async fn authenticate_request(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    match authorize(&app, &request) {
        Err(rejection) => return reject(&app, &request, rejection),
        Ok(Access::Preflight(methods)) => return response::preflight(methods),
        Ok(Access::Public) => {}
        Ok(Access::User(claims)) => drop(request.extensions_mut().insert(*claims)),
    }
    next.run(request).await
}
