//! The client's side of a request: its connection, address and keep-alive.

use std::net::{IpAddr, SocketAddr};

use http::StatusCode;
use pingora::protocols::http::ServerSession;
use pingora::proxy::Session;
use runtime::net::listener::CLIENT_IDLE;

use super::AuthProxy;
use super::context::RequestContext;
use crate::downstream::stream::ClientStream;
use crate::proxy::stream_deadline;
use crate::telemetry::request_id::RequestIds;
use crate::telemetry::request_span::{RequestSpan, SpanHead};

impl AuthProxy {
    /// Sets up the client's connection for a request, and begins its trace.
    pub(super) fn begin(&self, session: &mut Session, ctx: &mut RequestContext) {
        set_handling(session, true);
        allow_pipelining(session);
        if session.is_http2() {
            // For each stream, beside the write timeout of the connection.
            session.set_write_timeout(self.downstream_write_timeout);
        }
        self.limit_connection(session);
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

    /// Limits how long the connection may stay open between requests.
    fn limit_connection(&self, session: &mut Session) {
        if self.draining.is_on() {
            session.set_keepalive(None);
        } else if session.get_keepalive().is_some() {
            // `Connection: close` and HTTP/1.0 have no keep-alive.
            session.set_keepalive(Some(CLIENT_IDLE.as_secs()));
        }
    }
}

/// Marks what is written as the response of a request, until its end.
pub(super) fn set_handling(session: &Session, handling: bool) {
    if let Some(stream) = ClientStream::of(session) {
        stream.set_handling(handling);
    }
}

/// Allows bytes behind the present request: the next one (RFC 9112 §9.3.2), or an empty line after
/// a body. Pingora would fail the present request otherwise, which the service may have carried out
/// by then.
fn allow_pipelining(session: &mut Session) {
    if let ServerSession::H1(connection) = session.as_downstream_mut() {
        connection.set_pipelining_enabled(true);
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

/// Returns true once the final response has begun or a tunnel is open: no response of ours may
/// follow.
pub(super) fn has_response(session: &Session) -> bool {
    session.response_written().is_some_and(|head| {
        !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS
    })
}
