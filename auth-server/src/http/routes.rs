//! One route, one file. The table of their paths, below the context path, stands here.

pub(crate) mod authorize;
pub(crate) mod backchannel_logout;
pub(crate) mod current_user;
pub(crate) mod dev;
pub(crate) mod jwks;
pub(crate) mod login;
pub(crate) mod revocations;
pub(crate) mod revoke;
pub(crate) mod server_metadata;
pub(crate) mod static_files;
pub(crate) mod token;
pub(crate) mod verification_key;

use std::sync::Arc;

use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use postern_contract::interceptor::USER_DETAILS_PATH;

use super::app::App;
use super::response::method_not_allowed;
use crate::config::Config;

pub(crate) const LOGIN_PATH: &str = "/oauth/jwt/token";
pub(crate) const AUTHORIZE_PATH: &str = "/oauth/authorize";
pub(crate) const TOKEN_PATH: &str = "/oauth/token";
pub(crate) const REVOKE_PATH: &str = "/oauth/revoke";
pub(crate) const JWKS_PATH: &str = "/.well-known/jwks.json";
pub(crate) const REVOCATIONS_PATH: &str = "/.well-known/revocations";
pub(crate) const DEV_PAGE_PATH: &str = "/dev/";
pub(crate) const DEV_TOKEN_PATH: &str = "/dev/token";

/// The methods of a path that is only read.
pub(super) const READING: &str = "GET, HEAD";

/// A path below the context path, and what serves it.
pub(super) struct Route {
    pub(super) path: &'static str,
    pub(super) methods: fn() -> MethodRouter<Arc<App>>,
    /// Its methods, as `Allow` and a preflight name them.
    pub(super) allowed: &'static str,
    /// True if it needs no token, regardless of the pass list (contract §4.3: the controller ignores
    /// the user token; the token endpoint has credentials of its own).
    pub(super) is_exempt: bool,
}

/// Routes of every server.
static ROUTES: [Route; 9] = [
    Route::guarded(LOGIN_PATH, || post(login::login)).with_allowed("POST"),
    Route::exempt(TOKEN_PATH, || post(token::token)).with_allowed("POST"),
    Route::exempt(AUTHORIZE_PATH, || {
        get(authorize::authorize).post(authorize::authorize)
    })
    .with_allowed("GET, HEAD, POST"),
    Route::exempt("/client/user/secret/key", key_methods).with_allowed("GET"),
    Route::exempt(JWKS_PATH, || get(jwks::jwks)),
    Route::exempt(REVOCATIONS_PATH, || get(revocations::revocations)),
    Route::exempt(REVOKE_PATH, || post(revoke::revoke)).with_allowed("POST"),
    // Also without a [[logout]] table: the operator who set the issuer up gets the reason.
    Route::exempt("/oidc/backchannel-logout", || {
        post(backchannel_logout::backchannel_logout)
    })
    .with_allowed("POST"),
    Route::guarded(USER_DETAILS_PATH, || get(current_user::current_user)),
];

/// Routes of `auth-server dev`.
static DEV_ROUTES: [Route; 2] = [
    Route::exempt(DEV_TOKEN_PATH, || post(dev::dev_token)),
    Route::exempt(DEV_PAGE_PATH, || get(dev::dev_page)),
];

/// Returns the routes of a server.
pub(super) fn all(config: &Config) -> impl Iterator<Item = &'static Route> {
    let dev: &[Route] = if config.any_claims { &DEV_ROUTES } else { &[] };
    ROUTES.iter().chain(dev)
}

/// Returns the route with this path, compared exactly: no similar path is exempt.
pub(super) fn find(config: &Config, path: &str) -> Option<&'static Route> {
    let relative = path.strip_prefix(config.context_path.as_str())?;
    all(config).find(|route| route.path == relative)
}

impl Route {
    /// Creates a route behind the pass list.
    const fn guarded(path: &'static str, methods: fn() -> MethodRouter<Arc<App>>) -> Self {
        Self {
            path,
            methods,
            allowed: READING,
            is_exempt: false,
        }
    }

    /// Creates a route in front of the pass list.
    const fn exempt(path: &'static str, methods: fn() -> MethodRouter<Arc<App>>) -> Self {
        Self {
            is_exempt: true,
            ..Self::guarded(path, methods)
        }
    }

    const fn with_allowed(self, allowed: &'static str) -> Self {
        Self { allowed, ..self }
    }
}

fn key_methods() -> MethodRouter<Arc<App>> {
    // HEAD would count as a retrieval without handing out a key.
    get(verification_key::verification_key)
        .head(only_get)
        .fallback(only_get)
}

async fn only_get() -> Response {
    method_not_allowed("GET")
}
