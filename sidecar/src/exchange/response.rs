//! The sidecar's own responses: the current user and every rejection, in the envelope.

use std::borrow::Cow;
use std::time::Duration;

use bytes::BufMut;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version, header};
use pingora::protocols::http::date::get_cached_date;
use pingora_http::ResponseHeader;
use wire::api::envelope::Envelope;
use wire::http::cors::Endpoint;
use wire::rejection::Rejection;

use crate::decision::protected_resource::ProtectedResource;
use crate::exchange::side::Outgoing;
use crate::request::kind::{GRPC_STATUS, is_grpc_call};

/// Wait for a client that is still sending: closing earlier would reset the connection before it
/// reads the response.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

const JSON: &str = "application/json";
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
    body: Vec<u8>,
    rejection: Option<Rejection>,
    /// Scopes of which one is enough.
    scope: Option<String>,
    /// Seconds until the cause may be gone.
    retry_after: Option<u64>,
    /// One more parameter of the challenge.
    challenge: Option<String>,
    /// Further headers: CORS, the request id.
    fields: Vec<(HeaderName, HeaderValue)>,
    media_type: &'static str,
}

impl LocalResponse {
    /// Creates a successful response with `body`, an envelope.
    pub(crate) fn success(body: Vec<u8>) -> Self {
        Self::of(StatusCode::OK, body)
    }

    /// Creates the response to a CORS preflight for the current user (Fetch standard §3.2.2).
    pub(crate) fn preflight() -> Self {
        Self::of(StatusCode::NO_CONTENT, Vec::new()).with(Endpoint::Reading.preflight_fields())
    }

    fn of(status: StatusCode, body: Vec<u8>) -> Self {
        Self {
            status,
            body,
            rejection: None,
            scope: None,
            retry_after: None,
            challenge: None,
            fields: Vec::new(),
            media_type: JSON,
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
        let body = Envelope::rejection(rejection).to_json();
        Self {
            rejection: Some(rejection),
            retry_after: rejection.retry_after().map(u64::from),
            ..Self::of(rejection.status(), body.unwrap_or_default())
        }
    }

    /// Turns a rejection into gRPC's: one head with the status of the call, and no body.
    fn into_grpc(mut self, rejection: Rejection) -> Self {
        let message = HeaderValue::try_from(rejection.grpc_message());
        // The text is printable: it cannot fail.
        let message = message.unwrap_or(HeaderValue::from_static("internal"));
        let status = HeaderValue::from(u16::from(rejection.grpc_status()));
        self.fields
            .push((HeaderName::from_static(GRPC_STATUS), status));
        self.fields.push((GRPC_MESSAGE, message));
        Self {
            status: StatusCode::OK,
            body: Vec::new(),
            media_type: "application/grpc",
            ..self
        }
    }

    /// Names the scopes of a rule in the challenge (RFC 6750 §3.1).
    pub(crate) fn required_scope(self, scopes: &[String]) -> Self {
        Self {
            scope: Some(scopes.join(" ")),
            ..self
        }
    }

    /// Adds the metadata of the resource to the challenge, where there is one.
    pub(crate) fn challenging(self, resource: Option<&ProtectedResource>) -> Self {
        Self {
            challenge: resource.map(|resource| resource.challenge().to_owned()),
            ..self
        }
    }

    /// Sets `Retry-After`.
    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        Self {
            retry_after: Some(seconds),
            ..self
        }
    }

    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the length of the body that a request with `method` gets.
    pub(crate) fn body_bytes(&self, method: &Method) -> u64 {
        match *method {
            Method::HEAD => 0,
            _ => self.body.len() as u64,
        }
    }

    fn head(&self, method: &Method) -> pingora::Result<ResponseHeader> {
        let mut head = ResponseHeader::build(self.status, Some(8))?;
        // RFC 9110 §8.6: a 204 has no body.
        if self.status != StatusCode::NO_CONTENT {
            head.insert_header(header::CONTENT_TYPE, self.media_type)?;
        }
        if self.media_type == JSON && self.status != StatusCode::NO_CONTENT {
            head.insert_header(header::CONTENT_LENGTH, self.body.len())?;
            head.insert_header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")?;
        }
        for (name, value) in &self.fields {
            head.insert_header(name, value)?;
        }
        head.insert_header(header::CACHE_CONTROL, "no-store")?;
        let Some(rejection) = self.rejection else {
            return Ok(head);
        };
        if let Some(challenge) = self.full_challenge(rejection) {
            head.insert_header("WWW-Authenticate", &*challenge)?;
        }
        if let Some(seconds) = self.retry_after {
            head.insert_header("Retry-After", seconds)?;
        }
        if rejection == Rejection::MethodNotAllowed {
            head.insert_header("Allow", allowed_methods(method))?;
        }
        Ok(head)
    }

    /// Returns the challenge of a rejection with the scope and the metadata that belong to it.
    fn full_challenge(&self, rejection: Rejection) -> Option<Cow<'static, str>> {
        let mut challenge = Cow::Borrowed(rejection.www_authenticate()?);
        if let Some(scope) = &self.scope {
            challenge += Cow::Owned(format!(", scope=\"{scope}\""));
        }
        if let Some(more) = &self.challenge {
            challenge += Cow::Owned(format!(", {more}"));
        }
        Some(challenge)
    }

    /// Adapts a rejection to a request that is a gRPC call.
    pub(crate) fn for_call(self, method: &Method, version: Version, received: &HeaderMap) -> Self {
        match self.rejection {
            Some(rejection) if is_grpc_call(method, version, received) => self.into_grpc(rejection),
            _ => self,
        }
    }

    /// Appends the whole response to a request with `method`.
    pub(crate) fn write(
        &self,
        method: &Method,
        version: Version,
        keep_alive: bool,
        out: &mut Outgoing,
    ) {
        out.is_whole = true;
        let Ok(mut head) = self.head(method) else {
            let bytes = raw_http1_response(Rejection::Internal);
            return out.bytes.extend_from_slice(&bytes);
        };
        let _ = head.insert_header(header::DATE, get_cached_date());
        if version == Version::HTTP_2 {
            out.heads
                .push(Response::from_parts(head.as_owned_parts(), ()));
        } else {
            let connection = if keep_alive { "keep-alive" } else { "close" };
            let _ = head.insert_header(header::CONNECTION, connection);
            let line = format!("HTTP/1.1 {}\r\n", self.status);
            out.bytes.put_slice(line.as_bytes());
            head.header_to_h1_wire(&mut out.bytes);
            out.bytes.put_slice(b"\r\n");
        }
        if *method != Method::HEAD {
            out.bytes.put_slice(&self.body);
        }
    }

    /// Returns true if the begin of the next request is uncertain.
    pub(crate) fn must_close(&self) -> bool {
        matches!(
            self.rejection,
            Some(Rejection::RequestFraming | Rejection::RequestTimeout)
        )
    }
}

/// Returns the bytes of an HTTP/1.1 response to a request that could not be parsed: it has no
/// session.
pub(crate) fn raw_http1_response(rejection: Rejection) -> Vec<u8> {
    let response = LocalResponse::rejection(rejection);
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
        response.status,
        response.body.len()
    );
    [head.into_bytes(), response.body].concat()
}

fn allowed_methods(method: &Method) -> &'static str {
    match *method {
        Method::TRACE | Method::CONNECT => SERVICE_METHODS,
        _ => USER_DETAILS_METHODS,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn field(rejection: Rejection, name: &str) -> Option<String> {
        let head = LocalResponse::rejection(rejection)
            .head(&Method::POST)
            .unwrap();
        let value = head.headers.get(name)?;
        Some(value.to_str().unwrap().to_owned())
    }

    #[test]
    fn status_header_and_envelope_of_a_rejection_agree() {
        let response = LocalResponse::rejection(Rejection::TokenExpired);
        assert_eq!(
            response.head(&Method::GET).unwrap().status,
            StatusCode::UNAUTHORIZED
        );
        let body: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(body["status"], 401);
        assert_eq!(body["data"]["reason"], "token_expired");
        assert_eq!(
            field(Rejection::TokenExpired, "www-authenticate").as_deref(),
            Rejection::TokenExpired.www_authenticate()
        );
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
        assert_eq!(allowed_methods(&Method::TRACE), SERVICE_METHODS);
        for name in ["www-authenticate", "retry-after", "allow"] {
            assert_eq!(field(Rejection::PathNotCanonical, name), None, "{name}");
        }
    }

    #[test]
    fn a_rejected_grpc_call_gets_its_status_in_the_head_alone() {
        let response = LocalResponse::rejection(Rejection::AuthKeysUnavailable);
        let response = response.into_grpc(Rejection::AuthKeysUnavailable);
        assert!(response.body.is_empty());
        let head = response.head(&Method::POST).unwrap();
        assert_eq!(head.status, StatusCode::OK);
        for (name, value) in [
            ("content-type", "application/grpc"),
            ("grpc-status", "14"),
            (
                "grpc-message",
                "auth_keys_unavailable: no verification key is available yet",
            ),
            ("retry-after", "5"),
        ] {
            assert_eq!(head.headers[name], value);
        }
        assert!(!head.headers.contains_key("content-length"));
    }

    #[test]
    fn retry_after_can_be_overridden() {
        let response = LocalResponse::rejection(Rejection::AuthKeysUnavailable).retry_after(61);
        let head = response.head(&Method::GET).unwrap();
        assert_eq!(head.headers[header::RETRY_AFTER], "61");
    }

    #[test]
    fn a_raw_response_has_an_envelope_too() {
        let response = String::from_utf8(raw_http1_response(Rejection::RequestMalformed)).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
        assert!(head.contains("\r\nX-Content-Type-Options: nosniff\r\n"));
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
