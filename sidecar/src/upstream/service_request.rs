//! A request as the service gets it: its head, the last step before it is sent, and its trailers.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Uri, Version, header};
use pingora::{ErrorType, OrErr};
use postern_http::header_alias::cgi_equal;
use postern_http::methods::METHOD_OVERRIDES;
use postern_http::trace::TRACESTATE;
use postern_token::possession::proof::DPOP;

use crate::decision::forward::Forward;
use crate::decision::policy::AuthPolicy;
use crate::decision::reporting::WOULD_REJECT;
use crate::decision::strip_token;
use crate::identity::client::Client;
use crate::identity::forwarded::{ForwardedPolicy, is_of_a_proxy, remove_path_overrides};
use crate::identity::service_fields::ServiceFields;
use crate::telemetry::request_id::RequestIds;
use crate::upstream::connections::conduct::Reuse;
use postern_http::request::header_list::members;
use postern_http::request::hop_by_hop::HopByHop;
use postern_http::request::kind::RequestKind;
use postern_http::request::received::ReceivedHead;

/// `Host` for requests of HTTP/1.0 without one, because HTTP/1.1 requires it. A client can send this value as
/// well.
const DEFAULT_HOST: HeaderValue = HeaderValue::from_static("localhost");
/// Bytes of room for the fields that the sidecar sets.
const SET_ROOM: usize = 512;

/// Configured changes to the head of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UpstreamRequestPolicy {
    pub(crate) forward_authorization: bool,
    pub(crate) reuse_after_body: bool,
    pub(crate) forwarded: ForwardedPolicy,
}

/// A request that is forwarded, and all that its head is made of.
pub(crate) struct ServiceRequest<'r> {
    pub(crate) received: &'r ReceivedHead,
    pub(crate) forward: &'r Forward,
    pub(crate) client: &'r Client,
    pub(crate) ids: &'r RequestIds,
    pub(crate) auth_policy: &'r AuthPolicy,
    pub(crate) policy: UpstreamRequestPolicy,
    /// True if the client has its 100 from the sidecar, in place of the service.
    pub(crate) is_continued: bool,
}

impl<'r> ServiceRequest<'r> {
    /// Returns the head for a service of HTTP/1.1, and true if no other request follows on its
    /// connection: after a WebSocket, or where `reuse` rules it out.
    pub(crate) fn http_1_head(&self, reuse: Reuse) -> (BytesMut, bool) {
        let mut fields = self.fields(false);
        self.frame(&mut fields, reuse);
        let mut head = BytesMut::with_capacity(self.received.raw.len() + SET_ROOM);
        head.put_slice(self.received.method.as_str().as_bytes());
        head.put_u8(b' ');
        head.put_slice(self.target());
        head.put_slice(b" HTTP/1.1\r\n");
        for (name, value) in fields.iter() {
            for part in [name, b": ", value, b"\r\n"] {
                head.put_slice(part);
            }
        }
        head.put_slice(b"\r\n");
        (head, fields.contains("connection"))
    }

    /// Returns the head of a stream of HTTP/2, whose scheme says whether it goes `over_tls`.
    ///
    /// # Errors
    /// [`ErrorType::InvalidHTTPHeader`] for a host or a target that no URI of HTTP/2 has.
    pub(crate) fn stream_head(&self, over_tls: bool) -> pingora::Result<Request<()>> {
        let mut fields = self.fields(true);
        let host = fields.values("host").next().unwrap_or_default();
        let uri = Uri::builder()
            .scheme(if over_tls { "https" } else { "http" })
            .authority(host)
            .path_and_query(&*escaped(self.target()))
            .build()
            .or_err(ErrorType::InvalidHTTPHeader, "forwarded head")
            .map_err(|error| error.into_down())?;
        let mut request = Request::new(());
        *request.method_mut() = self.received.method.clone();
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        fields.remove("host");
        *request.headers_mut() = fields.to_map();
        Ok(request)
    }

    fn target(&self) -> &[u8] {
        match &self.forward.target {
            Some(replacement) => &replacement.target,
            None => self.received.target(),
        }
    }

    /// Returns the fields for either version, without those that frame a body.
    fn fields(&self, to_http_2: bool) -> ServiceFields<'r> {
        let received = self.received;
        let hop_by_hop = HopByHop::in_request(members(&received.headers, &header::CONNECTION));
        let left = received.fields();
        let mut fields =
            ServiceFields::from_received(left.filter(|(name, _)| !hop_by_hop.contains(name)));
        if let Some(authority) = received.authority() {
            fields.lead_with("Host", authority);
        }
        if let Some(replacement) = &self.forward.target {
            fields.set("Host", replacement.host.clone());
        }
        match received.version {
            Version::HTTP_10 if !fields.contains("host") => fields.set("Host", DEFAULT_HOST),
            Version::HTTP_2 if to_http_2 => {
                // The value is `trailers`, the only value of `TE` that HTTP/2 has.
                if let Some(te) = received.headers.get(header::TE) {
                    fields.set("te", te.clone());
                }
            }
            _ => {}
        }
        // HTTP/2 may split cookies into fields; a service of HTTP/1.1 expects one.
        if to_http_2 || received.version == Version::HTTP_2 {
            join_cookies(&mut fields);
        }
        // The client has its 100, and the sidecar waits for no second 100. Without a body there is nothing to
        // continue with: Waitress would take the next request for the body (RFC 9110 §10.1.1).
        if self.is_continued || !received.has_body() {
            fields.remove("expect");
        }
        self.rewrite(&mut fields);
        fields
    }

    /// Strips the fields that the service may not get, and sets those about the client, the user last.
    fn rewrite(&self, fields: &mut ServiceFields<'_>) {
        let forwards_tokens = self.policy.forward_authorization;
        if !forwards_tokens {
            fields.remove("authorization");
            fields.remove(DPOP.as_str());
        }
        remove_statements(fields, self.auth_policy);
        // `tracestate` describes a trace that is not continued here (W3C Trace Context).
        if self.ids.begins_trace {
            fields.remove(TRACESTATE.as_str());
        }
        for (name, value) in self.ids.to_send() {
            fields.set(Bytes::copy_from_slice(name.as_str().as_bytes()), value);
        }
        strip_token::remove_from(
            fields,
            self.auth_policy.interceptor.sources(),
            forwards_tokens,
        );
        remove_path_overrides(fields, self.client);
        // Before the identity headers: `overwrite` would remove X-Forwarded-User.
        self.policy.forwarded.apply(fields, self.client);
        if let Some(rejection) = self.forward.reported {
            fields.set(WOULD_REJECT, HeaderValue::from_static(rejection.reason()));
        }
        let verified = self.forward.verified.as_ref();
        self.auth_policy
            .user_header
            .apply(fields, verified.map(|verified| &verified.identity));
    }

    /// Sets the fields of HTTP/1.1 that frame the body, request a WebSocket, or close the connection; the
    /// received ones were for the client's connection alone.
    fn frame(&self, fields: &mut ServiceFields<'_>, reuse: Reuse) {
        let mut set = |name: &'static str, value| {
            fields.set(name, HeaderValue::from_static(value));
        };
        if self.forward.kind == RequestKind::WebSocket {
            set("Connection", "Upgrade");
            set("Upgrade", "websocket");
        }
        if self.received.body.is_chunked() {
            // In lower case and alone: every service reads this spelling alike.
            set("Transfer-Encoding", "chunked");
        }
        // Some services leave a body on the connection and parse it as the next request, with a user
        // header of the client's choice.
        let may_stay = match reuse {
            Reuse::Never => self.forward.kind == RequestKind::WebSocket,
            Reuse::WithoutBody => !self.received.has_body() || self.policy.reuse_after_body,
            Reuse::Always => true,
        };
        if !may_stay {
            set("Connection", "close");
        }
    }
}

/// Removes the fields of a client that would pass for the certificate that a proxy verified, or for a mark of
/// the report-only mode.
fn remove_statements(fields: &mut ServiceFields<'_>, policy: &AuthPolicy) {
    fields.remove_where(|name| cgi_equal(name, WOULD_REJECT));
    if let Some(field) = &policy.possession.certificate_field {
        fields.remove_where(|name| cgi_equal(name, field.0.as_str()));
    }
}

/// Escapes the bytes that no `:path` has (RFC 3986 §2), as browsers do: some services end the connection, with
/// the calls of all clients.
fn escaped(target: &[u8]) -> Cow<'_, [u8]> {
    if !target.iter().any(needs_escape) {
        return Cow::Borrowed(target);
    }
    let mut escaped = Vec::with_capacity(target.len());
    for byte in target {
        if needs_escape(byte) {
            escaped.extend(format!("%{byte:02X}").bytes())
        } else {
            escaped.push(*byte)
        }
    }
    Cow::Owned(escaped)
}

fn needs_escape(byte: &u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'`' | 0x7f..)
}

/// Returns the trailers of a request without what its head may not bring along, and what belongs into
/// a head alone: a service may read both as one.
pub(crate) fn rewritten_trailers(trailers: &HeaderMap, policy: &AuthPolicy) -> HeaderMap {
    let received = trailers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()));
    let mut fields = ServiceFields::from_received(received);
    strip_token::remove_from(&mut fields, policy.interceptor.sources(), false);
    fields.remove_where(|name| belongs_in_a_head(name) || is_of_a_proxy(name));
    remove_statements(&mut fields, policy);
    policy.user_header.apply(&mut fields, None);
    fields.to_map()
}

/// Returns true for a field of framing, routing, authentication, tracing or of what is requested (RFC 9110
/// §6.5.1).
fn belongs_in_a_head(name: &str) -> bool {
    const NAMES: [&str; 18] = [
        "authorization",
        "content-length",
        "content-type",
        "cookie",
        "destination",
        "dpop",
        "expect",
        "host",
        "origin",
        "proxy-authorization",
        "sec-fetch-site",
        "sec-websocket-protocol",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "x-request-id",
    ];
    NAMES
        .iter()
        .chain(&METHOD_OVERRIDES)
        .any(|known| cgi_equal(name, known))
}

/// Joins the cookie fields into one, as a service of HTTP/2 would do (RFC 9113 §8.2.3). Empty fields are left
/// out: a blank after the last separator would end the value, for which some services end the connection
/// with the calls of all clients (§8.2.1).
fn join_cookies(fields: &mut ServiceFields<'_>) {
    if fields.values("cookie").nth(1).is_none() {
        return;
    }
    let cookies: Vec<&[u8]> = fields
        .values("cookie")
        .filter(|cookie| !cookie.is_empty())
        .collect();
    fields.set_made("cookie", cookies.join(&b"; "[..]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_the_target_in_characters_that_a_uri_holds() {
        for (target, expected) in [
            (&b"/a?b"[..], "/a?b"),
            (b"/a\"?<b>`", "/a%22?%3Cb%3E%60"),
            (b"/\xc3\xa9%c3?\xff\x7f", "/%C3%A9%c3?%FF%7F"),
        ] {
            assert_eq!(*escaped(target), *expected.as_bytes());
        }
    }
}
