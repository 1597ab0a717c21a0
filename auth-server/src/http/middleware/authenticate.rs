//! The request interceptor of contract §4.4 in front of every route: the same decisions as in the
//! sidecar, and the current user for the routes behind it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use contract::http::cors::Endpoint;
use contract::http::host;
use contract::http::path_patterns::ContextPath;
use contract::interceptor::{Interceptor, Judgement, USER_DETAILS_PATH};
use contract::rejection::Rejection;
use contract::token::bearer::Bearer;
use contract::token::claims::Claims;
use contract::token::verifier::VerificationPolicy;
use http::{HeaderValue, Version, header};
use runtime::access_log::LoggedPath;
use runtime::clock::unix_now;
use tracing::debug;

use crate::http::response;
use crate::http::routes::jwks::JWKS_PATH;
use crate::http::routes::login::LOGIN_PATH;
use crate::http::routes::verification_key::SECRET_KEY_PATH;
use crate::keys::live::CurrentKey;

/// What this server knows at all, for what it refuses on every path (TRACE, CONNECT).
const ANY_METHOD: &str = "GET,HEAD,POST";

/// The user that the token of this request stands for.
#[derive(Debug, Clone)]
pub(crate) struct CurrentUser(pub(crate) Claims);

pub(crate) struct Interception {
    interceptor: Interceptor,
    policy: VerificationPolicy,
    current: Arc<CurrentKey>,
    /// Exempt by route (contract §4.3: the controller ignores the user token), whatever the pass
    /// list says: nothing that is only similar to these paths is exempt.
    exempt_paths: [String; 2],
    user_details_path: String,
    /// What a page may send where, besides what it may send anywhere.
    endpoints: [(String, Endpoint); 2],
}

impl Interception {
    pub(crate) fn new(
        context: &ContextPath,
        interceptor: Interceptor,
        policy: VerificationPolicy,
        current: Arc<CurrentKey>,
    ) -> Self {
        let path = |relative: &str| format!("{}{relative}", context.as_str());
        Self {
            endpoints: [
                (path(LOGIN_PATH), Endpoint::Login),
                (path(SECRET_KEY_PATH), Endpoint::Key),
            ],
            exempt_paths: [SECRET_KEY_PATH, JWKS_PATH].map(path),
            user_details_path: path(USER_DETAILS_PATH),
            interceptor,
            policy,
            current,
        }
    }

    fn admit(&self, request: &Request, now: i64) -> Result<Admitted, Rejection> {
        check_host(request)?;
        let path = request.uri().path();
        let origins = self.interceptor.allowed_origins();
        let is_preflight = origins.is_preflight(request.method(), request.headers());
        if !is_preflight && self.exempt_paths.iter().any(|exempt| exempt == path) {
            return Ok(Admitted::Anybody);
        }
        match self
            .interceptor
            .judge(request.method(), path.as_bytes(), request.headers())
        {
            Judgement::Pass => Ok(Admitted::Anybody),
            Judgement::Preflight { .. } => Ok(Admitted::Preflight(self.endpoint(path))),
            Judgement::Reject(rejection) => Err(rejection),
            Judgement::NeedsToken(token) | Judgement::UserDetails(token) => self
                .verify(token, now)
                .map(|user| Admitted::User(Box::new(user))),
        }
    }

    fn endpoint(&self, path: &str) -> Endpoint {
        let mut known = self.endpoints.iter();
        known
            .find(|(of_endpoint, _)| of_endpoint == path)
            .map_or(Endpoint::Reading, |(_, endpoint)| *endpoint)
    }

    fn verify(&self, token: Bearer<'_>, now: i64) -> Result<CurrentUser, Rejection> {
        let keys = self.current.published();
        let keys = keys.ok_or(Rejection::AuthKeysUnavailable)?;
        self.policy
            .verify_at(keys.verification_keys(), token, now)
            .map(CurrentUser)
    }

    fn refuse(&self, request: &Request, rejection: Rejection) -> Response {
        let path = request.uri().path();
        debug!(method = %request.method(), path = %LoggedPath(path.as_bytes()), reason = rejection.reason(), "request refused");
        if rejection == Rejection::MethodNotAllowed {
            let allowed = if path == self.user_details_path {
                "GET,HEAD"
            } else {
                ANY_METHOD
            };
            return response::method_not_allowed(allowed);
        }
        response::rejection(rejection)
    }
}

/// Who may go on.
enum Admitted {
    /// The path needs no token.
    Anybody,
    User(Box<CurrentUser>),
    /// A browser asks whether it may ask: it is answered at once, whatever the path.
    Preflight(Endpoint),
}

/// Checks whom the message is for. Where it ends was checked before it was parsed (`contract::http::framing`).
fn check_host(request: &Request) -> Result<(), Rejection> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Err(Rejection::RequestMalformed),
        // RFC 9112 §3.2 requires the field of HTTP/1.1 alone.
        (None, None) if request.version() != Version::HTTP_11 => Ok(()),
        (host, None) => host::check(host.map(HeaderValue::as_bytes)),
    }
}

/// The middleware in front of every route.
pub(crate) async fn intercept(
    State(interception): State<Arc<Interception>>,
    mut request: Request,
    next: Next,
) -> Response {
    match interception.admit(&request, unix_now()) {
        Err(rejection) => interception.refuse(&request, rejection),
        Ok(Admitted::Preflight(endpoint)) => response::preflight(endpoint),
        Ok(Admitted::Anybody) => next.run(request).await,
        Ok(Admitted::User(user)) => {
            request.extensions_mut().insert(*user);
            next.run(request).await
        }
    }
}
