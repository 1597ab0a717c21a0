//! Requests: their number by outcome, reason and status class, and their durations.

use std::time::Duration;

use postern_contract::rejection::{Maker, Rejection};
use postern_process::clock::unix_now;
use postern_process::metrics;
use postern_process::metrics::histogram::{DurationHistogram, REQUEST_BOUNDS, micros};
use postern_process::metrics::{Label, counters, counters_by};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::telemetry::outcome::{Completion, Outcome};

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

/// The outcomes without a reason, outside of their family, whose lookup takes a lock.
const PLAIN: [Outcome; 4] = [
    Outcome::Verified,
    Outcome::Passed,
    Outcome::Responded,
    Outcome::Aborted,
];
/// Classes of a response's status, by its first digit; the first one is of no response.
const CLASSES: [&str; 6] = ["", "1xx", "2xx", "3xx", "4xx", "5xx"];

metrics! {
    /// Metrics of finished requests.
    pub(crate) struct RequestMetrics {
        /// Requests by outcome, by the class of the response's status, rejections by reason code
        requests: Family<RequestLabels, Counter> = counters(rejections_here()),
        /// Time from the head of a request to the end of its response
        request_duration_seconds: DurationHistogram
            = DurationHistogram::new(&REQUEST_BOUNDS),
        /// Time from the head of a request to the decision about it, by this program
        pub(crate) auth_duration_seconds: DurationHistogram
            = DurationHistogram::new(&AUTH_BOUNDS),
        /// Time from that decision to the head of the service's response
        pub(crate) upstream_duration_seconds: DurationHistogram
            = DurationHistogram::new(&UPSTREAM_BOUNDS),
        /// Requests without a response of the service, by reason code
        upstream_errors: Family<Label, Counter>
            = counters_by("reason", UPSTREAM_ERRORS.map(Rejection::reason)),
        /// Time of the last rejection in seconds since 1970 by reason code, also of one that was only reported
        last_rejection_timestamp_seconds: Family<Label, Gauge>,
    }
    beside {
        /// The counts of each of [`PLAIN`], by class.
        plain: [[Counter; CLASSES.len()]; PLAIN.len()],
        /// All rejections together, also those that were only reported; not exported.
        rejected: Counter,
    }
}

impl RequestMetrics {
    pub(super) fn new() -> Self {
        let metrics = Self::default();
        let plain = PLAIN.map(|outcome| {
            let labels = CLASSES.map(|class| labels(outcome, class));
            labels.map(|labels| metrics.requests.get_or_create_owned(&labels))
        });
        Self { plain, ..metrics }
    }

    /// Counts a finished request. Only a rejection takes a lock, also one that is only reported.
    pub(crate) fn count(&self, completion: Completion) {
        let outcome = completion.outcome;
        if let Some(duration) = completion.duration {
            self.request_duration_seconds.observe(duration);
        }
        let (at, class) = class_of(completion.status);
        if let Some(rejection) = outcome.rejection() {
            self.requests.get_or_create(&labels(outcome, class)).inc();
            self.rejected.inc();
            let reason = [("reason", rejection.reason())];
            self.last_rejection_timestamp_seconds
                .get_or_create(&reason)
                .set(unix_now());
            if UPSTREAM_ERRORS.contains(&rejection) {
                self.upstream_errors.get_or_create(&reason).inc();
            }
            return;
        }
        // The frequent outcomes: with counters at hand no request takes the family's lock.
        for (plain, by_class) in PLAIN.iter().zip(&self.plain) {
            if *plain == outcome
                && let Some(counter) = by_class.get(at)
            {
                counter.inc();
                return;
            }
        }
    }

    /// Returns the number of requests since the start.
    pub(crate) fn all(&self) -> u64 {
        let mut all = self.rejected.get();
        for counter in self.plain.as_flattened() {
            all += counter.get();
        }
        all
    }
}

/// Returns the series of the rejections that this program can give.
fn rejections_here() -> impl Iterator<Item = RequestLabels> {
    Rejection::made_by(Maker::Sidecar).map(|rejection| {
        let (_, class) = class_of(Some(rejection.status().as_u16()));
        labels(Outcome::Rejected(rejection), class)
    })
}

/// Returns the class of a status, and its place among [`CLASSES`].
fn class_of(status: Option<u16>) -> (usize, &'static str) {
    let digit = usize::from(status.unwrap_or_default() / 100);
    CLASSES
        .into_iter()
        .enumerate()
        .nth(digit)
        .unwrap_or_default()
}

fn labels(outcome: Outcome, class: &'static str) -> RequestLabels {
    RequestLabels {
        outcome: outcome.as_str(),
        reason: outcome.reason().unwrap_or_default(),
        code: class,
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
            Rejection::ResourceNotGranted,
        ] {
            let (_, class) = class_of(Some(rejection.status().as_u16()));
            let labels = labels(Outcome::Rejected(rejection), class);
            assert!(exported.get(&labels).is_none(), "{rejection}");
        }
    }
}
