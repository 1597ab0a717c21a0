//! Traces of a token that came in another place than `Authorization`: kept from the service.

use contract::interceptor::TokenSources;
use contract::token::bearer::{cookies_without, websocket_protocols_without_token};
use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::{ErrorType, OrErr};

/// What a WebSocket is told that brought its token so, where the service chose nothing, whatever else was
/// offered: browsers close a connection whose answer chooses none of the protocols they offered.
const BEARER: HeaderValue = HeaderValue::from_static("bearer");

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
    use super::*;

    fn everywhere() -> TokenSources {
        TokenSources {
            cookie: Some("t".to_owned()),
            websocket_protocol: true,
            ..TokenSources::default()
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
