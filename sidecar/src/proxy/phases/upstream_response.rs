//! The response of the service.

use pingora::proxy::Session;

use super::AuthProxy;
use super::context::RequestContext;

impl AuthProxy {
    pub(super) fn on_response_end(&self, session: &mut Session, ctx: &mut RequestContext) {
        if let Some(forward) = &mut ctx.forward {
            self.treat_as_plain(session, forward, &ctx.ids);
        }
    }
}
