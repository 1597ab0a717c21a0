//! The HTTP surface: one route, one file. What is common to all stands here: which paths there are
//! and in which order a request meets interception, routing and the envelope.

mod answer;
mod body;
pub(crate) mod client_address;
pub(crate) mod console;
pub(crate) mod current_user;
pub(crate) mod interception;
pub(crate) mod jwks;
pub(crate) mod login;
pub(crate) mod reports;
pub(crate) mod secret_key;
mod security_headers;
pub(crate) mod static_files;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::{get, post};
use contract::interceptor::USER_DETAILS_PATH;
use contract::path_patterns::ContextPath;
use contract::rejection::Rejection;

pub(crate) use self::answer::rejection_on_the_wire;
use self::current_user::current_user;
use self::interception::{Interception, intercept};
use self::jwks::{JWKS_PATH, Jwks, jwks};
use self::login::{LOGIN_PATH, Login, login};
use self::reports::{Reports, report};
use self::secret_key::{SECRET_KEY_PATH, SecretKey, secret_key};
use self::security_headers::security_headers;
use self::static_files::{StaticFiles, static_file};

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
            .fallback(async || answer::rejection(Rejection::NotFound))
            .method_not_allowed_fallback(async || answer::rejection(Rejection::MethodNotAllowed))
            .layer(from_fn_with_state(Arc::new(self.interception), intercept))
            .layer(map_response(security_headers))
            .layer(from_fn_with_state(self.reports, report))
    }
}

async fn only_get() -> Response {
    answer::method_not_allowed("GET")
}

#[cfg(test)]
mod tests;
