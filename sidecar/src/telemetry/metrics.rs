//! Every metric of the sidecar: names, help texts, labels. None has a path or a user as label.

use std::time::Duration;

use contract::rejection::Rejection;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use runtime::histogram::DurationHistogram;
use runtime::telemetry;
use runtime::tls::CertificateMetrics;

use crate::telemetry::outcome::{Outcome, Totals};

const PREFIX: &str = "postern_sidecar";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    outcome: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpstreamErrorLabels {
    reason: &'static str,
}

/// From a token that was seen before to one that waits for a key.
const OWN_BOUNDS: [Duration; 12] = [
    Duration::from_micros(10),
    Duration::from_micros(25),
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2500),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_millis(2500),
];
/// From a service on the same machine that has the answer at hand to the usual time-out.
const UPSTREAM_BOUNDS: [Duration; 14] = [
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2500),
    Duration::from_secs(10),
    Duration::from_secs(60),
];

/// What a refresh of the verification key came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefreshResult {
    Unchanged,
    Replaced,
    Failed,
}

/// The refusals for which the service is to blame.
const UPSTREAM_ERRORS: [Rejection; 3] = [
    Rejection::UpstreamUnavailable,
    Rejection::UpstreamMalformed,
    Rejection::UpstreamTimeout,
];

/// Look-ups of the token cache; they count on from one set of keys to the next.
#[derive(Debug, Clone, Default)]
pub(crate) struct TokenCacheCounters {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) evictions: Counter,
}

/// The counters that the program itself moves.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    requests: Family<RequestLabels, Counter>,
    /// The outcomes without a reason, taken out of their family: looking them up takes a lock.
    verified: Counter,
    passed: Counter,
    answered: Counter,
    aborted: Counter,
    /// All reasons together.
    refused: Counter,
    own: DurationHistogram,
    upstream: DurationHistogram,
    upstream_errors: Family<UpstreamErrorLabels, Counter>,
    in_flight: Gauge,
    connections: Gauge,
    connections_refused: Counter,
    streams_ended: Counter,
    bypass_possible: Gauge,
    key_refreshes: Family<ResultLabels, Counter>,
    key_cache_writes: Family<ResultLabels, Counter>,
    config_reloads: Family<ResultLabels, Counter>,
    config_usable: Gauge,
    config_restart_needed: Gauge,
    /// Registered for a port with TLS only.
    pub(crate) tls: CertificateMetrics,
}

impl Metrics {
    /// Registers all metrics but those of the keys, which are theirs to register.
    pub(crate) fn new(token_cache: TokenCacheCounters) -> (Self, Registry) {
        let requests = Family::<RequestLabels, Counter>::default();
        let metrics = Self {
            verified: requests.get_or_create_owned(&labels(Outcome::Verified)),
            passed: requests.get_or_create_owned(&labels(Outcome::Passed)),
            answered: requests.get_or_create_owned(&labels(Outcome::Responded)),
            aborted: requests.get_or_create_owned(&labels(Outcome::Aborted)),
            refused: Counter::default(),
            own: DurationHistogram::new(&OWN_BOUNDS),
            upstream: DurationHistogram::new(&UPSTREAM_BOUNDS),
            upstream_errors: Family::default(),
            requests,
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            streams_ended: Counter::default(),
            bypass_possible: Gauge::default(),
            key_refreshes: Family::default(),
            key_cache_writes: Family::default(),
            config_reloads: Family::default(),
            config_usable: Gauge::default(),
            config_restart_needed: Gauge::default(),
            tls: CertificateMetrics::default(),
        };
        let registry = metrics.registry(token_cache);
        (metrics, registry)
    }

    fn registry(&self, token_cache: TokenCacheCounters) -> Registry {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register(
            "requests",
            "Requests by outcome, refusals by reason code",
            self.requests.clone(),
        );
        registry.register(
            "requests_in_flight",
            "Requests that are being served",
            self.in_flight.clone(),
        );
        registry.register(
            "own_seconds",
            "Time from the head of a request to the decision about it, by this program",
            self.own.clone(),
        );
        registry.register(
            "upstream_seconds",
            "Time from that decision to the head of the service's answer",
            self.upstream.clone(),
        );
        for rejection in UPSTREAM_ERRORS {
            // There from the start: a rate needs a first value.
            let reason = rejection.reason();
            drop(
                self.upstream_errors
                    .get_or_create(&UpstreamErrorLabels { reason }),
            );
        }
        registry.register(
            "upstream_errors",
            "Requests that the service did not answer, by reason code",
            self.upstream_errors.clone(),
        );
        registry.register(
            "connections",
            "Open connections of clients",
            self.connections.clone(),
        );
        registry.register(
            "connections_refused",
            "Connections closed at once because there were too many",
            self.connections_refused.clone(),
        );
        registry.register(
            "bypass_possible",
            "Whether the service answered on the pod's address at the last look (--pod-ip)",
            self.bypass_possible.clone(),
        );
        registry.register(
            "streams_ended",
            "Streams that were closed because their token had expired",
            self.streams_ended.clone(),
        );
        registry.register(
            "key_refreshes",
            "Fetches of the verification key by result",
            self.key_refreshes.clone(),
        );
        registry.register(
            "key_cache_writes",
            "Writes of the key cache's file (--key-cache) by result: written, failed",
            self.key_cache_writes.clone(),
        );
        self.register_reloads(&mut registry);
        register_token_cache(&mut registry, token_cache);
        registry.register(
            "log_lines_dropped",
            "Log lines that were dropped because nobody read them",
            telemetry::lost_lines(),
        );
        registry.register(
            "build",
            "The running version",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        registry
    }

    pub(crate) fn request_ended(&self, outcome: Outcome) {
        match outcome {
            Outcome::Verified => self.verified.inc(),
            Outcome::Passed => self.passed.inc(),
            Outcome::Responded => self.answered.inc(),
            Outcome::Aborted => self.aborted.inc(),
            Outcome::Rejected(rejection) => {
                self.requests.get_or_create(&labels(outcome)).inc();
                if UPSTREAM_ERRORS.contains(&rejection) {
                    let reason = rejection.reason();
                    let labels = UpstreamErrorLabels { reason };
                    self.upstream_errors.get_or_create(&labels).inc();
                }
                self.refused.inc()
            }
        };
    }

    /// All requests since the start.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            verified: self.verified.get(),
            passed: self.passed.get(),
            answered: self.answered.get(),
            refused: self.refused.get(),
            aborted: self.aborted.get(),
        }
    }

    /// It took so long to decide about a request.
    pub(crate) fn decided(&self, after: Duration) {
        self.own.observe(after);
    }

    /// It took the service so long to begin its answer.
    pub(crate) fn service_answered(&self, after: Duration) {
        self.upstream.observe(after);
    }

    /// Counts a request as being served until the guard is dropped.
    pub(crate) fn request_began(&self) -> Counted {
        Counted::among(&self.in_flight)
    }

    /// Counts a connection as being open until the guard is dropped.
    pub(crate) fn connection_opened(&self) -> Counted {
        Counted::among(&self.connections)
    }

    pub(crate) fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    pub(crate) fn bypass_possible(&self, possible: bool) {
        self.bypass_possible.set(i64::from(possible));
    }

    pub(crate) fn stream_ended(&self) {
        self.streams_ended.inc();
    }

    pub(crate) fn in_flight(&self) -> i64 {
        self.in_flight.get()
    }

    pub(crate) fn key_refreshed(&self, result: RefreshResult) {
        let result = match result {
            RefreshResult::Unchanged => "unchanged",
            RefreshResult::Replaced => "replaced",
            RefreshResult::Failed => "failed",
        };
        self.key_refreshes
            .get_or_create(&ResultLabels { result })
            .inc();
    }

    /// There from the start: the configuration of the start could be used.
    fn register_reloads(&self, registry: &mut Registry) {
        for result in ["applied", "refused"] {
            drop(self.config_reloads.get_or_create(&ResultLabels { result }));
        }
        registry.register(
            "config_reloads",
            "Reloads of the configuration by result: applied, refused",
            self.config_reloads.clone(),
        );
        self.config_usable.set(1);
        registry.register(
            "config_usable",
            "Whether the configuration could be used when it was last read",
            self.config_usable.clone(),
        );
        registry.register(
            "config_restart_needed",
            "Whether settings that were read wait for the next start",
            self.config_restart_needed.clone(),
        );
    }

    /// Sets whether settings that were read wait for the next start.
    pub(crate) fn config_waits(&self, waits: bool) {
        self.config_restart_needed.set(i64::from(waits));
    }

    /// Returns true while settings that were read wait for the next start.
    pub(crate) fn needs_restart(&self) -> bool {
        self.config_restart_needed.get() != 0
    }

    pub(crate) fn config_reloaded(&self, applied: bool) {
        let result = if applied { "applied" } else { "refused" };
        self.config_usable.set(i64::from(applied));
        self.config_reloads
            .get_or_create(&ResultLabels { result })
            .inc();
    }

    pub(crate) fn key_cache_written(&self, succeeded: bool) {
        let result = if succeeded { "written" } else { "failed" };
        self.key_cache_writes
            .get_or_create(&ResultLabels { result })
            .inc();
    }
}

fn register_token_cache(registry: &mut Registry, counters: TokenCacheCounters) {
    registry.register(
        "token_cache_hits",
        "Tokens that had been verified before with the keys of the moment",
        counters.hits,
    );
    registry.register(
        "token_cache_misses",
        "Tokens that were not in the cache",
        counters.misses,
    );
    registry.register(
        "token_cache_evictions",
        "Verified tokens that made room for others",
        counters.evictions,
    );
}

fn labels(outcome: Outcome) -> RequestLabels {
    RequestLabels {
        outcome: outcome.as_str(),
        reason: outcome.reason().unwrap_or_default(),
    }
}

/// One request or connection in its gauge. In `Drop`, because a connection that breaks drops its
/// request without another word.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Counted {
    fn among(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests;
