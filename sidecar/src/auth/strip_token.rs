//! What has to be seen to where a token came in another place than `Authorization`: requests that
//! another site made a browser send, and traces of the token in what the service sees.

use contract::interceptor::TokenSources;
use contract::token::bearer::{cookies_without, websocket_protocols_without_token};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::{ErrorType, OrErr};

/// What a WebSocket is told that brought its token so, where the service chose nothing, whatever else was
/// offered: browsers close a connection whose answer chooses none of the protocols they offered.
const BEARER: HeaderValue = HeaderValue::from_static("bearer");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether a browser sent the cookie along because another site told it to, in a request that may
/// change something. `host` is the request's own.
pub(crate) fn is_forged_across_sites(
    sources: &TokenSources,
    method: &Method,
    is_websocket: bool,
    headers: &HeaderMap,
    host: Option<&[u8]>,
) -> bool {
    // Whoever shows a token of his own is no form and no image of another site.
    let shows_own = headers.contains_key(header::AUTHORIZATION)
        || (is_websocket
            && sources.websocket_protocol
            && websocket_protocols_without_token(headers).is_some());
    if sources.cookie.is_none() || shows_own {
        return false;
    }
    // Not those of `--cors-origin`: who may call with a token of its own may not use the browser's.
    if sources.cookie_origins.of(headers).is_some() {
        return false;
    }
    if method.is_safe() && !is_websocket {
        return false;
    }
    // A browser sends one of each: which of two would it be?
    let is_repeated = |name: HeaderName| headers.get_all(name).iter().nth(1).is_some();
    if is_repeated(SEC_FETCH_SITE) || is_repeated(header::ORIGIN) {
        return true;
    }
    match headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
        Some(b"same-origin" | b"none") => false,
        Some(b"cross-site") => true,
        // Told by no browser, by an old one, or by one whose page is a neighbour.
        _ => headers.get(header::ORIGIN).is_some_and(|origin| {
            let authority = origin.as_bytes().splitn(2, |&byte| byte == b'/').nth(1);
            let authority = authority.and_then(|rest| rest.strip_prefix(b"/"));
            authority != host
        }),
    }
}

/// Keeps the token of a WebSocket from the service, and the cookie's too unless it may see tokens.
pub(crate) fn remove_from(
    request: &mut RequestHeader,
    sources: &TokenSources,
    service_sees_tokens: bool,
) -> pingora::Result<()> {
    if sources.websocket_protocol {
        let left = websocket_protocols_without_token(&request.headers)
            .map(|protocols| protocols.join(&b", "[..]));
        replace(request, &header::SEC_WEBSOCKET_PROTOCOL, left)?;
    }
    match &sources.cookie {
        Some(name) if !service_sees_tokens => {
            let left = cookies_without(&request.headers, name);
            replace(request, &header::COOKIE, left)
        }
        _ => Ok(()),
    }
}

/// Completes the answer to the handshake of a WebSocket that announced its token as a protocol.
pub(crate) fn choose_protocol(
    answer: &mut ResponseHeader,
    sources: &TokenSources,
    request: &HeaderMap,
) -> pingora::Result<()> {
    let offered =
        sources.websocket_protocol && websocket_protocols_without_token(request).is_some();
    if offered && !answer.headers.contains_key(header::SEC_WEBSOCKET_PROTOCOL) {
        answer.insert_header("Sec-WebSocket-Protocol", BEARER)?;
    }
    Ok(())
}

/// Puts `value` in the place of all fields of the name; an empty one leaves none.
fn replace(
    request: &mut RequestHeader,
    name: &HeaderName,
    value: Option<Vec<u8>>,
) -> pingora::Result<()> {
    let Some(value) = value else {
        return Ok(());
    };
    request.remove_header(name);
    if value.is_empty() {
        return Ok(());
    }
    let value = HeaderValue::from_bytes(&value)
        .or_err(ErrorType::InvalidHTTPHeader, "removing the token")?;
    request.insert_header(name.clone(), value)
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
    fn a_browser_that_another_site_steers_is_recognised() {
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
            let judged = |sources: TokenSources, origins: &[&str]| {
                let origins = origins.iter().map(|origin| origin.parse().unwrap());
                let sources = TokenSources {
                    cookie_origins: AllowedOrigins::new(origins.collect()),
                    ..sources
                };
                let host = Some(&b"a:1"[..]);
                is_forged_across_sites(&sources, &method, websocket, &headers, host)
            };
            assert_eq!(judged(everywhere(), &[]), forged, "{method} {fields:?}");
            assert!(!judged(TokenSources::default(), &[]));
            let evil = "https://evil.test";
            let known = headers.get("origin").is_some_and(|origin| origin == evil)
                && headers.get_all("origin").iter().count() == 1;
            assert_eq!(judged(everywhere(), &[evil]), forged && !known);
        }
    }

    fn left(sees: bool, fields: &[(&'static str, &str)]) -> Vec<String> {
        let mut request = RequestHeader::build("GET", b"/", None).unwrap();
        for (name, value) in fields {
            request.append_header(*name, *value).unwrap();
        }
        remove_from(&mut request, &everywhere(), sees).unwrap();
        let field = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        request.headers.iter().map(field).collect()
    }

    #[test]
    fn the_service_sees_no_token_of_a_websocket() {
        const PROTOCOL: &str = "sec-websocket-protocol";
        for (protocols, expected) in [
            ("bearer, a.b.c", vec![]),
            (
                "bearer, a.b.c, chat",
                vec!["sec-websocket-protocol: chat".to_owned()],
            ),
            ("chat", vec!["sec-websocket-protocol: chat".to_owned()]),
        ] {
            assert_eq!(left(true, &[(PROTOCOL, protocols)]), expected);
        }
    }

    #[test]
    fn the_service_sees_the_cookie_only_if_it_may_see_tokens() {
        let cookies = [("cookie", "a=1; t=x.y.z"), ("cookie", "tt=2")];
        assert_eq!(left(true, &cookies).len(), 2);
        assert_eq!(left(false, &cookies), ["cookie: a=1; tt=2"]);
        assert_eq!(left(false, &[("cookie", "t=x.y.z")]), Vec::<String>::new());
    }

    #[test]
    fn the_answer_chooses_a_protocol_that_was_offered() {
        for (offered, chosen, expected) in [
            (Some("bearer, a.b.c"), None, Some("bearer")),
            (Some("bearer, a.b.c, chat"), Some("chat"), Some("chat")),
            (Some("chat"), None, None),
            (None, None, None),
        ] {
            let mut request = HeaderMap::new();
            if let Some(offered) = offered {
                request.insert(
                    header::SEC_WEBSOCKET_PROTOCOL,
                    HeaderValue::from_static(offered),
                );
            }
            let mut answer = ResponseHeader::build(101, None).unwrap();
            if let Some(chosen) = chosen {
                answer
                    .insert_header("Sec-WebSocket-Protocol", chosen)
                    .unwrap();
            }
            choose_protocol(&mut answer, &everywhere(), &request).unwrap();
            let field = answer.headers.get(header::SEC_WEBSOCKET_PROTOCOL);
            assert_eq!(field.map(|value| value.to_str().unwrap()), expected);
        }
    }
}
