//! Request completion: metrics, access log, recent rejections, the end of the span.

use std::sync::Arc;
use std::time::SystemTime;

use runtime::net::client_address::TrustedProxies;

use crate::telemetry::access_log::{AccessLog, LoggedUser, RequestRecord};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::outcome::{Completion, Outcome};
use crate::telemetry::recent_rejections::RecentRejections;
use crate::telemetry::reported_paths::ReportedPaths;
use crate::telemetry::request_span::RequestSpan;

/// Reporter of finished requests; clones share its metrics and its recent rejections.
#[derive(Debug, Clone)]
pub(crate) struct RequestLogger {
    pub(crate) metrics: Metrics,
    pub(crate) access_log: AccessLog,
    pub(crate) logged_user: LoggedUser,
    pub(crate) trusted_proxies: Arc<TrustedProxies>,
    pub(crate) rejections: Arc<RecentRejections>,
    pub(crate) reported: Arc<ReportedPaths>,
}

impl RequestLogger {
    /// Reports a request and ends its span; `record` is called only if it is logged, rejected or
    /// traced.
    pub(crate) fn request_ended<'a>(
        &self,
        completion: &Completion,
        span: RequestSpan,
        record: impl FnOnce() -> RequestRecord<'a>,
    ) {
        self.metrics.request_ended(completion, span.trace_id());
        let reason = completion.outcome.reason();
        let (is_notable, logged) = (reason.is_some(), self.access_log.wants(reason));
        if !is_notable && !logged && !span.is_recorded() {
            return;
        }
        let record = record();
        match (completion.outcome, record.request) {
            (Outcome::Rejected(rejection), _) => {
                let status = completion.status;
                self.rejections
                    .remember(rejection, status, &record, SystemTime::now());
            }
            (Outcome::Reported(rejection), Some((method, target))) => {
                self.reported.remember(rejection, method, target);
            }
            _ => {}
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
