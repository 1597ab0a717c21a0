//! The response of the service.

use http::StatusCode;
use pingora::http::ResponseHeader;
use pingora::proxy::Session;
use pingora::{Error, ErrorType};

use super::AuthProxy;
use super::context::RequestContext;
use crate::auth::strip_token;
use crate::downstream::stream::ClientStream;
use crate::request::kind::RequestKind;
use crate::upstream::response;

impl AuthProxy {
    /// Checks the head of the service's response, and measures its time.
    pub(super) fn on_upstream_response(
        &self,
        response: &mut ResponseHeader,
        ctx: &mut RequestContext,
    ) -> pingora::Result<()> {
        if response.status == StatusCode::SWITCHING_PROTOCOLS
            && ctx.kind() != Some(RequestKind::WebSocket)
        {
            // The client did not request a tunnel.
            return Err(Error::new_up(ErrorType::InvalidHTTPHeader));
        }
        response::check_framing(response)?;
        if !response.status.is_informational() {
            let after = ctx.decided.elapsed();
            self.metrics.service_responded(after);
            ctx.upstream_duration = Some(after);
        }
        Ok(())
    }

    /// Adapts the head of the service's response to the client's connection.
    pub(super) fn adapt_response(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut RequestContext,
    ) -> pingora::Result<()> {
        if let Some(forward) = &mut ctx.forward {
            self.on_response_header(session, response, forward, &ctx.ids);
        }
        if response.status == StatusCode::SWITCHING_PROTOCOLS {
            open_tunnel(session, response, ctx)?;
        }
        response::correct(response, session.req_header().version);
        if response::ends_connection(response, session.req_header()) {
            session.set_keepalive(None);
        }
        if let Some((name, value)) = ctx.ids.echo() {
            response.insert_header(name, value)?;
        }
        if self.draining.is_on() {
            session.set_keepalive(None);
        }
        Ok(())
    }

    pub(super) fn on_response_end(&self, session: &mut Session, ctx: &mut RequestContext) {
        if let Some(forward) = &mut ctx.forward {
            self.treat_as_plain(session, forward, &ctx.ids);
        }
    }
}

/// Prepares both sides of a WebSocket: no timeout of requests, no token in the chosen protocol.
fn open_tunnel(
    session: &mut Session,
    response: &mut ResponseHeader,
    ctx: &RequestContext,
) -> pingora::Result<()> {
    session.set_read_timeout(None);
    if let Some(stream) = ClientStream::of(session) {
        stream.set_tunnel();
    }
    let offered = &session.req_header().headers;
    let sources = ctx.rules.auth_policy.interceptor.sources();
    strip_token::choose_protocol(response, sources, offered)
}
