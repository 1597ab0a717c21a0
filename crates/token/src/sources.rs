//! The places of a token: `Authorization` and the configured places.

pub mod bearer;
pub mod cookie;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};

use self::bearer::{Bearer, Scheme};
use crate::invalid::InvalidToken;
use crate::observer::Observer;
use postern_http::cors::AllowedOrigins;

/// The only scheme in front of a token outside of `Authorization`.
const BEARER: [Scheme; 1] = [Scheme::Bearer];

/// Places of a token besides `Authorization`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenSources {
    /// Headers in which proxies in front send a bare token. Only these headers come before `Authorization`.
    pub headers: Vec<HeaderName>,
    /// The name of the cookie.
    pub cookie: Option<String>,
    /// Origins whose pages may send that cookie, or have a proxy add one of the headers, with
    /// requests that change something.
    pub cookie_origins: AllowedOrigins,
    /// True for `Sec-WebSocket-Protocol`, after `bearer`, of a request that opens a WebSocket.
    pub websocket_protocol: bool,
    /// True for `Authorization: DPoP` too: proofs are verified.
    pub takes_proofs: bool,
}

impl TokenSources {
    /// Returns the token of at most `max_bytes` from the first place that has one, and reports that
    /// place to `observer`; the protocols of a WebSocket count if the request `opens_websocket`. A
    /// malformed token is an error, never skipped.
    ///
    /// # Errors
    /// The rejection for the malformed field.
    pub fn token<'a, O: Observer>(
        &self,
        headers: &'a HeaderMap,
        max_bytes: usize,
        opens_websocket: bool,
        observer: &mut O,
    ) -> Result<Option<Bearer<'a>>, InvalidToken> {
        // The places are read in a fixed order, so that two tokens never make the decision ambiguous.
        let mut token = bearer::from_token_headers(headers, &self.headers, max_bytes)?;
        if let Some(name) = token.and_then(|token| self.headers.get(token.location().header()?)) {
            observer.learned("from", name.as_str());
        }
        if token.is_none() {
            token = bearer::from_headers(headers, max_bytes, self.takes_proofs)?;
        }
        if token.is_none() && opens_websocket && self.websocket_protocol {
            token = bearer::from_websocket_protocol(headers, max_bytes)?;
        }
        if let (None, Some(name)) = (token, &self.cookie) {
            let found = cookie::token_of(headers, name, max_bytes);
            // Reported for a malformed cookie too, whose error alone would not name the place.
            if found != Ok(None) {
                observer.learned("from", format_args!("the cookie {name}"));
            }
            token = found?;
            if O::WATCHES
                && token.is_none()
                && let Some(part) = cookie::part_of(headers, name)
            {
                let why = "cookies that hold parts of a token are not joined: shorten it, or store it whole";
                observer.learned("found", format_args!("no cookie {name}, but {part}; {why}"));
            }
        }
        Ok(token)
    }

    /// Describes the value for which [`Self::token`] is an error, without a quote; `None` without a value.
    pub fn unreadable(&self, headers: &HeaderMap, opens_websocket: bool) -> Option<String> {
        let schemes: &[Scheme] = if self.takes_proofs {
            &[Scheme::Bearer, Scheme::Dpop]
        } else {
            &BEARER
        };
        let field = |name: &HeaderName, schemes, may_be_bare| {
            let found = bearer::unreadable(headers.get(name)?.as_bytes(), schemes, may_be_bare);
            Some(format!("`{name}`: {found}"))
        };
        let mut token_headers = self.headers.iter();
        // In the order in which a token is read: headers, `Authorization`, protocol, cookie.
        let in_token_header = token_headers.find_map(|name| field(name, &BEARER, true));
        if let Some(found) = in_token_header.or_else(|| field(&AUTHORIZATION, schemes, false)) {
            return Some(found);
        }
        let protocol = opens_websocket && self.websocket_protocol;
        if protocol && bearer::from_websocket_protocol(headers, usize::MAX).is_err() {
            return Some("no token follows `bearer`, or characters that none has".to_owned());
        }
        let name = self.cookie.as_ref()?;
        let found = bearer::unreadable(cookie::first_value(headers, name)?, &BEARER, true);
        Some(format!("the cookie `{name}`: {found}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::Unobserved;
    use crate::observer::tests::Facts;
    use crate::sources::bearer::TokenLocation;
    use token_corpus::fields::headers;

    #[test]
    fn a_token_is_taken_only_from_configured_locations() {
        use TokenLocation::{Authorization, Cookie, Header, WebSocketProtocol};
        let assertion = ("x-assertion", "p.r.x");
        let cookie = ("cookie", "t=c.o.k");
        let protocol = ("sec-websocket-protocol", "bearer, w.s.p");
        let bearer = ("authorization", "Bearer a.b.c");
        let all = TokenSources {
            headers: vec![HeaderName::from_static(assertion.0)],
            cookie: Some("t".to_owned()),
            websocket_protocol: true,
            ..TokenSources::default()
        };
        let none = TokenSources::default();
        let [of_cookie, of_protocol] =
            [Some(("c.o.k", Cookie)), Some(("w.s.p", WebSocketProtocol))];
        let (of_bearer, of_header) = (
            Some(("a.b.c", Authorization(Scheme::Bearer))),
            Some(("p.r.x", Header(0))),
        );
        let every = [cookie, protocol, bearer, assertion];
        for (sources, opens_websocket, fields, token) in [
            (&none, true, &[cookie, protocol, assertion][..], None),
            (&all, true, &every[..1], of_cookie),
            (&all, true, &every[..2], of_protocol),
            (&all, false, &every[..2], of_cookie),
            (&all, false, &every[1..2], None),
            (&all, true, &every[..3], of_bearer),
            (&all, true, &every, of_header),
        ] {
            let headers = headers(fields);
            let found = sources.token(&headers, 100, opens_websocket, &mut Unobserved);
            let found = found.map(|found| found.map(|it| (it.as_str(), it.location())));
            assert_eq!(found, Ok(token), "{headers:?} {opens_websocket}");
        }
    }

    #[test]
    fn a_token_that_cannot_be_read_is_described_and_hides_no_other() {
        let sources = TokenSources {
            headers: vec![HeaderName::from_static("x-assertion")],
            cookie: Some("t".to_owned()),
            websocket_protocol: true,
            ..TokenSources::default()
        };
        let cookie = ("cookie", "t=c.o.k");
        let protocols = |value| ("sec-websocket-protocol", value);
        let of_protocol = "no token follows `bearer`";
        for (fields, found) in [
            (
                &[("x-assertion", ""), cookie][..],
                "`x-assertion`: the token is empty",
            ),
            (
                &[("x-assertion", "Bearer"), cookie],
                "`x-assertion`: the token is empty",
            ),
            (
                &[("x-assertion", "'a'"), cookie],
                "`x-assertion`: character 1 of the token is '\\''",
            ),
            (
                &[("authorization", "Bearer"), cookie],
                "`authorization`: the token is empty",
            ),
            (
                &[("authorization", ""), cookie],
                "`authorization`: it is empty",
            ),
            (
                &[("authorization", "Basic c2VjcmV0"), cookie],
                "`authorization`: it begins with `Basic`",
            ),
            (&[protocols("bearer"), cookie], of_protocol),
            (&[protocols("chat, bearer"), cookie], of_protocol),
            (
                &[protocols("chat"), protocols("bearer"), cookie],
                of_protocol,
            ),
            (&[protocols("bearer, a b, chat"), cookie], of_protocol),
            (&[("cookie", "t=")], "the cookie `t`: the token is empty"),
            (
                &[("cookie", "t=\"c.o.k\"")],
                "the cookie `t`: character 1 of the token is '\"'",
            ),
            (
                &[("cookie", "t=Bearer%20c.o.k")],
                "the cookie `t`: it begins with `Bearer%20`",
            ),
            (
                &[("cookie", "a=b; t=s%3Ac.o.k")],
                "the cookie `t`: it begins with `s%3A`",
            ),
        ] {
            let headers = headers(fields);
            let token = sources.token(&headers, 100, true, &mut Unobserved);
            assert!(token.is_err(), "{fields:?}");
            let described = sources.unreadable(&headers, true).unwrap_or_default();
            assert!(described.starts_with(found), "{fields:?}: {described}");
        }
        // Without a `bearer`, or where no WebSocket is opened, the cookie counts.
        for (protocol, opens_websocket) in [("chat, Bearer", true), ("chat, bearer", false)] {
            let headers = headers(&[protocols(protocol), cookie]);
            let token = sources.token(&headers, 100, opens_websocket, &mut Unobserved);
            let token = token.map(|token| token.map(Bearer::as_str));
            assert_eq!(token, Ok(Some("c.o.k")), "{protocol}");
        }
    }

    #[test]
    fn parts_of_a_cookie_are_reported_where_it_is_absent() {
        let sources = TokenSources {
            cookie: Some("session".to_owned()),
            ..TokenSources::default()
        };
        for (cookies, reported) in [
            ("session.0=a.b; session.1=c", true),
            ("session=a.b.c; session.0=x", false),
            ("other.0=a", false),
        ] {
            let (mut steps, headers) = (Facts::default(), headers(&[("cookie", cookies)]));
            let _ = sources.token(&headers, 100, false, &mut steps);
            let found = steps.0.remove("found");
            let found =
                found.is_some_and(|found| found.contains("no cookie session, but session.0"));
            assert_eq!(found, reported, "{cookies}");
        }
    }

    #[test]
    fn the_origin_of_a_token_is_reported_also_if_it_is_rejected() {
        let sources = TokenSources {
            headers: ["x-first", "x-second"]
                .map(HeaderName::from_static)
                .to_vec(),
            cookie: Some("session".to_owned()),
            ..TokenSources::default()
        };
        let of_cookie = Some("the cookie session");
        for (name, value, reported) in [
            ("x-first", "a.b.c", Some("x-first")),
            ("x-second", "a.b.c", Some("x-second")),
            ("authorization", "Bearer a.b.c", None),
            ("cookie", "session=a.b.c", of_cookie),
            ("cookie", "session=a.b.c; session=d.e.f", of_cookie),
            ("cookie", "session=", of_cookie),
            ("cookie", "other=a.b.c", None),
        ] {
            let (mut steps, headers) = (Facts::default(), headers(&[(name, value)]));
            let _ = sources.token(&headers, 100, false, &mut steps);
            let found = steps.0.remove("from");
            assert_eq!(found.as_deref(), reported, "{name}: {value}");
        }
    }
}
