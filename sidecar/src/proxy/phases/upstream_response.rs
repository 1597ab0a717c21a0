//! The response of the service.

use http::StatusCode;
use pingora::http::ResponseHeader;
use pingora::proxy::Session;
use pingora::{Error, ErrorType};

use super::AuthProxy;
use super::context::RequestContext;
use crate::upstream::response;

impl AuthProxy {
    /// Checks the head of the service's response, and measures its time.
    pub(super) fn on_upstream_response(
        &self,
        response: &mut ResponseHeader,
        ctx: &mut RequestContext,
    ) -> pingora::Result<()> {
        if response.status == StatusCode::SWITCHING_PROTOCOLS {
            // A stream of HTTP/2 becomes no tunnel.
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

    /// Adapts the head of the service's response to the client's stream.
    pub(super) fn adapt_response(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut RequestContext,
    ) -> pingora::Result<()> {
        if let Some(forward) = &mut ctx.forward {
            self.on_response_header(session, response, forward, &ctx.ids);
        }
        response::correct(response);
        if let Some((name, value)) = ctx.ids.echo() {
            response.insert_header(name, value)?;
        }
        Ok(())
    }

    pub(super) fn on_response_end(&self, session: &mut Session, ctx: &mut RequestContext) {
        if let Some(forward) = &mut ctx.forward {
            self.treat_as_plain(session, forward, &ctx.ids);
        }
    }
}
