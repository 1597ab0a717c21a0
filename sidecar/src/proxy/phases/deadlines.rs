//! Timeouts of the parts of a request. Only a response that opens a stream exempts from one, never
//! the request itself, and then the token deadline is set.

use std::time::Duration;

use pingora::http::ResponseHeader;
use pingora::proxy::Session;
use runtime::process::clock::unix_now;

use super::AuthProxy;
use super::context::RequestContext;
use super::downstream_session::address_of;
use crate::auth::authorize::Forward;
use crate::proxy::stream_deadline::{self, StreamEnd};
use crate::request::kind::RequestKind;
use crate::telemetry::request_id::RequestIds;

impl AuthProxy {
    /// Limits the wait for a response where the upstream connection has no read timeout.
    fn expect_response(&self, session: &Session, ids: &RequestIds) {
        stream_deadline::expect_response(self.upstream.read_timeout(), || {
            self.request_record(session, ids)
        });
    }

    /// Ends a stream when its token expires or is revoked.
    fn end_with_token(&self, session: &Session, forward: &Forward, ids: &RequestIds) {
        if let Some(left) = self.token_time_left(forward) {
            stream_deadline::expire_stream_after(left, || self.request_record(session, ids));
        }
        if let Some(revocation) = self.revocation(forward) {
            stream_deadline::end_stream_on(revocation, || self.request_record(session, ids));
        }
    }

    /// Returns the revocation of the token, which ends a stream; `None` if no token does.
    pub(in crate::proxy) fn revocation(&self, forward: &Forward) -> Option<StreamEnd> {
        let verified = forward
            .verified
            .as_ref()
            .filter(|_| self.close_streams_on_expiry)?;
        // The list is about the tokens of its own issuer.
        let keys = self.keys.get(verified.issuer)?;
        Some(Box::pin(keys.revoked(verified.digests)))
    }

    /// Returns the time after which a stream has to end; `None` if no token ends it.
    pub(in crate::proxy) fn token_time_left(&self, forward: &Forward) -> Option<Duration> {
        let ends_at = forward.ends_at.filter(|_| self.close_streams_on_expiry)?;
        let left = u64::try_from(ends_at.saturating_sub(unix_now())).unwrap_or_default();
        Some(Duration::from_secs(left))
    }

    /// Sets the timeouts of an authorized request.
    pub(super) fn prepare(&self, session: &mut Session, forward: &Forward, ids: &RequestIds) {
        session.set_read_timeout(self.request_body_timeout);
        // The parts of a gRPC call have the timeout of its response.
        if forward.body && forward.kind != RequestKind::Grpc {
            stream_deadline::expect_body(self.request_body_timeout, || {
                self.request_record(session, ids)
            });
        }
        match forward.kind {
            RequestKind::Plain => {}
            RequestKind::EventStream | RequestKind::Grpc | RequestKind::WebSocket => {
                self.end_with_token(session, forward, ids);
                self.expect_response(session, ids);
            }
        }
    }

    /// Extends the deadlines of a request by a part of its body.
    pub(super) fn on_request_body(
        &self,
        session: &Session,
        end_of_stream: bool,
        ctx: &RequestContext,
    ) {
        if let Some(RequestKind::EventStream | RequestKind::Grpc) = ctx.kind() {
            // The service may wait for the whole body before it responds.
            stream_deadline::extend_response_deadline(self.upstream.read_timeout());
        }
        if ctx.kind() != Some(RequestKind::Grpc) {
            let within = self.request_body_timeout.filter(|_| !end_of_stream);
            stream_deadline::expect_body(within, || self.request_record(session, &ctx.ids));
        }
    }

    /// Adjusts the deadlines to the kind of the response.
    pub(super) fn on_response_header(
        &self,
        session: &mut Session,
        response: &ResponseHeader,
        forward: &mut Forward,
        ids: &RequestIds,
    ) {
        if forward
            .kind
            .becomes_stream(response.status, &response.headers)
        {
            self.end_with_token(session, forward, ids);
            stream_deadline::clear_response_deadline();
        } else if !response.status.is_informational() && forward.kind != RequestKind::Plain {
            stream_deadline::clear_token_deadline();
            self.extend_response_deadline(false);
            self.treat_as_plain(session, forward, ids);
        }
    }

    /// Gives the rest of the request the timeouts of a plain one: its response is no stream, or has
    /// ended.
    pub(super) fn treat_as_plain(
        &self,
        session: &mut Session,
        forward: &mut Forward,
        ids: &RequestIds,
    ) {
        forward.kind = RequestKind::Plain;
        if !session.as_downstream_mut().is_body_done() {
            stream_deadline::expect_body(self.request_body_timeout, || {
                self.request_record(session, ids)
            });
        }
    }

    /// Extends the deadline of a response that could have been a stream: Pingora's timeout for its
    /// parts is off. The client has its write timeout for each part too.
    pub(super) fn extend_response_deadline(&self, is_end: bool) {
        let within = self.part_timeout().filter(|_| !is_end);
        stream_deadline::extend_response_deadline(within);
    }

    /// Returns the time for one part of such a response.
    pub(in crate::proxy) fn part_timeout(&self) -> Option<Duration> {
        let both = self
            .upstream
            .read_timeout()
            .zip(self.downstream_write_timeout);
        both.map(|(read, send)| read.saturating_add(send))
    }

    /// Copies the request for the record of an expired deadline.
    pub(super) fn request_record(
        &self,
        session: &Session,
        ids: &RequestIds,
    ) -> stream_deadline::Request {
        let request = session.req_header();
        stream_deadline::Request {
            method: request.method.clone(),
            target: request.raw_path().to_vec(),
            client: self.client_ip(address_of(session), &session.req_header().headers),
            request_id: ids.request_id().cloned(),
            trace_id: ids.trace_id(&request.headers),
        }
    }
}
