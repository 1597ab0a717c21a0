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
use axum::routing::get;
use postern_contract::rejection::Rejection;

use self::app::App;
use self::middleware::access_log::log_request;
use self::middleware::authenticate::authenticate_request;
use self::middleware::in_flight::with_permit;
use self::routes::dev::for_this_machine;
use self::routes::server_metadata;
use self::routes::static_files::static_file;
use crate::config::TREES;

/// Builds the router: every path below the context path, and the discovery documents where RFC 8414
/// §3 has them. Other paths are 404, after the token check.
pub(crate) fn router(app: Arc<App>) -> Router {
    let context = app.config.context_path.as_str();
    let path = |relative: &str| format!("{context}{relative}");
    let mut router = Router::new();
    for route in routes::all(&app.config) {
        router = router.route(&path(route.path), (route.methods)());
    }
    for path in server_metadata::paths(&app.config) {
        router = router.route(&path, get(server_metadata::server_metadata));
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

#[cfg(test)]
mod tests;
