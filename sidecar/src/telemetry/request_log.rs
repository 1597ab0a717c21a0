//! Request completion: metrics, access log, reported paths, the end of the span.

use std::sync::Arc;

use runtime::net::client_address::TrustedProxies;

use crate::telemetry::access_log::{AccessLog, LoggedUser, RequestRecord};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::outcome::{Completion, Outcome};
use crate::telemetry::reported_paths::ReportedPaths;
use crate::telemetry::request_span::RequestSpan;

/// Reporter of finished requests; clones share its metrics and its reported paths.
#[derive(Debug, Clone)]
pub(crate) struct RequestLogger {
    pub(crate) metrics: Metrics,
    pub(crate) access_log: AccessLog,
    pub(crate) logged_user: LoggedUser,
    pub(crate) trusted_proxies: Arc<TrustedProxies>,
    pub(crate) reported: Arc<ReportedPaths>,
}

impl RequestLogger {
    /// Reports a request and ends its span; `record` is called only if it is logged, reported or
    /// traced.
    pub(crate) fn request_ended<'a>(
        &self,
        completion: &Completion,
        span: RequestSpan,
        record: impl FnOnce() -> RequestRecord<'a>,
    ) {
        self.metrics.request_ended(completion);
        let reported = match completion.outcome {
            Outcome::Reported(rejection) => Some(rejection),
            _ => None,
        };
        let logged = self.access_log.wants(completion.outcome.reason());
        if reported.is_none() && !logged && !span.is_recorded() {
            return;
        }
        let record = record();
        if let Some((rejection, (method, target))) = reported.zip(record.request) {
            self.reported.remember(rejection, method, target);
        }
        if logged {
            record.write(completion);
        }
        span.end(completion, &record);
    }

    /// Logs a request whose rejection was counted and logged already, without its path, and ends its
    /// span. Its own record is logged only if every request is.
    pub(crate) fn request_ended_by_reported_rejection<'a>(
        &self,
        completion: &Completion,
        span: RequestSpan,
        record: impl FnOnce() -> RequestRecord<'a>,
    ) {
        let logged = self.access_log.wants(None);
        if !logged && !span.is_recorded() {
            return;
        }
        let record = record();
        if logged {
            record.write(completion);
        }
        span.end(completion, &record);
    }
}
