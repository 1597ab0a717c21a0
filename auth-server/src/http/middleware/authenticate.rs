//! The interceptor of contract §4.4 in front of every route: the same decisions as in the sidecar,
//! and the current user for the routes.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderValue, Version, header};
use runtime::logs::access_log::LoggedPath;
use tracing::debug;
use wire::http::cors::Endpoint;
use wire::http::host;
use wire::http::path_patterns::ContextPath;
use wire::interceptor::{AuthRequirement, Interceptor, USER_DETAILS_PATH};
use wire::rejection::Rejection;
use wire::token::bearer::Bearer;
use wire::token::claims::Claims;
use wire::token::verifier::VerificationPolicy;

use crate::http::response;
use crate::http::routes::jwks::JWKS_PATH;
use crate::http::routes::login::LOGIN_PATH;
use crate::http::routes::revocations::REVOCATIONS_PATH;
use crate::http::routes::revoke::REVOKE_PATH;
use crate::http::routes::token::TOKEN_PATH;
use crate::http::routes::verification_key::VERIFICATION_KEY_PATH;
use crate::keys::live::LiveKeys;
use crate::revocations::log::RevocationLog;
use crate::store::clock::StoreClock;

/// Methods of all routes, for `Allow` on requests that no route accepts (TRACE, CONNECT).
const ANY_METHOD: &str = "GET,HEAD,POST";

/// Claims of the verified token, for the routes.
#[derive(Debug, Clone)]
pub(crate) struct CurrentUser(pub(crate) Claims);

pub(crate) struct Authentication {
    interceptor: Interceptor,
    policy: VerificationPolicy,
    live_keys: Arc<LiveKeys>,
    revocations: Arc<RevocationLog>,
    clock: Arc<StoreClock>,
    /// Exempt regardless of the pass list (contract §4.3: the controller ignores the user token; the
    /// token endpoint has credentials of its own); compared exactly, so that no similar path is
    /// exempt.
    exempt_paths: Vec<String>,
    user_details_path: String,
    /// Paths with CORS rules of their own.
    endpoints: [(String, Endpoint); 4],
}

impl Authentication {
    pub(crate) fn new(
        context: &ContextPath,
        interceptor: Interceptor,
        policy: VerificationPolicy,
        (live_keys, revocations): (Arc<LiveKeys>, Arc<RevocationLog>),
        clock: Arc<StoreClock>,
    ) -> Self {
        let path = |relative: &str| format!("{}{relative}", context.as_str());
        Self {
            endpoints: [
                (path(LOGIN_PATH), Endpoint::Login),
                (path(TOKEN_PATH), Endpoint::Login),
                (path(VERIFICATION_KEY_PATH), Endpoint::Key),
                (path(REVOKE_PATH), Endpoint::Login),
            ],
            exempt_paths: [
                VERIFICATION_KEY_PATH,
                JWKS_PATH,
                REVOCATIONS_PATH,
                REVOKE_PATH,
                TOKEN_PATH,
            ]
            .map(path)
            .into(),
            user_details_path: path(USER_DETAILS_PATH),
            interceptor,
            policy,
            live_keys,
            revocations,
            clock,
        }
    }

    /// Exempts these paths as well.
    pub(crate) fn exempt(mut self, paths: impl IntoIterator<Item = String>) -> Self {
        self.exempt_paths.extend(paths);
        self
    }

    fn authorize(&self, request: &Request, now: i64) -> Result<Access, Rejection> {
        check_host(request)?;
        let path = request.uri().path();
        let origins = self.interceptor.allowed_origins();
        let is_preflight = origins.is_preflight(request.method(), request.headers());
        if !is_preflight && self.exempt_paths.iter().any(|exempt| exempt == path) {
            return Ok(Access::Public);
        }
        match self
            .interceptor
            .classify(request.method(), path.as_bytes(), request.headers())
        {
            AuthRequirement::Pass => Ok(Access::Public),
            AuthRequirement::Preflight { .. } => Ok(Access::Preflight(self.endpoint(path))),
            AuthRequirement::Reject(rejection) => Err(rejection),
            AuthRequirement::NeedsToken(token) | AuthRequirement::UserDetails(token) => self
                .verify(token, now)
                .map(|user| Access::User(Box::new(user))),
        }
    }

    fn endpoint(&self, path: &str) -> Endpoint {
        let mut known = self.endpoints.iter();
        known
            .find(|(of_endpoint, _)| of_endpoint == path)
            .map_or(Endpoint::Reading, |(_, endpoint)| *endpoint)
    }

    fn verify(&self, token: Bearer<'_>, now: i64) -> Result<CurrentUser, Rejection> {
        let keys = self.live_keys.published();
        let keys = keys.ok_or(Rejection::AuthKeysUnavailable)?;
        let claims = self
            .policy
            .verify_at(keys.verification_keys(), token, now)?;
        if self.revocations.revokes(&claims) {
            return Err(Rejection::TokenRevoked);
        }
        Ok(CurrentUser(claims))
    }

    fn reject(&self, request: &Request, rejection: Rejection) -> Response {
        let path = request.uri().path();
        debug!(method = %request.method(), path = %LoggedPath(path.as_bytes()), reason = rejection.reason(), "request rejected");
        if rejection == Rejection::MethodNotAllowed {
            return response::method_not_allowed(self.allowed_methods(path));
        }
        response::rejection(rejection)
    }

    fn allowed_methods(&self, path: &str) -> &'static str {
        if path == self.user_details_path {
            return "GET,HEAD";
        }
        let known = self
            .endpoints
            .iter()
            .find(|(of_endpoint, _)| of_endpoint == path);
        match known {
            Some((_, Endpoint::Login)) => "POST",
            Some((_, Endpoint::Key)) => "GET",
            _ => ANY_METHOD,
        }
    }
}

enum Access {
    /// The path needs no token.
    Public,
    User(Box<CurrentUser>),
    /// A CORS preflight, with an immediate response on any path.
    Preflight(Endpoint),
}

/// Checks the Host field. The framing was checked before parsing (`wire::http::framing`).
fn check_host(request: &Request) -> Result<(), Rejection> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Err(Rejection::RequestMalformed),
        // RFC 9112 §3.2 requires the field in HTTP/1.1 only.
        (None, None) if request.version() != Version::HTTP_11 => Ok(()),
        (host, None) => host::check(host.map(HeaderValue::as_bytes)),
    }
}

pub(crate) async fn authenticate_request(
    State(authentication): State<Arc<Authentication>>,
    mut request: Request,
    next: Next,
) -> Response {
    match authentication.authorize(&request, authentication.clock.now()) {
        Err(rejection) => authentication.reject(&request, rejection),
        Ok(Access::Preflight(endpoint)) => response::preflight(endpoint),
        Ok(Access::Public) => next.run(request).await,
        Ok(Access::User(user)) => {
            request.extensions_mut().insert(*user);
            next.run(request).await
        }
    }
}
