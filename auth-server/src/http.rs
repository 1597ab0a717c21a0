//! The HTTP surface: one route, one file. What is common to all stands here: which paths there are
//! and in which order a request meets interception, routing and the envelope.

mod body;
pub(crate) mod middleware;
mod response;
pub(crate) mod routes;
pub(crate) mod unfinished;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::{get, post};
use contract::http::path_patterns::ContextPath;
use contract::interceptor::USER_DETAILS_PATH;
use contract::rejection::Rejection;

use self::middleware::access_log::{Reports, report};
use self::middleware::authenticate::{Interception, intercept};
use self::middleware::security_headers::security_headers;
pub(crate) use self::response::rejection_on_the_wire;
use self::routes::current_user::current_user;
use self::routes::jwks::{JWKS_PATH, Jwks, jwks};
use self::routes::login::{LOGIN_PATH, Login, login};
use self::routes::static_files::{self, StaticFiles, static_file};
use self::routes::verification_key::{SECRET_KEY_PATH, SecretKey, secret_key};

/// What the routes are made of.
pub(crate) struct Routes {
    pub(crate) reports: Reports,
    pub(crate) context_path: ContextPath,
    pub(crate) interception: Interception,
    pub(crate) login: Login,
    pub(crate) secret_key: SecretKey,
    pub(crate) jwks: Jwks,
    pub(crate) static_files: StaticFiles,
}

impl Routes {
    /// Every path of the contract below the context path; everything else is not found, once the
    /// token was seen.
    pub(crate) fn into_router(self) -> Router {
        let context = self.context_path.as_str().to_owned();
        let path = |relative: &str| format!("{context}{relative}");
        let static_files = get(static_file).with_state(Arc::new(self.static_files));

        let mut router = Router::new()
            .route(
                &path(LOGIN_PATH),
                post(login).with_state(Arc::new(self.login)),
            )
            .route(
                &path(SECRET_KEY_PATH),
                // HEAD would count as a retrieval that brings nobody a key.
                get(secret_key)
                    .head(only_get)
                    .fallback(only_get)
                    .with_state(Arc::new(self.secret_key)),
            )
            .route(&path(JWKS_PATH), get(jwks).with_state(Arc::new(self.jwks)))
            .route(&path(USER_DETAILS_PATH), get(current_user));
        for tree in static_files::TREES {
            for below in ["", "/", "/{*path}"] {
                router = router.route(&format!("{context}/{tree}{below}"), static_files.clone());
            }
        }
        router
            .fallback(async || response::rejection(Rejection::NotFound))
            .method_not_allowed_fallback(async || response::rejection(Rejection::MethodNotAllowed))
            .layer(from_fn_with_state(Arc::new(self.interception), intercept))
            .layer(map_response(security_headers))
            .layer(from_fn_with_state(self.reports, report))
    }
}

async fn only_get() -> Response {
    response::method_not_allowed("GET")
}

#[cfg(test)]
mod tests;
