//! Removes a token outside of `Authorization` (token header, cookie, WebSocket protocol) from a
//! request.

use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};
use postern_http::header_alias::cgi_equal;
use postern_token::sources::TokenSources;
use postern_token::sources::bearer::websocket_protocols_without_token;
use postern_token::sources::cookie::cookies_without;

use crate::identity::service_fields::ServiceFields;

/// The WebSocket protocol to choose if the service chose none: browsers close the connection if the
/// response names none of the offered ones.
pub(crate) const BEARER: HeaderValue = HeaderValue::from_static("bearer");

/// Removes the token headers with all look-alikes, the token of a WebSocket protocol, and the cookie's token
/// unless the service may see tokens.
pub(crate) fn remove_from(
    request: &mut ServiceFields<'_>,
    sources: &TokenSources,
    forward_tokens: bool,
) {
    // CGI services read look-alikes of a header, such as `x_token`, as the same variable.
    if !sources.headers.is_empty() {
        request.remove_where(|name| {
            sources
                .headers
                .iter()
                .any(|header| cgi_equal(name, header.as_str()))
        });
    }
    if sources.websocket_protocol {
        let field = "sec-websocket-protocol";
        // A look-alike is the same variable to CGI services, and would keep the token.
        request.remove_where(|name| !name.eq_ignore_ascii_case(field) && cgi_equal(name, field));
        let protocols = fields_of(request, header::SEC_WEBSOCKET_PROTOCOL);
        if let Some(left) = websocket_protocols_without_token(&protocols) {
            request.set_made(field, left.join(&b", "[..]));
        }
    }
    if !forward_tokens
        && let Some(name) = &sources.cookie
        && let Some(left) = cookies_without(&fields_of(request, header::COOKIE), name)
    {
        request.set_made("cookie", left);
    }
}

/// Returns the fields of one name.
fn fields_of(request: &ServiceFields<'_>, name: HeaderName) -> HeaderMap {
    request
        .values(name.as_str())
        .flat_map(HeaderValue::from_bytes)
        .map(|value| (name.clone(), value))
        .collect()
}

/// Returns true if the client offered the protocol `bearer` with its token.
pub(crate) fn offers_token(sources: &TokenSources, request: &HeaderMap) -> bool {
    sources.websocket_protocol && websocket_protocols_without_token(request).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::service_fields::tests::{lines_of, received};

    fn everywhere() -> TokenSources {
        TokenSources {
            headers: vec![HeaderName::from_static("x-assertion")],
            cookie: Some("t".to_owned()),
            websocket_protocol: true,
            ..TokenSources::default()
        }
    }

    #[test]
    fn the_cookie_is_kept_where_tokens_are_forwarded() {
        let mut fields = received(&[("cookie", "a=1; t=x.y.z"), ("cookie", "tt=2")]);
        remove_from(&mut fields, &everywhere(), true);
        assert_eq!(lines_of(&fields), ["cookie: a=1; t=x.y.z", "cookie: tt=2"]);
    }

    #[test]
    fn a_token_is_offered_as_a_protocol() {
        for (offered, expected) in [
            (Some("bearer, a.b.c, chat"), true),
            (Some("chat"), false),
            (None, false),
        ] {
            let offered = offered.map(HeaderValue::from_static);
            let fields = offered.map(|value| (header::SEC_WEBSOCKET_PROTOCOL, value));
            let request = fields.into_iter().collect();
            assert_eq!(offers_token(&everywhere(), &request), expected);
        }
    }
}
