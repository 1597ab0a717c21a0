//! Cross-site request forgery: another site makes a browser send a request with the token's cookie, or with a
//! cookie for which a proxy in front adds the token.

use http::Method;
use http::header::{self, HeaderName, HeaderValue};
use postern_http::cors::AllowedOrigins;
use postern_http::methods::certain_method;
use postern_http::path::destination::AbsoluteForm;

use postern_http::only_field::only_field;
use postern_http::request::kind::RequestKind;
use postern_http::request::received::ReceivedHead;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns true for a request that may change state and comes from a page of another site. The caller has
/// checked that the token of the request is one that a browser sends by itself.
pub(super) fn is_cross_site_request(
    cookie_origins: &AllowedOrigins,
    request: &ReceivedHead,
) -> bool {
    let headers = &request.headers;
    // Not `--cors-origin`: those pages may send a token of their own, not the browser's cookie.
    if cookie_origins.allowed(headers).is_some() {
        return false;
    }
    let is_safe = certain_method(&request.method, headers).is_some_and(Method::is_safe);
    if is_safe && request.kind != RequestKind::WebSocket {
        return false;
    }
    // A browser sends each of these headers once.
    let (Ok(site), Ok(origin)) = (
        only_field(headers, &SEC_FETCH_SITE),
        only_field(headers, &header::ORIGIN),
    ) else {
        return true;
    };
    match site.map(HeaderValue::as_bytes) {
        Some(b"same-origin" | b"none") => false,
        Some(b"cross-site") => true,
        // No browser, an old one, or a page of the same site (`same-site`).
        _ => match origin {
            None => false,
            Some(origin) => match AbsoluteForm::parse(origin.as_bytes()) {
                // The scheme is the origin's own word: TLS may end at a gateway in front.
                Some(origin) => !origin.is_on(request.host()),
                None => true,
            },
        },
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use postern_http::request::received;

    #[test]
    fn requests_of_another_site_are_recognised() {
        const POST: Method = Method::POST;
        const GET: Method = Method::GET;
        let from = |site| ("sec-fetch-site", site);
        let (own, evil) = (("origin", "https://a:1"), ("origin", "https://evil.test"));
        let beside = ("origin", "https://b.a");
        let deletes = ("x_http_method_override", "DELETE");
        for (method, websocket, fields, forged) in [
            (POST, false, &[from("cross-site")][..], true),
            (POST, false, &[evil], true),
            (POST, false, &[("origin", "null")], true),
            (Method::DELETE, false, &[from("same-site"), beside], true),
            (GET, true, &[evil], true),
            (GET, false, &[from("cross-site")], false),
            (GET, false, &[from("cross-site"), deletes], true),
            (POST, false, &[from("same-origin")], false),
            (POST, false, &[own], false),
            (GET, true, &[("origin", "http://a:1")], false),
            (POST, false, &[], false),
            (
                POST,
                false,
                &[from("same-origin"), from("cross-site")],
                true,
            ),
            (POST, false, &[own, evil], true),
            (GET, false, &[own, evil], false),
        ] {
            let lines = fields.iter();
            let lines: String = lines
                .map(|(name, it)| format!("{name}: {it}\r\n"))
                .collect();
            let handshake = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n";
            let handshake = if websocket { handshake } else { "" };
            let head = format!("{method} / HTTP/1.1\r\nHost: a:1\r\n{handshake}{lines}\r\n");
            let request = received::take(&mut head.as_bytes().into());
            let request = request.unwrap().unwrap();
            let headers = &request.headers;
            let is_forged = |origins: &[&str]| {
                let origins = origins.iter().map(|origin| origin.parse().unwrap());
                let origins = AllowedOrigins::new(origins.collect());
                is_cross_site_request(&origins, &request)
            };
            assert_eq!(is_forged(&[]), forged, "{method} {fields:?}");
            let evil = "https://evil.test";
            let known = headers.get("origin").is_some_and(|origin| origin == evil)
                && headers.get_all("origin").iter().count() == 1;
            assert_eq!(is_forged(&[evil]), forged && !known);
        }
    }

    /// RFC 6454 §6.1: an origin has no default port; RFC 9110 §4.2.3: `Host` may have it.
    #[test]
    fn a_default_port_makes_no_other_site() {
        for (origin, host, forged) in [
            ("https://a", "a", false),
            ("https://a", "a:443", false),
            ("https://a", "a:", false),
            ("https://a", "A:443", false),
            ("https://a:443", "a", false),
            ("http://a", "a:80", false),
            ("http://a:80", "a", false),
            ("https://[::1]", "[::1]:443", false),
            ("https://a:8443", "a:8443", false),
            ("https://a", "a:80", true),
            ("http://a", "a:443", true),
            ("https://a", "a:8443", true),
            ("https://a:8443", "a", true),
            ("https://a:80", "a", true),
            ("https://a", "a.:443", true),
            ("https://a", "b:443", true),
            ("https://a", "a443", true),
            ("https://a.evil", "a:443", true),
            ("https://evil@a", "a:443", true),
            ("capacitor://a", "a", true),
            ("null", "null", true),
            ("//a", "a", true),
        ] {
            let head = format!("POST / HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\r\n");
            let request = received::take(&mut head.as_bytes().into());
            let request = request.unwrap().unwrap();
            let is_forged = is_cross_site_request(&AllowedOrigins::default(), &request);
            assert_eq!(is_forged, forged, "{origin} {host}");
        }
    }
}
