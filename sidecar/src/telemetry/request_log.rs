//! Request completion: metrics, access log, recent rejections.

use std::sync::Arc;
use std::time::SystemTime;

use runtime::client_address::TrustedProxies;

use crate::telemetry::access_log::{AccessLog, LoggedUser, RequestRecord};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::outcome::{Completion, Outcome};
use crate::telemetry::recent_rejections::RecentRejections;
use crate::telemetry::reported_paths::ReportedPaths;

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
    /// Reports a request; `record` is called only if it is logged or rejected.
    pub(crate) fn request_ended<'a>(
        &self,
        completion: Completion,
        record: impl FnOnce() -> RequestRecord<'a>,
    ) {
        self.metrics.request_ended(&completion);
        let outcome = completion.outcome;
        let rejected = match outcome {
            Outcome::Rejected(rejection) => Some(rejection),
            _ => None,
        };
        let reported = match outcome {
            Outcome::Reported(rejection) => Some(rejection),
            _ => None,
        };
        let is_notable = rejected.or(reported).is_some();
        let logged = self.access_log.wants(is_notable);
        if !is_notable && !logged {
            return;
        }
        let record = record();
        if let (Some(rejection), Some((method, target))) = (reported, record.request) {
            self.reported.remember(rejection, method, target);
        }
        if logged {
            record.write(outcome);
        }
        if let Some(rejection) = rejected {
            self.rejections
                .remember(rejection, &record, SystemTime::now());
        }
    }

    /// Logs a request whose rejection was counted and logged already, without its path. Its own
    /// record is logged only if every request is.
    pub(crate) fn request_ended_by_reported_rejection<'a>(
        &self,
        outcome: Outcome,
        record: impl FnOnce() -> RequestRecord<'a>,
    ) {
        if self.access_log.wants(false) {
            record().write(outcome);
        }
    }
}
