//! The head of a request as the service gets it, the last step before it is sent.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Version, header};
use pingora::{ErrorType, OrErr};
use wire::http::header_alias::cgi_equal;
use wire::http::trace::TRACESTATE;

use crate::decision::authorize::{AuthPolicy, Forward};
use crate::decision::reporting::WOULD_REJECT;
use crate::decision::strip_token;
use crate::identity::forwarded::{Client, ForwardedPolicy, is_of_a_proxy, remove_path_overrides};
use crate::identity::service_head::ServiceHead;
use crate::request::kind::RequestKind;
use crate::telemetry::request_id::RequestIds;

/// Host of HTTP/1.0 requests without one, because HTTP/1.1 requires it. A client can send it as
/// well.
const DEFAULT_HOST: HeaderValue = HeaderValue::from_static("localhost");

/// Configured changes to the head of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UpstreamRequestPolicy {
    pub(crate) forward_authorization: bool,
    pub(crate) reuse_after_body: bool,
    pub(crate) forwarded: ForwardedPolicy,
}

impl UpstreamRequestPolicy {
    /// Rewrites `request`, received from `client` with version `received`, for the service.
    pub(crate) fn rewrite_request(
        self,
        request: &mut impl ServiceHead,
        received: Version,
        forward: &Forward,
        ids: &RequestIds,
        policy: &AuthPolicy,
        client: &Client,
    ) -> pingora::Result<()> {
        if let Some(replacement) = &forward.target {
            request.set_target(replacement.target.clone());
            request.set(Bytes::from_static(b"Host"), replacement.host.clone())?;
        }
        if forward.kind != RequestKind::WebSocket {
            request.remove(&header::CONNECTION);
            request.remove(&header::UPGRADE);
        }
        let to_http_2 = request.is_http_2();
        if received == Version::HTTP_10 && !request.contains(&header::HOST) {
            request.set(Bytes::from_static(b"Host"), DEFAULT_HOST)?;
        }
        if received == Version::HTTP_2 && !to_http_2 {
            join_cookies(request)?;
        }
        if !self.forward_authorization {
            request.remove(&header::AUTHORIZATION);
        }
        if ids.begin_trace() {
            request.remove(&TRACESTATE);
        }
        for (name, value) in ids.to_send() {
            request.set(written(&name), value)?;
        }
        let sources = policy.interceptor.sources();
        strip_token::remove_from(request, sources, self.forward_authorization)?;
        remove_path_overrides(request, client);
        // Before the identity headers: `overwrite` would remove X-Forwarded-User.
        self.forwarded.apply(request, client)?;
        request.remove_where(|name| cgi_equal(name, WOULD_REJECT));
        if let Some(rejection) = forward.reported {
            let name = Bytes::from_static(WOULD_REJECT.as_bytes());
            request.set(name, HeaderValue::from_static(rejection.reason()))?;
        }
        let identity = forward.verified.as_ref().map(|verified| &verified.identity);
        policy.user_header.apply(request, identity)
    }

    /// Removes from the trailers of a request what the head of one may not bring along, and what
    /// belongs into a head alone: a service may read both as one.
    pub(crate) fn rewrite_trailers(
        self,
        trailers: &mut HeaderMap,
        policy: &AuthPolicy,
    ) -> pingora::Result<()> {
        strip_token::remove_from(trailers, policy.interceptor.sources(), false)?;
        trailers.remove_where(|name| {
            of_a_head(name) || is_of_a_proxy(name) || cgi_equal(name, WOULD_REJECT)
        });
        policy.user_header.apply(trailers, None)
    }
}

/// Returns true for a field of framing, routing or authentication (RFC 9110 §6.5.1).
fn of_a_head(name: &str) -> bool {
    const NAMES: [&str; 8] = [
        "authorization",
        "content-length",
        "cookie",
        "host",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
    ];
    NAMES.iter().any(|known| cgi_equal(name, known))
}

/// Joins the cookie fields of HTTP/2 into the one of HTTP/1.1 (RFC 9113 §8.2.3).
fn join_cookies(request: &mut impl ServiceHead) -> pingora::Result<()> {
    let cookies: Vec<&[u8]> = request.values(&header::COOKIE).collect();
    if cookies.len() < 2 {
        return Ok(());
    }
    let joined = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
        .or_err(ErrorType::InvalidHTTPHeader, "joining cookies")?;
    request.set(written(&header::COOKIE), joined)
}

fn written(name: &HeaderName) -> Bytes {
    Bytes::copy_from_slice(name.as_str().as_bytes())
}
