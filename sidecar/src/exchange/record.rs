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
        self.is_recorded = true;
        let span = std::mem::take(&mut self.request.span);
        let (request, progress) = (&self.request, &self.progress);
        let app = &self.exchanges.app;
        let ended = progress.ended.unwrap_or_else(Instant::now);
        let completion = Completion {
            outcome: progress.outcome,
            status: progress.sent().map(|(status, _)| status),
            duration: Some(ended.saturating_duration_since(request.began)),
            was_counted: progress.was_counted,
        };
        if progress.outcome == Outcome::Rejected(Rejection::ServerBusy) {
            app.in_flight
                .warn(request.client_ip(app), || self.user_name(forward));
        }
        app.request_logger
            .request_ended(completion, request.rules.access_log, span, || {
                self.access_line(forward)
            });
        ended
    }

    fn access_line(&self, forward: Option<&Forward>) -> AccessLine<'_> {
        let (request, progress) = (&self.request, &self.progress);
        let head = &request.head;
        AccessLine {
            method: Some(head.method.as_str()),
            path: Some(LoggedPath(head.target())),
            client: request.client_ip(&self.exchanges.app),
            user: self.user_name(forward),
            issuer: request.rules.auth_policy.issuer_name(forward, head),
            upstream_duration: progress.upstream_duration,
            bytes: progress.sent().map(|(_, bytes)| bytes),
            upstream: self.failed_service(),
            cause: self.cause(),
            request_id: request.ids.request_id(),
            trace_id: request.ids.trace_id(&head.headers),
            ..AccessLine::default()
        }
    }

    /// Returns the name of the user, where the log names users.
    fn user_name(&self, forward: Option<&Forward>) -> Option<String> {
        let verified = forward?.verified.as_ref()?;
        let rules = &self.request.rules;
        rules.logged_user.name(|| {
            let header = &rules.auth_policy.user_header;
            header.user(&verified.identity).ok()
        })
    }

    /// Returns the address of the service, if the service failed: the configured one, if none was tried.
    fn failed_service(&self) -> Option<String> {
        use Rejection::{UpstreamMalformed, UpstreamTimeout, UpstreamUnavailable};
        let progress = &self.progress;
        let has_failed = match progress.outcome {
            Outcome::Rejected(UpstreamMalformed | UpstreamTimeout | UpstreamUnavailable) => true,
            // A client that left before a response may have waited for the service.
            Outcome::Aborted => progress.sent().is_none() && progress.service.is_some(),
            _ => false,
        };
        has_failed.then(|| match &progress.service {
            Some(address) => address.to_string(),
            None => self.exchanges.app.upstream.address().to_string(),
        })
    }

    /// Returns the noted cause of the outcome, or else what the request itself shows of a rejection.
    fn cause(&self) -> Option<Cow<'_, str>> {
        if let Some(cause) = &self.progress.cause {
            return Some(cause.into());
        }
        let rejection = self.progress.outcome.rejection()?;
        let rules = &self.request.rules.auth_policy;
        rules.cause(rejection, &self.request.head).map(Cow::from)
    }
}
