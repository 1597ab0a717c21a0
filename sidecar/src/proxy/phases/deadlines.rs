//! How long the parts of a request may take. What the request says of itself exempts it from nothing: only
//! an answer that opens a stream does, and then the token's end is armed.

use std::time::Duration;

use http::Version;
use pingora::http::ResponseHeader;
use pingora::proxy::Session;
use runtime::clock::unix_now;

use super::AuthProxy;
use crate::auth::authorize::Forward;
use crate::proxy::stream_deadline;
use crate::request::kind::RequestKind;
use crate::telemetry::request_id::RequestIds;

impl AuthProxy {
    /// Bounds how long the service may be silent where the connection to it does not.
    fn expect_response(&self, session: &Session, ids: &RequestIds) {
        stream_deadline::expect_response(self.upstream.read_timeout(), || {
            self.request_record(session, ids)
        });
    }

    /// Has a stream end when its token does.
    fn end_with_token(&self, session: &Session, forward: &Forward, ids: &RequestIds) {
        let Some(ends_at) = forward.ends_at.filter(|_| self.end_streams) else {
            return;
        };
        let left = u64::try_from(ends_at.saturating_sub(unix_now())).unwrap_or_default();
        stream_deadline::expire_stream_after(Duration::from_secs(left), || {
            self.request_record(session, ids)
        });
    }

    /// Prepares a connection for what was just admitted.
    pub(super) fn prepare(&self, session: &mut Session, forward: &Forward, ids: &RequestIds) {
        session.set_read_timeout(self.request_body_timeout);
        // The next part of a call is waited for as long as its answer is.
        if session.is_http2() && forward.body && forward.kind != RequestKind::Grpc {
            stream_deadline::expect_body(self.request_body_timeout, || {
                self.request_record(session, ids)
            });
        }
        // RFC 9110 §15.2: HTTP/1.0 knows no interim answers.
        let is_http_1_0 = session.req_header().version == Version::HTTP_10;
        session.set_ignore_info_resp(is_http_1_0);
        match forward.kind {
            RequestKind::Plain => {}
            RequestKind::EventStream | RequestKind::Grpc | RequestKind::WebSocket => {
                self.end_with_token(session, forward, ids);
                self.expect_response(session, ids);
            }
        }
    }

    /// Now it is known what becomes of the request.
    pub(super) fn on_response_header(
        &self,
        session: &mut Session,
        answer: &ResponseHeader,
        forward: &mut Forward,
        ids: &RequestIds,
    ) {
        if forward.kind.becomes_stream(answer.status, &answer.headers) {
            self.end_with_token(session, forward, ids);
            stream_deadline::clear_response_deadline();
        } else if !answer.status.is_informational() && forward.kind != RequestKind::Plain {
            stream_deadline::clear_token_deadline();
            self.extend_response_deadline(false);
            self.hold_to_plain(session, forward, ids);
        }
    }

    /// Holds what is left of the request to the time of any other: its answer opened no stream, or has ended.
    pub(super) fn hold_to_plain(
        &self,
        session: &mut Session,
        forward: &mut Forward,
        ids: &RequestIds,
    ) {
        forward.kind = RequestKind::Plain;
        if session.is_http2() && !session.as_downstream_mut().is_body_done() {
            stream_deadline::expect_body(self.request_body_timeout, || {
                self.request_record(session, ids)
            });
        }
    }

    /// Moves on the end of an answer that might have become a stream and is none: Pingora's time-out for its
    /// parts is off. The client may take its time with the part that came, too.
    pub(super) fn extend_response_deadline(&self, to_its_end: bool) {
        let within = self.upstream.read_timeout().zip(self.send_timeout);
        let within = within.filter(|_| !to_its_end);
        stream_deadline::extend_response_deadline(
            within.map(|(read, send)| read.saturating_add(send)),
        );
    }

    /// For the line about a request that is given up.
    pub(super) fn request_record(
        &self,
        session: &Session,
        ids: &RequestIds,
    ) -> stream_deadline::Request {
        let request = session.req_header();
        stream_deadline::Request {
            method: request.method.clone(),
            target: request.raw_path().to_vec(),
            client: self.client_ip(session),
            request_id: ids.request_id().cloned(),
            trace_id: ids.trace_id(&request.headers),
        }
    }
}
