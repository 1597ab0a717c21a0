//! The sidecar's own response to a request.

use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::proxy::Session;
use wire::rejection::Rejection;

use super::AuthProxy;
use super::context::RequestContext;
use super::downstream_session::has_response;
use crate::config::live::Rules;
use crate::proxy::response::LocalResponse;
use crate::telemetry::outcome::Outcome;
use crate::telemetry::request_id::RequestIds;

impl AuthProxy {
    /// Sends our own response to a request that is not forwarded.
    pub(super) async fn respond(
        &self,
        session: &mut Session,
        ctx: &RequestContext,
        response: LocalResponse,
    ) {
        let received = &session.req_header().headers;
        let response = response
            .challenging(ctx.rules.auth_policy.resource.as_deref())
            .with(Self::common_response_headers(
                &ctx.rules, &ctx.ids, received,
            ));
        // One connection could hold a hundred heads in memory. A user with its share gets no permit
        // as an address.
        let is_busy = ctx.outcome == Outcome::Rejected(Rejection::ServerBusy);
        let holder = (!is_busy).then(|| self.client_of(session));
        let sent = response.send(session);
        // An error means that the client is gone.
        let _ = self.in_flight.while_waiting(holder, sent).await;
    }

    /// Sends the rejection of a request that failed on its way, unless a response has begun.
    pub(super) async fn respond_to_error(
        &self,
        session: &mut Session,
        ctx: &RequestContext,
        rejection: Option<Rejection>,
    ) {
        if let Some(rejection) = rejection.filter(|_| !has_response(session)) {
            let received = &session.req_header().headers;
            let fields = Self::common_response_headers(&ctx.rules, &ctx.ids, received);
            // An error means that the client is gone.
            let _ = LocalResponse::rejection(rejection)
                .with(fields)
                .send(session)
                .await;
        }
    }

    /// Returns the headers of all our own responses: CORS and the request id.
    pub(in crate::proxy) fn common_response_headers(
        rules: &Rules,
        ids: &RequestIds,
        received: &HeaderMap,
    ) -> Vec<(HeaderName, HeaderValue)> {
        let origins = rules.auth_policy.interceptor.allowed_origins();
        let mut fields = origins.response_fields(received);
        fields.extend(ids.echo());
        fields
    }
}
