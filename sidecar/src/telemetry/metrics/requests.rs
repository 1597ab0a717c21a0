//! Requests: their number by outcome, reason and status class, and their durations.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use runtime::metrics;
use runtime::metrics::histogram::{DurationHistogram, REQUEST_BOUNDS, micros};
use runtime::metrics::{Label, counters, counters_by};
use wire::rejection::{Maker, Rejection};

use crate::telemetry::outcome::{Completion, Outcome, StatusClass};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    outcome: &'static str,
    reason: &'static str,
    code: &'static str,
}

/// Buckets from a cached token to one that waits for a key.
const AUTH_BOUNDS: [Duration; 12] = micros([
    10, 25, 50, 100, 250, 500, 1000, 2500, 10_000, 100_000, 500_000, 2_500_000,
]);
/// Buckets from a fast service on the same machine to the usual timeout.
const UPSTREAM_BOUNDS: [Duration; 14] = micros([
    500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000, 60_000_000,
]);
/// Rejections caused by the service.
const UPSTREAM_ERRORS: [Rejection; 3] = [
    Rejection::UpstreamUnavailable,
    Rejection::UpstreamMalformed,
    Rejection::UpstreamTimeout,
];

/// The counts of one outcome by status class.
type ByClass = [Counter; StatusClass::ALL.len()];

metrics! {
    /// Metrics of finished requests.
    pub(super) struct RequestMetrics {
        /// Requests by outcome, by the class of the response's status, rejections by reason code
        requests: Family<RequestLabels, Counter> = counters(rejections_here()),
        /// Time from the head of a request to the end of its response
        pub(super) request_duration_seconds: DurationHistogram
            = DurationHistogram::new(&REQUEST_BOUNDS),
        /// Time from the head of a request to the decision about it, by this program
        pub(super) auth_duration_seconds: DurationHistogram
            = DurationHistogram::new(&AUTH_BOUNDS),
        /// Time from that decision to the head of the service's response
        pub(super) upstream_duration_seconds: DurationHistogram
            = DurationHistogram::new(&UPSTREAM_BOUNDS),
        /// Requests without a response of the service, by reason code
        upstream_errors: Family<Label, Counter>
            = counters_by("reason", UPSTREAM_ERRORS.map(Rejection::reason)),
    }
    beside {
        /// The outcomes without a reason, outside of their family, whose lookup takes a lock.
        verified: ByClass,
        passed: ByClass,
        responded: ByClass,
        aborted: ByClass,
        /// All rejections together, also those that were only reported; not exported.
        rejected: Counter,
    }
}

impl RequestMetrics {
    pub(super) fn new() -> Self {
        let metrics = Self::default();
        let of = |outcome| {
            let series = |class| {
                metrics
                    .requests
                    .get_or_create_owned(&labels(outcome, class))
            };
            StatusClass::ALL.map(series)
        };
        Self {
            verified: of(Outcome::Verified),
            passed: of(Outcome::Passed),
            responded: of(Outcome::Responded),
            aborted: of(Outcome::Aborted),
            ..metrics.clone()
        }
    }

    /// Counts a finished request. Only a rejection takes a lock, also one that is only reported.
    pub(super) fn ended(&self, completion: &Completion) {
        let Completion {
            outcome,
            status,
            duration,
        } = *completion;
        if let Some(duration) = duration {
            self.request_duration_seconds.observe(duration);
        }
        let class = StatusClass::of(status);
        if let Outcome::Rejected(rejection) | Outcome::Reported(rejection) = outcome {
            self.requests.get_or_create(&labels(outcome, class)).inc();
            if UPSTREAM_ERRORS.contains(&rejection) {
                let labels = [("reason", rejection.reason())];
                self.upstream_errors.get_or_create(&labels).inc();
            }
        }
        if let Some(counter) = self.of(outcome, class) {
            counter.inc();
        }
    }

    fn of(&self, outcome: Outcome, class: StatusClass) -> Option<&Counter> {
        let by_class = match outcome {
            Outcome::Verified => &self.verified,
            Outcome::Passed => &self.passed,
            Outcome::Responded => &self.responded,
            Outcome::Aborted => &self.aborted,
            Outcome::Rejected(_) | Outcome::Reported(_) => return Some(&self.rejected),
        };
        by_class.get(class as usize)
    }

    /// Returns the number of requests since the start.
    pub(super) fn all(&self) -> u64 {
        let others = [&self.verified, &self.passed, &self.responded, &self.aborted];
        let counters = others.into_iter().flatten().chain([&self.rejected]);
        counters.map(|counter| counter.get()).sum()
    }
}

/// Returns the series of the rejections that this program can give.
fn rejections_here() -> impl Iterator<Item = RequestLabels> {
    Rejection::of(Maker::Sidecar).map(|rejection| {
        let class = StatusClass::of(Some(rejection.status().as_u16()));
        labels(Outcome::Rejected(rejection), class)
    })
}

fn labels(outcome: Outcome, class: StatusClass) -> RequestLabels {
    RequestLabels {
        outcome: outcome.as_str(),
        reason: outcome.reason().unwrap_or_default(),
        code: class.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_reason_of_the_auth_server_alone_has_a_series() {
        let exported = RequestMetrics::new().requests;
        for rejection in [
            Rejection::LoginFailed,
            Rejection::GrantInvalid,
            Rejection::CredentialsAmbiguous,
            Rejection::NotFound,
        ] {
            let class = StatusClass::of(Some(rejection.status().as_u16()));
            let labels = labels(Outcome::Rejected(rejection), class);
            assert!(exported.get(&labels).is_none(), "{rejection}");
        }
    }
}
