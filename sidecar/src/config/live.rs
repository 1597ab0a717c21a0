//! The rules for requests, replaced as a whole while the program runs.
//!
//! A request takes the rules when it begins and keeps them to its end.

use std::sync::Arc;

use arc_swap::ArcSwap;
use postern_process::clock::unix_now;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

use crate::decision::policy::AuthPolicy;
use crate::telemetry::access_log::{AccessLog, LoggedUser};
use crate::upstream::service_request::UpstreamRequestPolicy;

/// The rules for requests.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) auth_policy: AuthPolicy,
    pub(crate) upstream_request: UpstreamRequestPolicy,
    /// The requests that get a line in the log, and the user there.
    pub(crate) access_log: AccessLog,
    pub(crate) logged_user: LoggedUser,
    /// The settings in force that are not defaults, as a configuration file without secrets.
    pub(crate) settings: String,
}

/// The current rules, shared by all requests without a lock.
#[derive(Debug)]
pub(crate) struct CurrentRules(ArcSwap<Rules>);

impl CurrentRules {
    pub(crate) fn new(rules: Rules) -> Self {
        Self(ArcSwap::from_pointee(rules))
    }

    /// Returns the current rules; requests in flight keep theirs.
    pub(crate) fn load(&self) -> Arc<Rules> {
        self.0.load_full()
    }

    /// Applies `rules` to new requests. Only the reload calls it.
    pub(crate) fn replace(&self, mut rules: Rules) {
        rules
            .auth_policy
            // The generation changes with the rules: tokens that were cached under other rules count no more.
            .next_generation(&self.0.load().auth_policy);
        self.0.store(Arc::new(rules));
    }
}

/// `enforcing`, computed at the scrape, because report-only mode ends by itself.
#[derive(Debug)]
pub(crate) struct Enforcing(pub(crate) Arc<CurrentRules>);

impl Collector for Enforcing {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let reports = self.0.load().auth_policy.report_only_until(unix_now());
        let enforcing = ConstGauge::new(u64::from(reports.is_none()));
        enforcing.encode(encoder.encode_descriptor(
            "enforcing",
            "1 if requests are rejected, 0 while they are only reported (--enforce report)",
            None,
            enforcing.metric_type(),
        )?)
    }
}
