//! The answers that the sidecar gives itself: the current user, and every refusal, in the envelope.

use std::time::Duration;

use bytes::Bytes;
use contract::api::envelope::Envelope;
use contract::http::cors::Endpoint;
use contract::rejection::Rejection;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use pingora::http::ResponseHeader;
use pingora::proxy::Session;

/// How long a client that is still sending may go on: it reads the answer only when it is done, and
/// closing earlier would reset the connection under it.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// What a 405 offers instead (RFC 9110 §15.5.6): of the user-details endpoint, and of the service,
/// whose own methods are not known here.
const USER_DETAILS_METHODS: &str = "GET, HEAD";
const SERVICE_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// One answer, ready to be sent.
#[derive(Debug)]
pub(crate) struct LocalResponse {
    status: StatusCode,
    body: Vec<u8>,
    rejection: Option<Rejection>,
    /// Seconds until the cause may be gone.
    retry_after: Option<u64>,
    /// What else its head says: CORS, the request's id.
    fields: Vec<(HeaderName, HeaderValue)>,
}

impl LocalResponse {
    /// A successful one with `body`, an envelope.
    pub(crate) fn success(body: Vec<u8>) -> Self {
        Self {
            status: StatusCode::OK,
            body,
            rejection: None,
            retry_after: None,
            fields: Vec::new(),
        }
    }

    /// To a browser that asks whether it may ask for the current user (Fetch standard §3.2.2).
    pub(crate) fn preflight() -> Self {
        Self {
            status: StatusCode::NO_CONTENT,
            body: Vec::new(),
            rejection: None,
            retry_after: None,
            fields: Endpoint::Reading.preflight_fields().into(),
        }
    }

    /// Adds fields to its head.
    pub(crate) fn with(
        mut self,
        fields: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    ) -> Self {
        self.fields.extend(fields);
        self
    }

    pub(crate) fn rejection(rejection: Rejection) -> Self {
        Self {
            status: rejection.status(),
            body: Envelope::rejection(rejection).to_json().unwrap_or_default(),
            rejection: Some(rejection),
            retry_after: rejection.retry_after().map(u64::from),
            fields: Vec::new(),
        }
    }

    /// Says that the cause may be gone after so many seconds.
    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        Self {
            retry_after: Some(seconds),
            ..self
        }
    }

    fn head(&self, method: &Method) -> pingora::Result<ResponseHeader> {
        let mut head = ResponseHeader::build(self.status, Some(8))?;
        // RFC 9110 §8.6: a 204 has neither.
        if self.status != StatusCode::NO_CONTENT {
            head.insert_header(header::CONTENT_TYPE, "application/json")?;
            head.insert_header(header::CONTENT_LENGTH, self.body.len())?;
        }
        for (name, value) in &self.fields {
            head.insert_header(name, value)?;
        }
        head.insert_header(header::CACHE_CONTROL, "no-store")?;
        let Some(rejection) = self.rejection else {
            return Ok(head);
        };
        if let Some(challenge) = rejection.www_authenticate() {
            head.insert_header("WWW-Authenticate", challenge)?;
        }
        if let Some(seconds) = self.retry_after {
            head.insert_header("Retry-After", seconds)?;
        }
        if rejection == Rejection::MethodNotAllowed {
            head.insert_header("Allow", instead_of(method))?;
        }
        Ok(head)
    }

    /// Sends it and takes in the rest of the request, so that the client gets to read it.
    pub(crate) async fn send(self, session: &mut Session) -> pingora::Result<()> {
        let head = self.head(&session.req_header().method)?;
        let has_body = !self.body.is_empty() && session.req_header().method != Method::HEAD;
        let unread = !session.is_body_done();
        if self.must_close() || (unread && expects_continue(session)) {
            session.set_keepalive(None);
        }
        // Otherwise Pingora closes at once when a request body is not read yet.
        session.set_close_on_response_before_downstream_finish(false);
        session
            .write_response_header(Box::new(head), !has_body)
            .await?;
        if has_body {
            session
                .write_response_body(Some(Bytes::from(self.body)), true)
                .await?;
        }
        // HTTP/2 tells the client by itself that the rest is not wanted (RFC 9113 §8.1).
        if unread && !session.is_http2() {
            drain(session).await;
        }
        Ok(())
    }

    /// Where the framing is in doubt, so is where the next request begins.
    fn must_close(&self) -> bool {
        matches!(
            self.rejection,
            Some(Rejection::RequestFraming | Rejection::RequestTimeout)
        )
    }
}

/// The whole answer to what never became a request: there is none to read anything from, and no
/// session to write through.
pub(crate) fn raw_http1_response(rejection: Rejection) -> Bytes {
    let response = LocalResponse::rejection(rejection);
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        response.status,
        response.body.len()
    );
    [head.into_bytes(), response.body].concat().into()
}

fn instead_of(method: &Method) -> &'static str {
    match *method {
        Method::TRACE | Method::CONNECT => SERVICE_METHODS,
        _ => USER_DETAILS_METHODS,
    }
}

/// Such a client may leave the body out now: what it sends next would be taken for the body.
fn expects_continue(session: &Session) -> bool {
    session.req_header().headers.contains_key(header::EXPECT)
}

async fn drain(session: &mut Session) {
    session.set_read_timeout(Some(DRAIN_TIMEOUT));
    session.set_total_drain_timeout(Some(DRAIN_TIMEOUT));
    if session.drain_request_body().await.is_err() {
        session.set_keepalive(None);
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
    fn a_refusal_says_the_same_in_status_header_and_envelope() {
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
    fn only_the_rows_that_need_them_carry_extra_fields() {
        assert_eq!(
            field(Rejection::AuthKeysUnavailable, "retry-after").as_deref(),
            Some("5")
        );
        assert_eq!(
            field(Rejection::MethodNotAllowed, "allow").as_deref(),
            Some("GET, HEAD")
        );
        assert_eq!(instead_of(&Method::TRACE), SERVICE_METHODS);
        for name in ["www-authenticate", "retry-after", "allow"] {
            assert_eq!(field(Rejection::PathNotCanonical, name), None, "{name}");
        }
    }

    #[test]
    fn a_refusal_may_know_better_when_to_come_back() {
        let response = LocalResponse::rejection(Rejection::AuthKeysUnavailable).retry_after(61);
        let head = response.head(&Method::GET).unwrap();
        assert_eq!(head.headers[header::RETRY_AFTER], "61");
    }

    #[test]
    fn what_is_no_request_gets_an_envelope_too() {
        let response =
            String::from_utf8(raw_http1_response(Rejection::RequestMalformed).to_vec()).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
        assert!(body.contains(r#""reason":"request_malformed""#), "{body}");
    }

    #[test]
    fn no_answer_may_be_stored_or_names_the_server() {
        for rejection in Rejection::ALL {
            let cache_control = field(*rejection, "cache-control");
            assert_eq!(cache_control.as_deref(), Some("no-store"));
            assert_eq!(field(*rejection, "server"), None);
        }
    }
}
