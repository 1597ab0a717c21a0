//! The head of a request as the service gets it, the last step before it is sent.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Version};
use wire::http::header_alias::cgi_equal;
use wire::http::methods::METHOD_OVERRIDES;
use wire::http::trace::TRACESTATE;

use crate::decision::authorize::AuthPolicy;
use crate::decision::forward::Forward;
use crate::decision::reporting::WOULD_REJECT;
use crate::decision::strip_token;
use crate::identity::forwarded::{Client, ForwardedPolicy, is_of_a_proxy, remove_path_overrides};
use crate::identity::forwarded_head::ForwardedHead;
use crate::identity::service_fields::ServiceFields;
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
    /// Rewrites the head of a request from `client` for the service.
    pub(crate) fn rewrite_request(
        self,
        head: &mut ForwardedHead<'_>,
        forward: &Forward,
        ids: &RequestIds,
        policy: &AuthPolicy,
        client: &Client,
    ) {
        let received = head.received.version;
        let fields = &mut head.fields;
        if let Some(replacement) = &forward.target {
            head.new_target = Some(replacement.target.clone());
            fields.set("Host", replacement.host.clone());
        }
        if received == Version::HTTP_10 && !fields.contains("host") {
            fields.set("Host", DEFAULT_HOST);
        }
        if received == Version::HTTP_2 && !head.is_http_2 {
            join_cookies(fields);
        }
        if !self.forward_authorization {
            fields.remove("authorization");
        }
        if ids.begins_trace {
            fields.remove(TRACESTATE.as_str());
        }
        for (name, value) in ids.to_send() {
            fields.set(Bytes::copy_from_slice(name.as_str().as_bytes()), value);
        }
        let sources = policy.interceptor.sources();
        strip_token::remove_from(fields, sources, self.forward_authorization);
        remove_path_overrides(fields, client);
        // Before the identity headers: `overwrite` would remove X-Forwarded-User.
        self.forwarded.apply(fields, client);
        fields.remove_where(|name| cgi_equal(name, WOULD_REJECT));
        if let Some(rejection) = forward.reported {
            fields.set(WOULD_REJECT, HeaderValue::from_static(rejection.reason()));
        }
        let identity = forward.verified.as_ref().map(|verified| &verified.identity);
        policy.user_header.apply(fields, identity);
    }
}

/// Returns the trailers of a request without what its head may not bring along, and what belongs into
/// a head alone: a service may read both as one.
pub(crate) fn rewritten_trailers(trailers: &HeaderMap, policy: &AuthPolicy) -> HeaderMap {
    let received = trailers.iter();
    let received = received.map(|(name, value)| (name.as_str(), value.as_bytes()));
    let mut fields = ServiceFields::of(received);
    strip_token::remove_from(&mut fields, policy.interceptor.sources(), false);
    fields.remove_where(|name| {
        of_a_head(name) || is_of_a_proxy(name) || cgi_equal(name, WOULD_REJECT)
    });
    policy.user_header.apply(&mut fields, None);
    fields.to_map()
}

/// Returns true for a field of framing, routing, authentication or of what is requested (RFC 9110
/// §6.5.1).
fn of_a_head(name: &str) -> bool {
    const NAMES: [&str; 14] = [
        "authorization",
        "content-length",
        "content-type",
        "cookie",
        "destination",
        "expect",
        "host",
        "origin",
        "proxy-authorization",
        "sec-fetch-site",
        "sec-websocket-protocol",
        "te",
        "trailer",
        "transfer-encoding",
    ];
    let mut names = NAMES.iter().chain(&METHOD_OVERRIDES);
    names.any(|known| cgi_equal(name, known))
}

/// Joins the cookie fields of HTTP/2 into the one of HTTP/1.1 (RFC 9113 §8.2.3).
fn join_cookies(fields: &mut ServiceFields<'_>) {
    let cookies: Vec<&[u8]> = fields.values("cookie").collect();
    if cookies.len() > 1 {
        let joined = cookies.join(&b"; "[..]);
        fields.set_made("cookie", joined);
    }
}
