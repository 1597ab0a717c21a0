//! The record of a request that has ended: counted, logged, traced.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Instant;

use postern_contract::rejection::Rejection;
use postern_transport::traces::request_span::RequestSpan;

use super::{Exchanges, Serving};
use crate::decision::forward::Forward;
use crate::telemetry::access_log::{AccessLine, LoggedPath};
use crate::telemetry::outcome::{Completion, Outcome};

/// The response to a request that could not be parsed.
pub(crate) enum UnparsedResponse {
    Sent,
    NotSent,
}

impl Exchanges {
    /// Reports a request that could not be parsed.
    pub(crate) fn report_unparsed(
        &self,
        rejection: Rejection,
        client: Option<IpAddr>,
        response: UnparsedResponse,
    ) {
        let completion = Completion {
            outcome: Outcome::Rejected(rejection),
            status: match response {
                UnparsedResponse::Sent => Some(rejection.status().as_u16()),
                UnparsedResponse::NotSent => None,
            },
            duration: None,
            was_counted: false,
        };
        self.app.request_logger.request_ended(
            completion,
            self.app.rules.load().access_log,
            RequestSpan::default(),
            || AccessLine {
                client,
                ..AccessLine::default()
            },
        );
    }
}

impl<C> Serving<'_, C> {
    /// Counts and logs the request, and records a rejection; returns the end of the request, which is
    /// now unless it has ended.
    pub(super) fn record(&mut self, forward: Option<&Forward>) -> Instant {
        use Rejection::{UpstreamMalformed, UpstreamTimeout, UpstreamUnavailable};
        self.is_recorded = true;
        let span = std::mem::take(&mut self.request.span);
        let (request, progress) = (&self.request, &self.progress);
        let app = &self.exchanges.app;
        let sent = progress.sent();
        let ended = progress.ended.unwrap_or_else(Instant::now);
        let completion = Completion {
            outcome: progress.outcome,
            status: sent.map(|(status, _)| status),
            duration: Some(ended.saturating_duration_since(request.began)),
            was_counted: progress.was_counted,
        };
        let (head, rules) = (&request.head, &request.rules.auth_policy);
        let user = || {
            let verified = forward?.verified.as_ref()?;
            request
                .rules
                .logged_user
                .name(|| rules.user_header.user(&verified.identity).ok())
        };
        if progress.outcome == Outcome::Rejected(Rejection::ServerBusy) {
            app.in_flight.warn(request.client_ip(app), user);
        }
        let is_of_service = match progress.outcome {
            Outcome::Rejected(UpstreamMalformed | UpstreamTimeout | UpstreamUnavailable) => true,
            // A client that left before a response may have waited for the service.
            Outcome::Aborted => sent.is_none() && progress.service.is_some(),
            _ => false,
        };
        // The configured address, if no address was tried.
        let failed_at = || match &progress.service {
            Some(address) => address.to_string(),
            None => app.upstream.address().to_string(),
        };
        let rejection_cause = || match progress.outcome {
            Outcome::Rejected(rejection) | Outcome::Reported(rejection) => {
                rules.cause(rejection, head).map(Cow::from)
            }
            _ => None,
        };
        app.request_logger
            .request_ended(completion, request.rules.access_log, span, || AccessLine {
                method: Some(head.method.as_str()),
                path: Some(LoggedPath(head.target())),
                client: request.client_ip(app),
                user: user(),
                issuer: rules.issuer_name(forward, head),
                upstream_duration: progress.upstream_duration,
                bytes: sent.map(|(_, bytes)| bytes),
                upstream: is_of_service.then(failed_at),
                cause: match &progress.cause {
                    Some(cause) => Some(cause.into()),
                    None => rejection_cause(),
                },
                request_id: request.ids.request_id(),
                trace_id: request.ids.trace_id(&head.headers),
                ..AccessLine::default()
            });
        ended
    }
}
