//! The record of a request that has ended: counted, logged, traced.

use std::net::IpAddr;

use wire::rejection::Rejection;

use super::{Exchanges, Serving};
use crate::decision::authorize::Forward;
use crate::telemetry::access_log::RequestRecord;
use crate::telemetry::outcome::{Completion, Outcome};
use crate::telemetry::request_span::RequestSpan;

impl Exchanges {
    /// Reports a request that could not be parsed.
    pub(crate) fn report_unparsed(
        &self,
        rejection: Rejection,
        client: Option<IpAddr>,
        has_response: bool,
    ) {
        let completion = Completion {
            outcome: Outcome::Rejected(rejection),
            status: has_response.then(|| rejection.status().as_u16()),
            duration: None,
        };
        let logger = &self.app.request_logger;
        logger.request_ended(&completion, RequestSpan::default(), || RequestRecord {
            client,
            ..RequestRecord::default()
        });
    }
}

impl<C> Serving<'_, C> {
    /// Counts and logs the request, and records a rejection.
    pub(super) fn record(self, forward: Option<&Forward>) {
        use Rejection::{UpstreamMalformed, UpstreamTimeout, UpstreamUnavailable};
        let Self {
            mut request,
            progress,
            ..
        } = self;
        let app = &self.exchanges.app;
        let outcome = progress.outcome;
        let completion = Completion {
            outcome,
            status: progress.sent_status(),
            duration: Some(progress.ended().saturating_duration_since(request.began)),
        };
        let span = std::mem::take(&mut request.span);
        let (head, rules) = (&request.head, &request.rules.auth_policy);
        let logger = &app.request_logger;
        let verified = forward.and_then(|forward| forward.verified.as_ref());
        let is_of_service = matches!(
            outcome,
            Outcome::Rejected(UpstreamMalformed | UpstreamTimeout | UpstreamUnavailable)
        );
        // The configured address if it has no other.
        let failed_at = || match &progress.service {
            Some(address) => address.to_string(),
            None => app.upstream.address().to_string(),
        };
        let record = || RequestRecord {
            request: Some((&head.method, head.target())),
            client: request.client_ip(app, self.client),
            user: verified.and_then(|verified| {
                let details = || rules.user_header.user(&verified.identity).ok();
                logger.logged_user.name(details)
            }),
            issuer: rules.issuer_name(forward, &head.headers, request.opens_websocket()),
            upstream_duration: progress.upstream_duration,
            bytes: completion.status.map(|_| progress.sent_bytes()),
            upstream: is_of_service.then(failed_at),
            cause: progress.cause.clone(),
            request_id: request.ids.request_id().cloned(),
            trace_id: request.ids.trace_id(&head.headers),
        };
        if progress.is_reported {
            logger.request_ended_by_reported_rejection(&completion, span, record);
        } else {
            logger.request_ended(&completion, span, record);
        }
    }
}
