//! The request interceptor of contract §1 and §4.4: one piece of code for both programs.
//!
//! It decides from method, path and header fields alone whether a request passes, needs a token,
//! or asks for the current user. Verifying the token is the second step
//! ([`VerificationPolicy::verify_at`](crate::verifier::VerificationPolicy::verify_at)), so that a
//! cache can wrap that step and nothing else.

use http::{HeaderMap, Method};

use crate::{
    bearer::{self, Bearer},
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
        }
    }

    /// Judges one request. `path` is the request target's path as it arrived, without the query:
    /// nothing else of the request (query, host, peer address, forwarded-for headers) has a say.
    pub fn judge<'a>(&self, method: &Method, path: &[u8], headers: &'a HeaderMap) -> Judgement<'a> {
        self.try_judge(method, path, headers)
            .unwrap_or_else(Judgement::Reject)
    }

    fn try_judge<'a>(
        &self,
        method: &Method,
        path: &[u8],
        headers: &'a HeaderMap,
    ) -> Result<Judgement<'a>, Rejection> {
        if matches!(*method, Method::TRACE | Method::CONNECT) {
            return Err(Rejection::MethodNotAllowed);
        }
        let path = RequestPath::parse(path)?;
        let relative = path
            .canonical()
            .and_then(|canonical| self.context.strip(canonical));
        let is_user_details = relative == Some(USER_DETAILS_PATH);
        if is_user_details && !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Rejection::MethodNotAllowed);
        }
        if !is_user_details && relative.is_some_and(|path| self.pass_list.matches(path)) {
            return Ok(Judgement::Pass);
        }
        let token = bearer::from_headers(headers, self.max_authorization_bytes)?
            .ok_or(Rejection::TokenMissing)?;
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
