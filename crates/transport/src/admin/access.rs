//! Access to the admin port: for peers on this machine, but not for web pages in their browsers.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use postern_http::host::loopback::{is_loopback, names_this_machine};
use postern_http::only_field::only_field;

/// Rejects a request that names two hosts.
pub(super) async fn with_one_host(request: Request, next: Next) -> Response {
    if only_field(request.headers(), &header::HOST).is_err() {
        // Two `Host` fields are a bad request (RFC 9112 §3.2).
        return (StatusCode::BAD_REQUEST, "two Host fields\n").into_response();
    }
    next.run(request).await
}

/// Accepts only peers on the loopback address, by the connection's own address.
pub(super) async fn for_loopback(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    if !is_loopback(peer.ip()) {
        (StatusCode::FORBIDDEN, "for loopback peers only\n").into_response()
    } else if !names_this_machine(request.headers()) {
        let why = "request this as 127.0.0.1 or localhost: Host names another machine\n";
        (StatusCode::MISDIRECTED_REQUEST, why).into_response()
    } else if !request.method().is_safe() && is_of_another_page(request.headers()) {
        (StatusCode::FORBIDDEN, "not for pages of other sites\n").into_response()
    } else {
        next.run(request).await
    }
}

/// Returns true for a request that a web page makes, except the form of our own page: any page can
/// have a browser on this machine post here.
fn is_of_another_page(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let own = [b"http://", host.unwrap_or_default()].concat();
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let mut sites = headers.get_all("sec-fetch-site").iter();
    origins.any(|origin| origin != own.as_slice()) || sites.any(|site| site != "same-origin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_of_another_site_has_a_browser_send_is_recognised() {
        let own = ("origin", "http://127.0.0.1:8081");
        for (fields, expected) in [
            (&[][..], false),
            (&[("accept", "x")], false),
            (&[own], false),
            (&[own, ("sec-fetch-site", "same-origin")], false),
            (&[("origin", "null")], true),
            (&[("origin", "http://127.0.0.1:3000")], true),
            (&[("origin", "https://127.0.0.1:8081")], true),
            (&[("origin", "http://evil.example")], true),
            (&[("sec-fetch-site", "cross-site")], true),
            (&[own, ("sec-fetch-site", "same-site")], true),
            (&[own, ("origin", "http://evil.example")], true),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in fields.iter().chain(&[("host", "127.0.0.1:8081")]) {
                headers.append(*name, HeaderValue::from_static(value));
            }
            assert_eq!(is_of_another_page(&headers), expected, "{headers:?}");
        }
    }
}
