//! The head of a request as the service gets it: the last hand on it before it leaves.

use http::{HeaderValue, Version, header};
use pingora::http::RequestHeader;
use pingora::{ErrorType, OrErr};

use crate::auth::authorize::{AuthPolicy, Forward};
use crate::auth::strip_token;
use crate::headers::forwarded::{Client, ForwardedPolicy};
use crate::request::kind::RequestKind;
use crate::telemetry::request_id::RequestIds;

/// For requests of HTTP/1.0 that name none, while HTTP/1.1 asks for it. Any client may write it.
const HOST_OF_THE_SERVICE: &str = "localhost";

/// What the configuration says about it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UpstreamRequestPolicy {
    pub(crate) forward_authorization: bool,
    pub(crate) reuse_after_body: bool,
    pub(crate) forwarded: ForwardedPolicy,
}

impl UpstreamRequestPolicy {
    /// Makes `request`, which came from `client` with the version `received`, what the service is to
    /// see.
    pub(crate) fn rewrite_request(
        self,
        request: &mut RequestHeader,
        received: Version,
        forward: &Forward,
        ids: &RequestIds,
        rules: &AuthPolicy,
        client: Client,
    ) -> pingora::Result<()> {
        if let Some(target) = &forward.target {
            request.set_uri(target.clone());
        }
        if forward.kind != RequestKind::WebSocket {
            request.remove_header(&header::CONNECTION);
            request.remove_header(&header::UPGRADE);
        }
        let to_http_2 = request.version == Version::HTTP_2;
        if received == Version::HTTP_10 && !request.headers.contains_key(header::HOST) {
            request.insert_header("Host", HOST_OF_THE_SERVICE)?;
        }
        if received == Version::HTTP_2 && !to_http_2 {
            join_cookies(request)?;
        }
        if forward.body && !self.reuse_after_body && !to_http_2 {
            // Many a service leaves a body it has no use for on the connection, and would take it
            // for the next request: one that the client wrote, user header and all. Pingora does
            // not pool a connection that it asked to have closed.
            request.insert_header(header::CONNECTION, "close")?;
        }
        if !self.forward_authorization {
            request.remove_header(&header::AUTHORIZATION);
        }
        for (name, value) in ids.to_send() {
            request.insert_header(name, value)?;
        }
        let sources = rules.interceptor.sources();
        strip_token::remove_from(request, sources, self.forward_authorization)?;
        // Before the headers about the user, which may be X-Forwarded-User: overwriting would remove it.
        self.forwarded.apply(request, client)?;
        let identity = forward.verified.as_ref().map(|verified| &verified.identity);
        rules.user_header.apply(request, identity)
    }
}

/// HTTP/2 clients send a cookie field for each cookie; HTTP/1.1 knows one (RFC 9113 §8.2.3).
fn join_cookies(request: &mut RequestHeader) -> pingora::Result<()> {
    let cookies: Vec<&[u8]> = request
        .headers
        .get_all(header::COOKIE)
        .into_iter()
        .map(|cookie| cookie.as_bytes())
        .collect();
    if cookies.len() < 2 {
        return Ok(());
    }
    let joined = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
        .or_err(ErrorType::InvalidHTTPHeader, "joining cookies")?;
    request.insert_header(header::COOKIE, joined)
}
