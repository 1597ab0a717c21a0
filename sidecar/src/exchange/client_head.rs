//! The head of a response as the client gets it: one of the service's, or the sidecar's own. Here
//! is the place for a field of every response.

use bytes::{BufMut, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version};
use pingora::protocols::http::date::get_cached_date;
use postern_http::trace::REQUEST_ID;

use super::downstream::Outgoing;
use super::response_head::{Parsed, ResponseHead, ResponseTo, is_named};
use crate::decision::possession::DPOP_NONCE;
use crate::decision::strip_token::BEARER;
use postern_http::request::hop_by_hop::HopByHop;

/// Room for the fields that are added on the way to the client.
const ADDED_BYTES: usize = 192;

/// The fields of a head in one version of HTTP.
pub(super) enum Fields<'o> {
    Http1(&'o mut BytesMut),
    Http2(HeaderMap),
}

impl Fields<'_> {
    pub(super) fn put(&mut self, name: &str, value: &[u8]) {
        match self {
            Self::Http1(out) => {
                for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                    out.put_slice(part);
                }
            }
            Self::Http2(fields) => {
                let name = HeaderName::from_bytes(name.as_bytes());
                // The parser has checked name and value.
                if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                    fields.append(name, value);
                }
            }
        }
    }
}

/// Properties of a head beside its own fields.
pub(super) struct ClientHead<'a> {
    pub(super) version: Version,
    pub(super) status: StatusCode,
    pub(super) reason: &'a str,
    /// The value of `Connection` in HTTP/1.x; `None` for an interim response.
    pub(super) connection: Option<&'static str>,
}

impl ClientHead<'_> {
    /// Appends the head, with the fields that `put` writes; `put` returns true if `Date` is among them. Room
    /// is made for `length` bytes: the fields and the beginning of the body.
    pub(super) fn write(
        &self,
        out: &mut Outgoing,
        length: usize,
        put: impl FnOnce(&mut Fields<'_>) -> bool,
    ) {
        // HTTP/2 needs the head as a map of fields; HTTP/1.x gets bytes without a map in between.
        if self.version == Version::HTTP_2 {
            let mut fields = Fields::Http2(HeaderMap::new());
            self.write_fields(&mut fields, put);
            let mut response = Response::new(());
            *response.status_mut() = self.status;
            if let Fields::Http2(fields) = fields {
                *response.headers_mut() = fields;
            }
            return out.heads.push_back(response);
        }
        let bytes = &mut out.bytes;
        bytes.reserve(length + ADDED_BYTES);
        for part in ["HTTP/1.1 ", self.status.as_str(), " ", self.reason, "\r\n"] {
            bytes.put_slice(part.as_bytes());
        }
        self.write_fields(&mut Fields::Http1(bytes), put);
        out.bytes.put_slice(b"\r\n");
    }

    fn write_fields(&self, fields: &mut Fields<'_>, put: impl FnOnce(&mut Fields<'_>) -> bool) {
        let has_date = put(fields);
        if !has_date && !self.status.is_informational() {
            fields.put("Date", get_cached_date().as_bytes());
        }
        if let Some(connection) = self.connection
            && self.version != Version::HTTP_2
        {
            fields.put("Connection", connection.as_bytes());
        }
    }
}

impl Parsed<'_> {
    /// Writes the client's head.
    pub(super) fn write(&self, head: &ResponseHead, request: ResponseTo<'_>, out: &mut Outgoing) {
        let names_protocol = head.status == StatusCode::UPGRADE_REQUIRED;
        // The service's own `Connection` is about another connection, and is not passed on.
        let connection = match (head.keep_client, names_protocol) {
            _ if head.is_interim() => None,
            _ if head.opens_tunnel() => Some("Upgrade"),
            (true, false) => Some("keep-alive"),
            (false, false) => Some("close"),
            (true, true) => Some("keep-alive, Upgrade"),
            (false, true) => Some("close, Upgrade"),
        };
        let client = ClientHead {
            version: request.version,
            status: head.status,
            reason: self.reason,
            connection,
        };
        client.write(out, head.length, |fields| {
            let has_date = self.write_passed(head, request, fields);
            if let Some(id) = request.echo {
                fields.put(REQUEST_ID.as_str(), id.value().as_bytes());
            }
            if let Some(nonce) = request.nonce
                && !head.is_interim()
            {
                fields.put("DPoP-Nonce", nonce.as_bytes());
                if request.exposes_nonce {
                    // Joins the service's own field of this name (RFC 9110 §5.3).
                    fields.put("Access-Control-Expose-Headers", b"DPoP-Nonce");
                }
            }
            if head.sends_chunks {
                fields.put("Transfer-Encoding", b"chunked");
            }
            // Browsers fail a handshake that chooses none of the protocols they offered, and the
            // service never saw `bearer`.
            if head.opens_tunnel()
                && request.handshake.is_some_and(|it| it.offers_token)
                && self.values("sec-websocket-protocol").next().is_none()
            {
                fields.put("Sec-WebSocket-Protocol", BEARER.as_bytes());
            }
            has_date
        });
    }

    /// Writes the fields of the service that are for the client; returns true if `Date` is among
    /// them.
    fn write_passed(
        &self,
        head: &ResponseHead,
        request: ResponseTo<'_>,
        out: &mut Fields<'_>,
    ) -> bool {
        let to_http_2 = request.version == Version::HTTP_2;
        // Trailers go from HTTP/2 to HTTP/2 alone.
        let hop_by_hop =
            HopByHop::in_response(self.connection_options(), self.is_http_2 && to_http_2);
        let has_coding = self.has_coding();
        // RFC 9110 §8.6 and RFC 9112 §6.1: with fields that frame a body, a recipient could wait for it.
        let has_no_framing = head.status.is_informational()
            || head.status == StatusCode::NO_CONTENT
            || head.drops_framing;
        // RFC 9110 §15.5.22 for a 426; HTTP/2 has no `Upgrade` (RFC 9113 §8.2.2).
        let names_protocol = head.opens_tunnel() || head.status == StatusCode::UPGRADE_REQUIRED;
        let needs_upgrade = names_protocol && !to_http_2;
        let (mut has_length, mut has_date) = (false, false);
        for field in self.fields {
            let name = field.name;
            if is_named(name, "content-length") {
                // Ignored beside a coding (RFC 9112 §6.3); `2, 2` and repeated fields become one.
                if !(has_no_framing || has_coding || std::mem::replace(&mut has_length, true)) {
                    let mut parts = field.value.split(|&byte| byte == b',');
                    out.put(name, parts.next().unwrap_or_default().trim_ascii());
                }
                continue;
            }
            let is_dropped = if is_named(name, "transfer-encoding") {
                // A response without a body may announce a coding, except to HTTP/1.0 clients.
                has_no_framing
                    || head.sends_chunks
                    || !head.body.is_done()
                    || request.version != Version::HTTP_11
            } else if needs_upgrade && is_named(name, "upgrade") {
                false
            } else {
                // The sidecar sets these two itself, so the service's own are dropped.
                let is_echoed = request.echo.is_some() && is_named(name, REQUEST_ID.as_str());
                let is_nonce = request.verifies_proofs && is_named(name, DPOP_NONCE.as_str());
                is_echoed || is_nonce || hop_by_hop.contains(name)
            };
            if !is_dropped {
                has_date |= is_named(name, "date");
                out.put(name, field.value);
            }
        }
        has_date
    }
}
