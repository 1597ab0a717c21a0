//! The client's side of a request: its stream and address.

use std::net::{IpAddr, SocketAddr};

use pingora::proxy::Session;

use super::AuthProxy;
use super::context::RequestContext;
use crate::proxy::stream_deadline;
use crate::telemetry::request_id::RequestIds;
use crate::telemetry::request_span::{RequestSpan, SpanHead};

impl AuthProxy {
    /// Sets up the client's stream for a request, and begins its trace.
    pub(super) fn begin(&self, session: &mut Session, ctx: &mut RequestContext) {
        // For each stream, beside the write timeout of the connection.
        session.set_write_timeout(self.downstream_write_timeout);
        let request = session.req_header();
        ctx.ids = RequestIds::of(&request.headers, self.request_ids);
        let head = SpanHead {
            method: &request.method,
            target: request.raw_path(),
            version: request.version,
            headers: &request.headers,
            tls: has_tls(session),
        };
        stream_deadline::keep_span(RequestSpan::begin(head, &mut ctx.ids));
    }
}

pub(super) fn address_of(session: &Session) -> Option<IpAddr> {
    let address = session.client_addr()?;
    address.as_inet().map(SocketAddr::ip)
}

pub(super) fn has_tls(session: &Session) -> bool {
    let digest = session.digest();
    digest.is_some_and(|digest| digest.ssl_digest.is_some())
}

/// Returns true once the final response has begun: no response of ours may follow.
pub(super) fn has_response(session: &Session) -> bool {
    let head = session.response_written();
    head.is_some_and(|head| !head.status.is_informational())
}
