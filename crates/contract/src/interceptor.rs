//! The request interceptor of contract §1 and §4.4: one piece of code for both programs.
//!
//! The interceptor decides from method, path and header fields alone. The second step,
//! [`VerificationPolicy::verify_at`](postern_token::policy::VerificationPolicy::verify_at),
//! verifies the token, and is the only step that a cache may replace.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::rejection::Rejection;
use postern_http::cors::AllowedOrigins;
use postern_http::methods::{self, certain_method};
use postern_http::only_field::only_field;
use postern_http::path::canonical::RequestPath;
use postern_http::path::destination::Destination;
use postern_http::path::loose::LoosePath;
use postern_http::path::patterns::{ContextPath, PassList, PathPattern};
use postern_token::invalid::{InvalidProof, InvalidToken};
use postern_token::observer::{Observer, Unobserved};
use postern_token::possession::proof::DPOP;
use postern_token::sources::TokenSources;
use postern_token::sources::bearer::Bearer;

/// The current-user endpoint of contract §4.2, relative to the context path.
pub const USER_DETAILS_PATH: &str = "/current/user/details";

/// The next step for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthRequirement<'a> {
    /// On the pass list: forwarded without a user, whatever credentials it carries.
    Pass,
    /// A CORS preflight of an allowed origin, which carries no token. The programs respond to it
    /// for their own endpoints, and forward it without a user otherwise.
    Preflight {
        /// True for the user-details endpoint.
        of_user_details: bool,
    },
    /// Forwarded once this token is verified.
    NeedsToken(Bearer<'a>),
    /// Gets the current user as its response once this token is verified.
    UserDetails(Bearer<'a>),
}

/// The configured interceptor.
#[derive(Debug, Clone)]
pub struct Interceptor {
    context: ContextPath,
    pass_list: PassList,
    optional: PassList,
    sources: TokenSources,
    max_authorization_bytes: usize,
    allowed_origins: AllowedOrigins,
    /// True if rules compare the paths, too.
    has_rules: bool,
}

impl Interceptor {
    /// Creates an interceptor. `pass_list` is relative to `context`; `max_authorization_bytes`
    /// bounds the `Authorization` field's value.
    pub fn new(context: ContextPath, pass_list: PassList, max_authorization_bytes: usize) -> Self {
        Self {
            context,
            pass_list,
            optional: PassList::default(),
            sources: TokenSources::default(),
            max_authorization_bytes,
            allowed_origins: AllowedOrigins::new(Vec::new()),
            has_rules: true,
        }
    }

    /// Says that rules compare paths too, beside the pass list and the optional paths.
    #[must_use]
    pub fn with_rules(self, has_rules: bool) -> Self {
        Self { has_rules, ..self }
    }

    /// Lets the preflights of these origins pass.
    #[must_use]
    pub fn with_allowed_origins(mut self, origins: AllowedOrigins) -> Self {
        self.allowed_origins = origins;
        self
    }

    /// Returns the context path.
    pub const fn context(&self) -> &ContextPath {
        &self.context
    }

    /// Returns the paths that need no token.
    pub const fn pass_list(&self) -> &PassList {
        &self.pass_list
    }

    /// Returns the paths on which a token may be missing.
    pub const fn optional(&self) -> &PassList {
        &self.optional
    }

    /// Returns the allowed origins.
    pub const fn allowed_origins(&self) -> &AllowedOrigins {
        &self.allowed_origins
    }

    /// Returns the fields that let the page of an allowed origin read our response to its request.
    pub fn cors_fields(&self, headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
        self.allowed_origins
            .response_fields(headers, &self.sources.cookie_origins)
    }

    /// Accepts tokens from these places too.
    #[must_use]
    pub fn with_sources(self, sources: TokenSources) -> Self {
        Self { sources, ..self }
    }

    /// Accepts tokens from these headers too, before `Authorization`.
    #[must_use]
    pub fn with_token_headers(mut self, headers: Vec<HeaderName>) -> Self {
        self.sources.headers = headers;
        self
    }

    /// Lets requests without a token pass on these paths, relative to the context path. A token
    /// that is present is verified there as elsewhere.
    #[must_use]
    pub fn with_optional(self, optional: PassList) -> Self {
        Self { optional, ..self }
    }

    /// Returns true for the raw path of the user-details endpoint.
    pub fn is_user_details(&self, path: &[u8]) -> bool {
        match RequestPath::parse(path) {
            Ok(path) => self.context.strip(&path) == Some(USER_DETAILS_PATH),
            Err(_) => false,
        }
    }

    /// Returns the places of a token.
    pub const fn sources(&self) -> &TokenSources {
        &self.sources
    }

    /// Returns the token from the first place that has one; the protocols of a WebSocket count if
    /// the request `opens_websocket`. A malformed token is an error, never skipped.
    ///
    /// # Errors
    /// The rejection for the malformed field.
    pub fn token<'a>(
        &self,
        headers: &'a HeaderMap,
        opens_websocket: bool,
    ) -> Result<Option<Bearer<'a>>, InvalidToken> {
        self.token_observed(headers, opens_websocket, &mut Unobserved)
    }

    fn token_observed<'a>(
        &self,
        headers: &'a HeaderMap,
        opens_websocket: bool,
        observer: &mut impl Observer,
    ) -> Result<Option<Bearer<'a>>, InvalidToken> {
        if self.sources.takes_proofs {
            // Beside any token: of two proofs the service may read the other one.
            only_field(headers, &DPOP).map_err(|_| InvalidProof::Repeated)?;
        }
        self.sources.token(
            headers,
            self.max_authorization_bytes,
            opens_websocket,
            observer,
        )
    }

    /// Classifies one request. `path` is the request target's raw path without the query: query,
    /// host, peer address and forwarded-for headers have no influence.
    ///
    /// # Errors
    /// A rejection that no token could change, or the rejection of a request without a token.
    pub fn classify<'a>(
        &self,
        method: &Method,
        path: &[u8],
        headers: &'a HeaderMap,
    ) -> Result<AuthRequirement<'a>, Rejection> {
        self.classify_observed(method, path, headers, false, false, &mut Unobserved)
    }

    /// Classifies a request that may open a WebSocket or have a body, and reports the steps to
    /// `observer`.
    ///
    /// # Errors
    /// As [`Self::classify`].
    pub fn classify_observed<'a>(
        &self,
        method: &Method,
        path: &[u8],
        headers: &'a HeaderMap,
        opens_websocket: bool,
        has_body: bool,
        observer: &mut impl Observer,
    ) -> Result<AuthRequirement<'a>, Rejection> {
        observer.check("method", methods::check(method))?;
        let path = observer.check("path", self.checked_path(path))?;
        let relative = self.context.strip(&path);
        let is_user_details = relative == Some(USER_DETAILS_PATH);
        // Before a token is needed: browsers send preflights without a token (Fetch standard).
        // `has_body`, because over HTTP/2 no field announces a body.
        if !has_body && self.allowed_origins.is_preflight(method, headers) {
            observer.skipped("authorization", "a preflight of an allowed origin");
            return Ok(AuthRequirement::Preflight {
                of_user_details: is_user_details,
            });
        }
        if is_user_details && !matches!(*method, Method::GET | Method::HEAD) {
            return observer.check("method", Err(Rejection::MethodNotAllowed));
        }
        // The current user is never public, whatever a pattern says.
        let open = if is_user_details { None } else { relative };
        if let Some(pattern) = self.pattern_of(&self.pass_list, method, headers, open) {
            observer.learned("path", describe_opening(relative, pattern));
            return Ok(AuthRequirement::Pass);
        }
        // After the public paths, where even a malformed token is no error.
        let token = self.token_observed(headers, opens_websocket, observer);
        // Only without a token: an invalid token is rejected on optional paths as well.
        if token == Ok(None)
            && let Some(pattern) = self.pattern_of(&self.optional, method, headers, open)
        {
            observer.learned("path", describe_opening(relative, pattern));
            observer.skipped("authorization", "a token may be missing here, and it is");
            return Ok(AuthRequirement::Pass);
        }
        match relative {
            Some(path) => observer.learned("path", format_args!("{path} matches no public path")),
            None => observer.learned("path", never_open(&path, &self.context)),
        }
        let token = match token {
            Ok(token) => token.ok_or(Rejection::TokenMissing),
            Err(invalid) => Err(invalid.into()),
        };
        let token = observer.check("authorization", token)?;
        if is_user_details {
            Ok(AuthRequirement::UserDetails(token))
        } else {
            Ok(AuthRequirement::NeedsToken(token))
        }
    }

    /// Checks a raw path. A separator may be hidden where nothing compares paths.
    fn checked_path<'p>(&self, raw: &'p [u8]) -> Result<RequestPath<'p>, Rejection> {
        let path = RequestPath::parse(raw)?;
        let mut lists = [&self.pass_list, &self.optional].into_iter();
        let compares = self.has_rules || lists.any(|list| !list.patterns().is_empty());
        if compares && path.hides_separators() {
            Err(Rejection::PathNotCanonical)
        } else {
            Ok(path)
        }
    }

    /// Returns the pattern that opens a path to a request; `None` unless a pattern opens its destination,
    /// too.
    fn pattern_of<'l>(
        &self,
        list: &'l PassList,
        method: &Method,
        headers: &HeaderMap,
        path: Option<&str>,
    ) -> Option<&'l PathPattern> {
        let path = path?;
        let certain = if list.depends_on_method() {
            certain_method(method, headers)
        } else {
            Some(method)
        };
        let pattern = list.find_for(certain, path)?;
        // The service writes to the destination: both paths need a pattern, or neither is public.
        if let Some(destination) = Destination::from_request(method, headers).ok()? {
            let path = RequestPath::parse(destination.path).ok()?;
            list.find_for(certain, self.context.strip(&path)?)?;
        }
        Some(pattern)
    }
}

/// Describes a path that no pattern opens, for an explanation.
fn never_open(path: &RequestPath<'_>, context: &ContextPath) -> impl fmt::Display {
    fmt::from_fn(move |f| match LoosePath::below(path, context) {
        Err(why) => write!(f, "never public: {why}"),
        Ok(_) => write!(f, "never public: the context path is {context}, spelt so"),
    })
}

/// Describes a path that a pattern opens, for an explanation.
fn describe_opening(relative: Option<&str>, pattern: &PathPattern) -> impl fmt::Display {
    let (path, pattern) = (relative.unwrap_or_default(), pattern.as_str());
    fmt::from_fn(move |f| write!(f, "{path} is open: {pattern}"))
}

#[cfg(test)]
mod tests;
