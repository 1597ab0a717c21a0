//! Requests: their number by outcome, reason and status class, and their durations.

use std::time::{Duration, SystemTime};

use contract::rejection::Rejection;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use runtime::histogram::{DurationHistogram, REQUEST_BOUNDS, micros};
use runtime::metrics::register_renamed;
use runtime::traces::TraceId;

use crate::telemetry::outcome::{Completion, Outcome, StatusClass, Totals};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    outcome: &'static str,
    reason: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpstreamErrorLabels {
    reason: &'static str,
}

pub(super) const REQUEST_DURATION: &str = "request_duration_seconds";

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

/// Rejections of the auth server alone.
const OF_AUTH_SERVER: [Rejection; 16] = [
    Rejection::LoginIncomplete,
    Rejection::BodyMalformed,
    Rejection::BodyTooLarge,
    Rejection::MediaTypeUnsupported,
    Rejection::ParameterMissing,
    Rejection::ApplicationUnknown,
    Rejection::LoginFailed,
    Rejection::TooManyAttempts,
    Rejection::StoreUnavailable,
    Rejection::FormMalformed,
    Rejection::CredentialsAmbiguous,
    Rejection::GrantUnsupported,
    Rejection::GrantNotAllowed,
    Rejection::GrantInvalid,
    Rejection::ScopeNotGranted,
    Rejection::NotFound,
];

/// The counts of one outcome by status class.
type ByClass = [Counter; StatusClass::ALL.len()];

/// Metrics of finished requests. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct RequestMetrics {
    requests: Family<RequestLabels, Counter>,
    /// The outcomes without a reason, outside of their family, whose lookup takes a lock.
    verified: ByClass,
    passed: ByClass,
    responded: ByClass,
    aborted: ByClass,
    /// All rejections together; not exported.
    rejected: ByClass,
    /// All that were only reported; not exported.
    reported: ByClass,
    pub(super) durations: DurationHistogram,
    pub(super) auth: DurationHistogram,
    pub(super) upstream: DurationHistogram,
    upstream_errors: Family<UpstreamErrorLabels, Counter>,
}

impl RequestMetrics {
    /// Creates every series that can be foreseen: a rate needs a first value.
    pub(super) fn new() -> Self {
        let requests = Family::<RequestLabels, Counter>::default();
        let of = |outcome| {
            StatusClass::ALL.map(|class| requests.get_or_create_owned(&labels(outcome, class)))
        };
        let here = Rejection::ALL
            .iter()
            .filter(|reason| !OF_AUTH_SERVER.contains(reason));
        for rejection in here {
            let class = StatusClass::of(Some(rejection.status().as_u16()));
            drop(requests.get_or_create(&labels(Outcome::Rejected(*rejection), class)));
        }
        let upstream_errors = Family::<UpstreamErrorLabels, Counter>::default();
        for rejection in UPSTREAM_ERRORS {
            let reason = rejection.reason();
            drop(upstream_errors.get_or_create(&UpstreamErrorLabels { reason }));
        }
        Self {
            verified: of(Outcome::Verified),
            passed: of(Outcome::Passed),
            responded: of(Outcome::Responded),
            aborted: of(Outcome::Aborted),
            rejected: ByClass::default(),
            reported: ByClass::default(),
            requests,
            durations: DurationHistogram::new(&REQUEST_BOUNDS),
            auth: DurationHistogram::new(&AUTH_BOUNDS),
            upstream: DurationHistogram::new(&UPSTREAM_BOUNDS),
            upstream_errors,
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "requests",
            "Requests by outcome, by the class of the response's status, rejections by reason code",
            self.requests.clone(),
        );
        registry.register(
            REQUEST_DURATION,
            "Time from the head of a request to the end of its response",
            self.durations.clone(),
        );
        register_renamed(
            registry,
            "auth_duration_seconds",
            "own_seconds",
            "Time from the head of a request to the decision about it, by this program",
            self.auth.clone(),
        );
        register_renamed(
            registry,
            "upstream_duration_seconds",
            "upstream_seconds",
            "Time from that decision to the head of the service's response",
            self.upstream.clone(),
        );
        registry.register(
            "upstream_errors",
            "Requests without a response of the service, by reason code",
            self.upstream_errors.clone(),
        );
    }

    /// Counts a finished request. Only a rejection takes a lock, also one that is only reported, and
    /// a request whose trace is recorded.
    pub(super) fn ended(&self, completion: &Completion, trace: Option<TraceId>) {
        let Completion {
            outcome,
            status,
            duration,
        } = *completion;
        match (duration, trace) {
            (Some(duration), Some(trace)) => {
                let now = SystemTime::now();
                self.durations.observe_traced(duration, trace, now);
            }
            (Some(duration), None) => self.durations.observe(duration),
            (None, _) => {}
        }
        let class = StatusClass::of(status);
        if let Outcome::Rejected(rejection) | Outcome::Reported(rejection) = outcome {
            self.requests.get_or_create(&labels(outcome, class)).inc();
            if UPSTREAM_ERRORS.contains(&rejection) {
                let reason = rejection.reason();
                let labels = UpstreamErrorLabels { reason };
                self.upstream_errors.get_or_create(&labels).inc();
            }
        }
        if let Some(counter) = self.of(outcome).get(class as usize) {
            counter.inc();
        }
    }

    const fn of(&self, outcome: Outcome) -> &ByClass {
        match outcome {
            Outcome::Verified => &self.verified,
            Outcome::Passed => &self.passed,
            Outcome::Responded => &self.responded,
            Outcome::Aborted => &self.aborted,
            Outcome::Rejected(_) => &self.rejected,
            Outcome::Reported(_) => &self.reported,
        }
    }

    /// Returns the number of responses of this class since the start.
    pub(super) fn responses(&self, class: StatusClass) -> u64 {
        let outcomes = [
            &self.verified,
            &self.passed,
            &self.responded,
            &self.aborted,
            &self.rejected,
            &self.reported,
        ];
        let counters = outcomes.into_iter().filter_map(|of| of.get(class as usize));
        counters.map(|counter| counter.get()).sum()
    }

    /// Returns the number of requests since the start.
    pub(super) fn totals(&self) -> Totals {
        let sum = |counters: &ByClass| counters.iter().map(|counter| counter.get()).sum();
        Totals {
            verified: sum(&self.verified),
            passed: sum(&self.passed),
            answered: sum(&self.responded),
            reported: sum(&self.reported),
            refused: sum(&self.rejected),
            aborted: sum(&self.aborted),
        }
    }
}

fn labels(outcome: Outcome, class: StatusClass) -> RequestLabels {
    RequestLabels {
        outcome: outcome.as_str(),
        reason: outcome.reason().unwrap_or_default(),
        code: class.as_str(),
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
