//! The sidecar's own responses: the current user and every rejection, in the envelope.

use bytes::{BufMut, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use postern_contract::envelope::Envelope;
use postern_contract::rejection::Rejection;
use postern_http::cors::preflight_fields;
use postern_http::methods;
use postern_token::keys::algorithms;

use super::client_head::ClientHead;
use super::downstream::Outgoing;
use postern_http::request::kind::{GRPC_STATUS, RequestKind};
use postern_http::request::received::ReceivedHead;

/// The text beside the status of a gRPC call.
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// `Allow` of a 405 (RFC 9110 §15.5.6): for the user-details endpoint, and for the service, whose
/// own methods are unknown.
const USER_DETAILS_METHODS: &str = "GET, HEAD";
const SERVICE_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Response of the sidecar itself.
#[derive(Debug)]
pub(crate) struct LocalResponse {
    status: StatusCode,
    fields: HeaderMap,
    body: Vec<u8>,
    rejection: Option<Rejection>,
}

impl LocalResponse {
    /// Creates a successful response with `body`, an envelope.
    pub(crate) fn success(body: Vec<u8>) -> Self {
        Self::new(StatusCode::OK, body)
    }

    /// Creates the response to a CORS preflight for the current user (Fetch standard §3.2.2).
    pub(crate) fn preflight() -> Self {
        Self::new(StatusCode::NO_CONTENT, Vec::new()).with(preflight_fields(USER_DETAILS_METHODS))
    }

    fn new(status: StatusCode, body: Vec<u8>) -> Self {
        let mut fields = HeaderMap::new();
        // RFC 9110 §8.6: a 204 has no body.
        if status != StatusCode::NO_CONTENT {
            fields.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            );
            fields.insert(header::CONTENT_LENGTH, body.len().into());
            fields.insert(
                header::X_CONTENT_TYPE_OPTIONS,
                HeaderValue::from_static("nosniff"),
            );
        }
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Self {
            status,
            fields,
            body,
            rejection: None,
        }
    }

    /// Adds headers.
    pub(crate) fn with(
        mut self,
        fields: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    ) -> Self {
        self.fields.extend(fields);
        self
    }

    /// Creates the response of a rejection.
    pub(crate) fn rejection(rejection: Rejection) -> Self {
        let body = Envelope::rejection(rejection).to_json().unwrap_or_default();
        let mut response = Self::new(rejection.status(), body);
        response.rejection = Some(rejection);
        if let Some(challenge) = rejection.www_authenticate() {
            response.fields.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static(challenge),
            );
        }
        match rejection.retry_after() {
            Some(seconds) => response.retry_after(seconds.into()),
            None => response,
        }
    }

    /// Adds a parameter to the challenge, if there is one.
    pub(crate) fn challenging(mut self, parameter: &str) -> Self {
        if let Some(challenge) = self.fields.get_mut(header::WWW_AUTHENTICATE) {
            let more = [challenge.as_bytes(), b", ", parameter.as_bytes()].concat();
            // Scopes and metadata are printable: the conversion cannot fail.
            if let Ok(more) = HeaderValue::from_maybe_shared(Bytes::from(more)) {
                *challenge = more;
            }
        }
        self
    }

    /// Adds the challenge `DPoP` for tokens with proofs (RFC 9449 §7.1), with the parameters of the challenge
    /// `Bearer`, if there is one. `Bearer` stands first, because clients of MCP read only a field that begins
    /// with it; where a nonce is requested `DPoP` stands first, because clients of DPoP read the first alone.
    pub(crate) fn challenging_for_proofs(mut self, rejection: Rejection) -> Self {
        // A rejection without a challenge has no use for another one.
        let Some(bearer) = self.fields.remove(header::WWW_AUTHENTICATE) else {
            return self;
        };
        let parameters = bearer.as_bytes().strip_prefix(b"Bearer ");
        let dpop = parameters.and_then(|parameters| {
            let start = format!(
                "DPoP algs=\"{}\", ",
                algorithms::asymmetric_names().join(" ")
            );
            let challenge = [start.as_bytes(), parameters].concat();
            HeaderValue::from_maybe_shared(Bytes::from(challenge)).ok()
        });
        let challenges = match rejection {
            Rejection::ProofNonce => [dpop, Some(bearer)],
            _ => [Some(bearer), dpop],
        };
        for challenge in challenges.into_iter().flatten() {
            self.fields.append(header::WWW_AUTHENTICATE, challenge);
        }
        self
    }

    /// Sets `Retry-After`.
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.fields.insert(header::RETRY_AFTER, seconds.into());
        self
    }

    /// Adapts a rejection to its request: the methods that it may have, and the form of a gRPC call,
    /// which is one head with the status of the call, and no body.
    pub(super) fn to(mut self, received: &ReceivedHead) -> Self {
        let Some(rejection) = self.rejection else {
            return self;
        };
        if rejection == Rejection::MethodNotAllowed {
            let methods = HeaderValue::from_static(match methods::check(&received.method) {
                // TRACE or CONNECT, in any letter case, which no service gets.
                Err(_) => SERVICE_METHODS,
                // Any other method was rejected by an endpoint of the sidecar.
                Ok(()) => USER_DETAILS_METHODS,
            });
            self.fields.insert(header::ALLOW, methods);
        }
        // Only a gRPC client reads the status from a field.
        if received.kind != RequestKind::Grpc {
            return self;
        }
        let message = HeaderValue::try_from(rejection.grpc_message());
        let grpc = HeaderValue::from_static("application/grpc");
        let status = u16::from(rejection.grpc_status()).into();
        self.fields.remove(header::CONTENT_LENGTH);
        self.fields.remove(header::X_CONTENT_TYPE_OPTIONS);
        self.fields.insert(header::CONTENT_TYPE, grpc);
        self.fields
            .insert(HeaderName::from_static(GRPC_STATUS), status);
        // The text is printable: the conversion cannot fail.
        self.fields.insert(
            GRPC_MESSAGE,
            message.unwrap_or(HeaderValue::from_static("internal")),
        );
        // The head alone is the response (Trailers-Only of gRPC); its fields carry the status.
        Self {
            status: StatusCode::OK,
            body: Vec::new(),
            ..self
        }
    }

    /// Appends the whole response to a request with `method`; returns its status and the length of its
    /// body.
    pub(crate) fn write(
        &self,
        method: &Method,
        version: Version,
        keep_alive: bool,
        out: &mut Outgoing,
    ) -> (u16, u64) {
        out.is_whole = true;
        let head = ClientHead {
            version,
            status: self.status,
            reason: self.status.canonical_reason().unwrap_or_default(),
            connection: Some(if keep_alive { "keep-alive" } else { "close" }),
        };
        head.write(out, self.body.len(), |fields| {
            for (name, value) in &self.fields {
                fields.put(name.as_str(), value.as_bytes());
            }
            false
        });
        // `Content-Length` stays the one of a GET (RFC 9110 §9.3.2).
        let body: &[u8] = match *method {
            Method::HEAD => &[],
            _ => &self.body,
        };
        out.bytes.put_slice(body);
        (self.status.as_u16(), body.len() as u64)
    }

    /// Returns true if the beginning of the next request is uncertain.
    pub(crate) fn must_close(&self) -> bool {
        matches!(
            self.rejection,
            Some(Rejection::RequestFraming | Rejection::RequestTimeout)
        )
    }
}

/// Returns the response in HTTP/1.1 to a request that could not be parsed.
pub(crate) fn raw_http1_response(rejection: Rejection) -> Outgoing {
    let mut out = Outgoing::default();
    LocalResponse::rejection(rejection).write(&Method::GET, Version::HTTP_11, false, &mut out);
    out
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use bytes::BytesMut;

    use super::*;

    fn received(line: &str) -> ReceivedHead {
        let head = format!("{line}\r\nHost: a\r\n\r\n");
        let head = postern_http::request::received::take(&mut BytesMut::from(head.as_bytes()));
        head.unwrap().unwrap()
    }

    fn field(rejection: Rejection, name: &str) -> Option<String> {
        let response = LocalResponse::rejection(rejection).to(&received("POST / HTTP/1.1"));
        let value = response.fields.get(name)?;
        Some(value.to_str().unwrap().to_owned())
    }

    #[test]
    fn only_the_rejections_that_need_them_have_extra_headers() {
        assert_eq!(
            field(Rejection::AuthKeysUnavailable, "retry-after").as_deref(),
            Some("5")
        );
        assert_eq!(
            field(Rejection::MethodNotAllowed, "allow").as_deref(),
            Some("GET, HEAD")
        );
        for name in ["www-authenticate", "retry-after", "allow"] {
            assert_eq!(field(Rejection::PathNotCanonical, name), None, "{name}");
        }
    }

    #[test]
    fn a_raw_response_has_an_envelope_too() {
        let response = raw_http1_response(Rejection::RequestMalformed).bytes;
        let response = str::from_utf8(&response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())));
        assert!(head.contains("\r\nx-content-type-options: nosniff\r\n"));
        assert!(body.contains(r#""reason":"request_malformed""#), "{body}");
    }

    #[test]
    fn no_response_may_be_stored_or_sniffed_or_names_the_server() {
        for rejection in Rejection::ALL {
            let cache_control = field(*rejection, "cache-control");
            assert_eq!(cache_control.as_deref(), Some("no-store"));
            let options = field(*rejection, "x-content-type-options");
            assert_eq!(options.as_deref(), Some("nosniff"));
            assert_eq!(field(*rejection, "server"), None);
        }
    }
}
