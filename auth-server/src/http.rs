//! The HTTP surface: paths, and the order of the layers around the routes.

mod body;
pub(crate) mod issuance;
pub(crate) mod middleware;
mod oauth;
mod response;
pub(crate) mod routes;
pub(crate) mod unfinished;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::{get, post};
use wire::http::path_patterns::ContextPath;
use wire::interceptor::USER_DETAILS_PATH;
use wire::rejection::Rejection;

use self::middleware::access_log::{RequestLogger, log_request};
use self::middleware::authenticate::{Authentication, authenticate_request};
use self::middleware::in_flight::{InFlight, with_permit};
use self::middleware::security_headers::security_headers;
pub(crate) use self::response::raw_http1_response;
use self::routes::current_user::current_user;
use self::routes::dev::{DEV_PAGE_PATH, DEV_TOKEN_PATH, DevEndpoint, dev_page, dev_token};
use self::routes::jwks::{JWKS_PATH, Jwks, jwks};
use self::routes::login::{LOGIN_PATH, Login, login};
use self::routes::revocations::{REVOCATIONS_PATH, RevocationEndpoint, revocations};
use self::routes::revoke::{REVOKE_PATH, RevokeEndpoint, revoke};
use self::routes::server_metadata::{ServerMetadata, server_metadata};
use self::routes::static_files::{self, StaticFiles, static_file};
use self::routes::token::{TOKEN_PATH, TokenEndpoint, token};
use self::routes::verification_key::{KeyEndpoint, VERIFICATION_KEY_PATH, verification_key};

pub(crate) struct Routes {
    pub(crate) logger: RequestLogger,
    pub(crate) context_path: ContextPath,
    pub(crate) in_flight: InFlight,
    pub(crate) authentication: Authentication,
    pub(crate) login: Login,
    pub(crate) token: TokenEndpoint,
    /// `None` for an issuer that is no URL.
    pub(crate) metadata: Option<ServerMetadata>,
    pub(crate) verification_key: KeyEndpoint,
    pub(crate) jwks: Jwks,
    pub(crate) revocations: RevocationEndpoint,
    pub(crate) revoke: RevokeEndpoint,
    pub(crate) static_files: StaticFiles,
    /// Of `dev` alone.
    pub(crate) dev: Option<DevEndpoint>,
}

impl Routes {
    /// Builds the router: every path below the context path, and the discovery documents where RFC
    /// 8414 §3 has them. Other paths are 404, after the token check.
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
                &path(TOKEN_PATH),
                post(token).with_state(Arc::new(self.token)),
            )
            .route(
                &path(VERIFICATION_KEY_PATH),
                // HEAD would count as a retrieval without handing out a key.
                get(verification_key)
                    .head(only_get)
                    .fallback(only_get)
                    .with_state(Arc::new(self.verification_key)),
            )
            .route(&path(JWKS_PATH), get(jwks).with_state(Arc::new(self.jwks)))
            .route(
                &path(REVOCATIONS_PATH),
                get(revocations).with_state(Arc::new(self.revocations)),
            )
            .route(
                &path(REVOKE_PATH),
                post(revoke).with_state(Arc::new(self.revoke)),
            )
            .route(&path(USER_DETAILS_PATH), get(current_user));
        if let Some(metadata) = self.metadata.map(Arc::new) {
            for path in &metadata.paths {
                let document = get(server_metadata).with_state(Arc::clone(&metadata));
                router = router.route(path, document);
            }
        }
        if let Some(dev) = self.dev {
            let token = post(dev_token).with_state(Arc::new(dev));
            router = router
                .route(&path(DEV_TOKEN_PATH), token)
                .route(&path(DEV_PAGE_PATH), get(dev_page));
        }
        for tree in static_files::TREES {
            for below in ["", "/", "/{*path}"] {
                router = router.route(&format!("{context}/{tree}{below}"), static_files.clone());
            }
        }
        router
            .fallback(async || response::rejection(Rejection::NotFound))
            .method_not_allowed_fallback(async || response::rejection(Rejection::MethodNotAllowed))
            .layer(from_fn_with_state(
                Arc::new(self.authentication),
                authenticate_request,
            ))
            .layer(from_fn_with_state(self.in_flight, with_permit))
            .layer(map_response(security_headers))
            .layer(from_fn_with_state(self.logger, log_request))
    }
}

async fn only_get() -> Response {
    response::method_not_allowed("GET")
}

#[cfg(test)]
mod tests;
