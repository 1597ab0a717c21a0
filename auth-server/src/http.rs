//! The HTTP surface: paths, and the order of the layers around the routes.

pub(crate) mod app;
mod body;
mod issuance;
pub(crate) mod middleware;
mod oauth;
mod possession;
mod response;
pub(crate) mod routes;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use postern_contract::interceptor::USER_DETAILS_PATH;
use postern_contract::rejection::Rejection;

use self::app::App;
use self::middleware::access_log::log_request;
use self::middleware::authenticate::authenticate_request;
use self::middleware::in_flight::with_permit;
use self::routes::dev::{dev_page, dev_token, for_this_machine};
use self::routes::static_files::static_file;
use self::routes::verification_key::verification_key;
use self::routes::{
    AUTHORIZE_PATH, BACKCHANNEL_LOGOUT_PATH, DEV_PAGE_PATH, DEV_TOKEN_PATH, JWKS_PATH, LOGIN_PATH,
    REVOCATIONS_PATH, REVOKE_PATH, TOKEN_PATH, VERIFICATION_KEY_PATH, authorize,
    backchannel_logout, current_user, jwks, login, revocations, revoke, server_metadata, token,
};
use crate::config::TREES;

/// Builds the router: every path below the context path, and the discovery documents where RFC 8414
/// §3 has them. Other paths are 404, after the token check.
pub(crate) fn router(app: Arc<App>) -> Router {
    let context = app.config.context_path.as_str();
    let path = |relative: &str| format!("{context}{relative}");
    // HEAD would count as a retrieval without handing out a key.
    let key = get(verification_key).head(only_get).fallback(only_get);
    let mut router = Router::new()
        .route(&path(LOGIN_PATH), post(login::login))
        .route(&path(TOKEN_PATH), post(token::token))
        .route(
            &path(AUTHORIZE_PATH),
            get(authorize::authorize).post(authorize::authorize),
        )
        .route(&path(VERIFICATION_KEY_PATH), key)
        .route(&path(JWKS_PATH), get(jwks::jwks))
        .route(&path(REVOCATIONS_PATH), get(revocations::revocations))
        .route(&path(REVOKE_PATH), post(revoke::revoke))
        .route(&path(USER_DETAILS_PATH), get(current_user::current_user));
    if !app.config.foreign_issuers.is_empty() {
        let receiver = post(backchannel_logout::backchannel_logout);
        router = router.route(&path(BACKCHANNEL_LOGOUT_PATH), receiver);
    }
    for path in server_metadata::paths(&app.config) {
        router = router.route(&path, get(server_metadata::server_metadata));
    }
    if app.config.any_claims {
        router = router
            .route(&path(DEV_TOKEN_PATH), post(dev_token))
            .route(&path(DEV_PAGE_PATH), get(dev_page));
    }
    for tree in TREES {
        for below in ["", "/", "/{*path}"] {
            router = router.route(&path(&format!("/{tree}{below}")), get(static_file));
        }
    }
    let router = router
        .fallback(async || response::rejection(Rejection::NotFound))
        .method_not_allowed_fallback(async || response::rejection(Rejection::MethodNotAllowed));
    let router = if app.config.any_claims {
        router.layer(from_fn(for_this_machine))
    } else {
        router
    };
    router
        .layer(from_fn_with_state(Arc::clone(&app), authenticate_request))
        .layer(from_fn_with_state(Arc::clone(&app), with_permit))
        .layer(from_fn_with_state(Arc::clone(&app), log_request))
        .with_state(app)
}

async fn only_get() -> Response {
    response::method_not_allowed("GET")
}

#[cfg(test)]
mod tests;
