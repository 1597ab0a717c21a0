//! The request interceptor of contract §1 and §4.4: one piece of code for both programs.
//!
//! It decides from method, path and header fields alone whether a request passes, needs a token,
//! or asks for the current user. Verifying the token is the second step
//! ([`VerificationPolicy::verify_at`](crate::verifier::VerificationPolicy::verify_at)), so that a
//! cache can wrap that step and nothing else.

use http::{HeaderMap, Method};

use crate::{
    bearer::{self, Bearer},
    cors::AllowedOrigins,
    observer::{Fact, Observer, Unobserved},
    path_patterns::{ContextPath, PassList},
    rejection::Rejection,
    request_path::RequestPath,
};

/// The current-user endpoint of contract §4.2, relative to the context path.
pub const USER_DETAILS_PATH: &str = "/current/user/details";

/// What is to be done with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement<'a> {
    /// Pass-listed: goes on without a user, whatever credentials it carries.
    Pass,
    /// A CORS preflight of an allowed origin: the question of a browser, which carries no token.
    /// What is served here is answered here; the rest goes on without a user.
    Preflight {
        /// Whether the question is about the user-details endpoint.
        of_user_details: bool,
    },
    /// Goes on once this token is verified.
    NeedsToken(Bearer<'a>),
    /// Is answered with the current user once this token is verified.
    UserDetails(Bearer<'a>),
    /// Is refused.
    Reject(Rejection),
}

/// The configured interceptor.
#[derive(Debug, Clone)]
pub struct Interceptor {
    context: ContextPath,
    pass_list: PassList,
    max_authorization_bytes: usize,
    allowed_origins: AllowedOrigins,
}

impl Interceptor {
    /// `pass_list` is relative to `context`; `max_authorization_bytes` bounds the `Authorization`
    /// field's value.
    pub const fn new(
        context: ContextPath,
        pass_list: PassList,
        max_authorization_bytes: usize,
    ) -> Self {
        Self {
            context,
            pass_list,
            max_authorization_bytes,
            allowed_origins: AllowedOrigins::new(Vec::new()),
        }
    }

    /// Lets the preflights of these origins pass.
    #[must_use]
    pub fn with_allowed_origins(mut self, origins: AllowedOrigins) -> Self {
        self.allowed_origins = origins;
        self
    }

    /// The origins that were given.
    pub const fn allowed_origins(&self) -> &AllowedOrigins {
        &self.allowed_origins
    }

    /// Judges one request. `path` is the request target's path as it arrived, without the query:
    /// nothing else of the request (query, host, peer address, forwarded-for headers) has a say.
    pub fn judge<'a>(&self, method: &Method, path: &[u8], headers: &'a HeaderMap) -> Judgement<'a> {
        self.judge_observed(method, path, headers, &mut Unobserved)
    }

    /// The same while `observer` watches.
    pub fn judge_observed<'a>(
        &self,
        method: &Method,
        path: &[u8],
        headers: &'a HeaderMap,
        observer: &mut impl Observer,
    ) -> Judgement<'a> {
        self.try_judge(method, path, headers, observer)
            .unwrap_or_else(Judgement::Reject)
    }

    fn try_judge<'a>(
        &self,
        method: &Method,
        path: &[u8],
        headers: &'a HeaderMap,
        observer: &mut impl Observer,
    ) -> Result<Judgement<'a>, Rejection> {
        let harmless = !matches!(*method, Method::TRACE | Method::CONNECT);
        observer.check(
            "method",
            harmless.then_some(()).ok_or(Rejection::MethodNotAllowed),
        )?;
        let path = observer.check("path", RequestPath::parse(path))?;
        let relative = path
            .canonical()
            .and_then(|canonical| self.context.strip(canonical));
        if let Some(relative) = relative {
            observer.learned(Fact::RelativePath(relative));
        }
        let is_user_details = relative == Some(USER_DETAILS_PATH);
        if self.allowed_origins.is_preflight(method, headers) {
            observer.learned(Fact::Preflight);
            return Ok(Judgement::Preflight {
                of_user_details: is_user_details,
            });
        }
        if is_user_details && !matches!(*method, Method::GET | Method::HEAD) {
            return observer.check("method", Err(Rejection::MethodNotAllowed));
        }
        let pattern = relative
            .filter(|_| !is_user_details)
            .and_then(|path| self.pass_list.find(path));
        if let Some(pattern) = pattern {
            observer.learned(Fact::PassPattern(pattern));
            return Ok(Judgement::Pass);
        }
        let token = observer.check(
            "authorization",
            bearer::from_headers(headers, self.max_authorization_bytes)
                .and_then(|token| token.ok_or(Rejection::TokenMissing)),
        )?;
        Ok(if is_user_details {
            Judgement::UserDetails(token)
        } else {
            Judgement::NeedsToken(token)
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use http::{HeaderName, HeaderValue, header::AUTHORIZATION};

    use super::*;

    fn interceptor() -> Interceptor {
        Interceptor::new(
            "/orders".parse().unwrap(),
            PassList::parse(["/static/**", "/current/**"]).unwrap(),
            100,
        )
    }

    fn headers(fields: &[(HeaderName, &str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    fn kind(method: Method, path: &str, fields: &[(HeaderName, &str)]) -> String {
        match interceptor().judge(&method, path.as_bytes(), &headers(fields)) {
            Judgement::Pass => "pass".into(),
            Judgement::Preflight { of_user_details } => format!("preflight {of_user_details}"),
            Judgement::NeedsToken(_) => "token".into(),
            Judgement::UserDetails(_) => "user".into(),
            Judgement::Reject(rejection) => rejection.reason().into(),
        }
    }

    #[test]
    fn contract_4_4_every_path_is_intercepted_but_the_pass_list() {
        let token = [(AUTHORIZATION, "Bearer a.b.c")];
        for (path, without, with) in [
            ("/orders/static/a.css", "pass", "pass"),
            ("/orders/list", "token_missing", "token"),
            ("/static/a.css", "token_missing", "token"),
            ("/orders/static//a.css", "token_missing", "token"),
            (
                "/orders/static/../list",
                "path_not_canonical",
                "path_not_canonical",
            ),
            ("/orders/current/user/details", "token_missing", "user"),
            ("/orders/current/user/details/", "pass", "pass"),
        ] {
            assert_eq!(kind(Method::GET, path, &[]), without, "{path}");
            assert_eq!(kind(Method::GET, path, &token), with, "{path}");
        }
    }

    #[test]
    fn on_a_pass_listed_path_the_token_is_not_read() {
        let two = [(AUTHORIZATION, "Bearer ,"), (AUTHORIZATION, "Basic x")];
        assert_eq!(kind(Method::POST, "/orders/static/x", &two), "pass");
    }

    #[test]
    fn methods() {
        let token = [(AUTHORIZATION, "Bearer a.b.c")];
        for (method, path, expected) in [
            (Method::HEAD, "/orders/current/user/details", "user"),
            (
                Method::POST,
                "/orders/current/user/details",
                "method_not_allowed",
            ),
            (Method::TRACE, "/orders/static/x", "method_not_allowed"),
            (Method::CONNECT, "/orders/list", "method_not_allowed"),
            (Method::DELETE, "/orders/list", "token"),
        ] {
            assert_eq!(
                kind(method.clone(), path, &token),
                expected,
                "{method} {path}"
            );
        }
    }

    #[test]
    fn lesson_c23_a_preflight_passes_only_for_an_allowed_origin_and_never_by_its_path() {
        let origin = HeaderName::from_static("origin");
        let method = HeaderName::from_static("access-control-request-method");
        let asking = |of| [(origin.clone(), of), (method.clone(), "DELETE")];
        let allowed = AllowedOrigins::new(vec!["https://app.example".parse().unwrap()]);
        let with = interceptor().with_allowed_origins(allowed);
        let kind = |interceptor: &Interceptor, path: &str, of| {
            let headers = headers(&asking(of));
            match interceptor.judge(&Method::OPTIONS, path.as_bytes(), &headers) {
                Judgement::Preflight { of_user_details } => format!("preflight {of_user_details}"),
                Judgement::Reject(rejection) => rejection.reason().into(),
                other => format!("{other:?}"),
            }
        };
        for (path, of, expected) in [
            ("/orders/list", "https://app.example", "preflight false"),
            ("/orders//list", "https://app.example", "preflight false"),
            (
                "/orders/current/user/details",
                "https://app.example",
                "preflight true",
            ),
            ("/orders/../x", "https://app.example", "path_not_canonical"),
            ("/orders/list", "https://evil.example", "token_missing"),
            (
                "/orders/current/user/details",
                "https://evil.example",
                "method_not_allowed",
            ),
        ] {
            assert_eq!(kind(&with, path, of), expected, "{path} {of}");
        }
        assert_eq!(
            kind(&interceptor(), "/orders/list", "https://app.example"),
            "token_missing"
        );
    }

    #[test]
    fn no_other_header_opens_a_door() {
        for name in [
            "x-original-url",
            "x-rewrite-url",
            "x-forwarded-uri",
            "x-http-method-override",
        ] {
            let fields = [(HeaderName::from_static(name), "/orders/static/x")];
            assert_eq!(kind(Method::GET, "/orders/list", &fields), "token_missing");
        }
    }
}
