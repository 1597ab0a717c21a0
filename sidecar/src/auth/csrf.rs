//! Cross-site request forgery: another site makes a browser send a request with the cookie.

use contract::interceptor::TokenSources;
use contract::token::bearer::websocket_protocols_without_token;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns true for a request that may change state, carries the token in the cookie, and comes
/// from a page of another site. `host` is the request's authority.
pub(crate) fn is_cross_site_request(
    sources: &TokenSources,
    method: &Method,
    is_websocket: bool,
    headers: &HeaderMap,
    host: Option<&[u8]>,
) -> bool {
    // A form or an image of another site cannot set these headers.
    let has_explicit_token = headers.contains_key(header::AUTHORIZATION)
        || (is_websocket
            && sources.websocket_protocol
            && websocket_protocols_without_token(headers).is_some());
    if sources.cookie.is_none() || has_explicit_token {
        return false;
    }
    // Not `--cors-origin`: those pages may send a token of their own, not the browser's cookie.
    if sources.cookie_origins.of(headers).is_some() {
        return false;
    }
    if method.is_safe() && !is_websocket {
        return false;
    }
    // A browser sends each header once.
    let is_repeated = |name: HeaderName| headers.get_all(name).iter().nth(1).is_some();
    if is_repeated(SEC_FETCH_SITE) || is_repeated(header::ORIGIN) {
        return true;
    }
    match headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
        Some(b"same-origin" | b"none") => false,
        Some(b"cross-site") => true,
        // No browser, an old one, or a page of the same site (`same-site`).
        _ => headers.get(header::ORIGIN).is_some_and(|origin| {
            let authority = origin.as_bytes().splitn(2, |&byte| byte == b'/').nth(1);
            let authority = authority.and_then(|rest| rest.strip_prefix(b"/"));
            authority != host
        }),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use contract::http::cors::AllowedOrigins;

    use super::*;

    fn everywhere() -> TokenSources {
        TokenSources {
            cookie: Some("t".to_owned()),
            websocket_protocol: true,
            ..TokenSources::default()
        }
    }

    #[test]
    fn requests_of_another_site_are_recognised() {
        for (method, websocket, fields, forged) in [
            (
                Method::POST,
                false,
                &[("sec-fetch-site", "cross-site")][..],
                true,
            ),
            (
                Method::POST,
                false,
                &[("origin", "https://evil.test")],
                true,
            ),
            (Method::POST, false, &[("origin", "null")], true),
            (
                Method::DELETE,
                false,
                &[("sec-fetch-site", "same-site"), ("origin", "https://b.a")],
                true,
            ),
            (Method::GET, true, &[("origin", "https://evil.test")], true),
            (
                Method::GET,
                false,
                &[("sec-fetch-site", "cross-site")],
                false,
            ),
            (
                Method::POST,
                false,
                &[("sec-fetch-site", "same-origin")],
                false,
            ),
            (Method::POST, false, &[("origin", "https://a:1")], false),
            (Method::GET, true, &[("origin", "http://a:1")], false),
            (Method::POST, false, &[], false),
            (
                Method::POST,
                false,
                &[
                    ("sec-fetch-site", "same-origin"),
                    ("sec-fetch-site", "cross-site"),
                ],
                true,
            ),
            (
                Method::POST,
                false,
                &[("origin", "https://a:1"), ("origin", "https://evil.test")],
                true,
            ),
            (
                Method::GET,
                false,
                &[("origin", "https://a:1"), ("origin", "https://evil.test")],
                false,
            ),
            (
                Method::POST,
                false,
                &[("origin", "https://evil.test"), ("authorization", "x")],
                false,
            ),
            (
                Method::GET,
                true,
                &[
                    ("origin", "https://evil.test"),
                    ("sec-websocket-protocol", "bearer, a.b.c"),
                ],
                false,
            ),
            (
                Method::GET,
                true,
                &[
                    ("origin", "https://evil.test"),
                    ("sec-websocket-protocol", "chat"),
                ],
                true,
            ),
            (
                Method::POST,
                false,
                &[
                    ("origin", "https://evil.test"),
                    ("sec-websocket-protocol", "bearer, a.b.c"),
                ],
                true,
            ),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(*name, HeaderValue::from_static(value));
            }
            let is_forged = |sources: TokenSources, origins: &[&str]| {
                let origins = origins.iter().map(|origin| origin.parse().unwrap());
                let sources = TokenSources {
                    cookie_origins: AllowedOrigins::new(origins.collect()),
                    ..sources
                };
                let host = Some(&b"a:1"[..]);
                is_cross_site_request(&sources, &method, websocket, &headers, host)
            };
            assert_eq!(is_forged(everywhere(), &[]), forged, "{method} {fields:?}");
            assert!(!is_forged(TokenSources::default(), &[]));
            let evil = "https://evil.test";
            let known = headers.get("origin").is_some_and(|origin| origin == evil)
                && headers.get_all("origin").iter().count() == 1;
            assert_eq!(is_forged(everywhere(), &[evil]), forged && !known);
        }
    }
}
