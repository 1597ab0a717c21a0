//! What is told about a request when it is over: it is counted, logged where that is asked for, and
//! – a refusal – remembered for the status page.

use std::sync::Arc;
use std::time::SystemTime;

use runtime::client_address::TrustedProxies;

use crate::telemetry::access_log::{AccessLog, RequestRecord};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::outcome::Outcome;
use crate::telemetry::recent_rejections::RecentRejections;

/// Shared by all requests; clones report to the same places.
#[derive(Debug, Clone)]
pub(crate) struct RequestLogger {
    pub(crate) metrics: Metrics,
    pub(crate) access_log: AccessLog,
    pub(crate) trusted_proxies: Arc<TrustedProxies>,
    pub(crate) refusals: Arc<RecentRejections>,
}

impl RequestLogger {
    /// `line` is called only for what is logged or remembered.
    pub(crate) fn request_ended<'a>(
        &self,
        outcome: Outcome,
        record: impl FnOnce() -> RequestRecord<'a>,
    ) {
        self.metrics.request_ended(outcome);
        let refused = match outcome {
            Outcome::Rejected(rejection) => Some(rejection),
            _ => None,
        };
        let logged = self.access_log.wants(refused.is_some());
        if refused.is_none() && !logged {
            return;
        }
        let record = record();
        if logged {
            record.write(outcome);
        }
        if let Some(rejection) = refused {
            self.refusals
                .remember(rejection, &record, SystemTime::now());
        }
    }

    /// It was counted already, and told of as the refusal that ended it: only where every request has a line
    /// it gets the one with its path.
    pub(crate) fn request_ended_by_refusal<'a>(
        &self,
        outcome: Outcome,
        record: impl FnOnce() -> RequestRecord<'a>,
    ) {
        if self.access_log.wants(false) {
            record().write(outcome);
        }
    }
}
